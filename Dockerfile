# The image: one static binary and the certificate authorities, nothing else. No shell, no package manager, no root.
#
#   docker build -t relight:0.2.0 .
#   docker run --rm --network host -e OPENAI_API_KEY relight:0.2.0
#   docker run --rm -p 127.0.0.1:50051:50051 -v ./relight.yaml:/etc/relight/relight.yaml:ro relight:0.2.0
#
# Without a file it serves on loopback only. In a network of its own `server.listen` and `server.admin_listen` must name
# 0.0.0.0, or nobody outside reaches them; that needs `server.keys`, or `server.auth: none` written out.
#
# `.ci/run image` makes the same image without a daemon, and starts it.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The libc is linked in, so that the binary needs no file beside it. A target is named, even though it is the builder's
# own, because the flag would otherwise reach build scripts and macros too, which cannot be static. Relocations in their
# short form, and equal functions once, take 2 MiB from it; other linkers than that of x86_64 know neither.
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV RUSTFLAGS="-C target-feature=+crt-static"
# `relight version` says it: `docker build --build-arg REVISION="$(git log -1 --format='%h, %cs')" .`
ARG REVISION=unknown
ENV RELIGHT_REVISION="${REVISION}"
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(rustc --print host-tuple)" \
    && if [ "${target#x86_64-}" != "$target" ]; then \
         RUSTFLAGS="$RUSTFLAGS -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--icf=all"; \
       fi \
    && cargo build --profile image --locked --no-default-features --bin relight --target "$target" \
    && cp "target/$target/image/relight" /relight \
    && if readelf --dynamic /relight | grep NEEDED; then echo "not static"; exit 1; fi

FROM scratch
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="relight" \
      org.opencontainers.image.description="A gRPC service that relights failed model calls in flight." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY LICENSE /LICENSE
COPY --from=build /relight /relight
# Memory that another thread allocated is kept by the thread that frees it, and no lock is waited for: about a tenth of a
# call's CPU time under full load. The C library reads it at the start.
ENV GLIBC_TUNABLES=glibc.malloc.tcache_count=200
# By number, so that Kubernetes can tell that it is not root.
USER 65532:65532
EXPOSE 50051 9464 8080
# No HEALTHCHECK: where TLS, another port or another command is used, it would call a good container unhealthy. A runtime
# without probes of its own can run `/relight health`, with RELIGHT_ADDRESS and RELIGHT_CA_FILE where they differ.
ENTRYPOINT ["/relight"]
CMD ["serve"]
