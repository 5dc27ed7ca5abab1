#!/usr/bin/env python3
"""The image without a daemon: puts static binaries, the certificate authorities and the licence into an OCI layout, and
starts what is in it.

    .ci/image.py build --out target/oci amd64=target/x86_64-unknown-linux-gnu/image/relight
    .ci/image.py check target/oci
    .ci/image.py archive target/oci relight-0.2.0.oci.tar

The same files make the same digest. `check` is for root in a network of its own (`unshare --net`), and needs the packages
of helm/render.py. What it starts is what users start: the command of `helm test`, the server without a file, with
that of the chart and under SIGTERM, and the health command.
"""

import argparse
import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
USER = 65532
TYPE = "application/vnd.oci.image"
MIB = 1 << 20


def version():
    return re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]


def environment():
    """The variable that the Dockerfile sets in the image."""
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("FROM scratch")[1]
    return re.search(r"^ENV (.+)$", image, re.MULTILINE)[1]


# === build ===


def layer(files):
    """A layer as (tar, compressed tar) of (path, mode, contents), owned by root and without a time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        folders = {str(parent) for path, _, _ in files for parent in pathlib.PurePath(path).parents} - {"."}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, mode, contents in files:
            entry = tarfile.TarInfo(path)
            entry.mode, entry.size = mode, len(contents)
            tar.addfile(entry, io.BytesIO(contents))
    return plain.getvalue(), gzip.compress(plain.getvalue(), mtime=0)


def digest(contents):
    return f"sha256:{hashlib.sha256(contents).hexdigest()}"


class Layout:
    """An OCI layout that is being written."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.blobs = self.path / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)

    def add(self, contents, media_type, **more):
        if not isinstance(contents, bytes):
            contents = json.dumps(contents, sort_keys=True).encode()
        (self.blobs / hashlib.sha256(contents).hexdigest()).write_bytes(contents)
        return {"mediaType": media_type, "digest": digest(contents), "size": len(contents), **more}

    def image(self, architecture, binary, revision):
        common = layer([("etc/ssl/certs/ca-certificates.crt", 0o644, AUTHORITIES.read_bytes()),
                        ("LICENSE", 0o644, (ROOT / "LICENSE").read_bytes())])  # fmt: skip
        own = layer([("relight", 0o755, pathlib.Path(binary).read_bytes())])
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {
                # By number, so that Kubernetes can tell that it is not root.
                "User": str(USER),
                "ExposedPorts": {"50051/tcp": {}, "9464/tcp": {}, "8080/tcp": {}},
                "Env": [environment()],
                "Entrypoint": ["/relight"],
                "Cmd": ["serve"],
                "Labels": {
                    "org.opencontainers.image.title": "relight",
                    "org.opencontainers.image.description": "A gRPC service that relights failed model calls in flight.",
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.version": version(),
                    "org.opencontainers.image.revision": revision,
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(plain) for plain, _ in (common, own)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{TYPE}.manifest.v1+json",
            "config": self.add(config, f"{TYPE}.config.v1+json"),
            "layers": [self.add(packed, f"{TYPE}.layer.v1.tar+gzip") for _, packed in (common, own)],
        }
        platform = {"architecture": architecture, "os": "linux"}
        return self.add(manifest, f"{TYPE}.manifest.v1+json", platform=platform)


def build(arguments):
    layout = Layout(arguments.out)
    images = [layout.image(*binary.split("=", 1), arguments.revision) for binary in arguments.binaries]
    index = {"schemaVersion": 2, "mediaType": f"{TYPE}.index.v1+json", "manifests": images}
    named = {"annotations": {"org.opencontainers.image.ref.name": version()}}
    (layout.path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout.path / "index.json").write_text(
        json.dumps({**index, "manifests": [layout.add(index, f"{TYPE}.index.v1+json", **named)]})
    )
    for image in images:
        print(f"{image['platform']['architecture']}: {image['digest']}")


# === read ===


def blob(layout, descriptor):
    contents = (pathlib.Path(layout) / "blobs" / "sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    if (digest(contents), len(contents)) != (descriptor["digest"], descriptor["size"]):
        raise ValueError(f"{descriptor['digest']} is not what it should be")
    return contents


def images(layout):
    """(architecture, manifest, configuration) of every image of a layout, all digests checked."""
    [top] = json.loads((pathlib.Path(layout) / "index.json").read_text())["manifests"]
    for descriptor in json.loads(blob(layout, top))["manifests"]:
        manifest = json.loads(blob(layout, descriptor))
        yield descriptor["platform"]["architecture"], manifest, json.loads(blob(layout, manifest["config"]))


def unpack(layout, manifest, config, into):
    """Makes the root directory, and returns its size in bytes and that of the compressed layers."""
    unpacked = 0
    for descriptor, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        plain = gzip.decompress(blob(layout, descriptor))
        if digest(plain) != diff_id:
            raise ValueError(f"{diff_id} is not what its layer holds")
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            unpacked += sum(entry.size for entry in tar)
            tar.extractall(into)
    return unpacked, sum(descriptor["size"] for descriptor in manifest["layers"])


# === check ===


class Container:
    """The root directory of an image, as which commands run: its user, its environment, nothing else of this host."""

    def __init__(self, root, config):
        self.root, self.config = root, config

    def start(self, *words, **variables):
        user = int(self.config["User"])
        command = [*self.config["Entrypoint"], *(words or self.config["Cmd"])]
        variables |= dict(variable.split("=", 1) for variable in self.config["Env"])

        def enter():
            os.chroot(self.root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)

        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=variables,
                                preexec_fn=enter)  # fmt: skip

    def run(self, *words, seconds=120, code=0, **variables):
        process = self.start(*words, **variables)
        output, errors = process.communicate(timeout=seconds)
        if process.returncode != code:
            raise AssertionError(f"{words} ended with {process.returncode}, not {code}:\n{output}\n{errors}")
        return output

    @contextlib.contextmanager
    def serving(self, *words, address="http://127.0.0.1:50051"):
        """A server that is ready; it must end in order within the grace period when it gets SIGTERM."""
        process = self.start(*words)
        try:
            end = time.monotonic() + 30
            while self.start("health", RELIGHT_ADDRESS=address).wait() != 0:
                if process.poll() is not None or time.monotonic() > end:
                    process.kill()
                    raise AssertionError(f"{words or 'the command of the image'} does not serve:\n{process.communicate()[1]}")
                time.sleep(0.2)
            yield
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=45)
            lines = [json.loads(line) for line in log.splitlines()]
            messages = " ".join(line["message"] for line in lines)
            if process.returncode != 0 or "draining" not in messages or "stopped" not in messages:
                raise AssertionError(f"ended with {process.returncode}:\n{log}")
            print(f"SIGTERM: ended in order after {time.monotonic() - began:.1f} s, {len(lines)} lines of log")
        finally:
            process.kill()


def chart_objects():
    """The test pod, the container of the deployment and the files of the chart as installed without any value."""
    sys.path.insert(0, str(ROOT / "helm"))
    import render  # its packages are needed for nothing else here

    objects = render.objects()
    test = next(item for item in objects if item.get("metadata", {}).get("annotations", {}).get("helm.sh/hook") == "test")
    deployment = next(item for item in objects if item["kind"] == "Deployment")
    return (test["spec"]["containers"][0]["args"],
            deployment["spec"]["template"]["spec"]["containers"][0]["args"],
            render.config_text())  # fmt: skip


def check_running(container):
    print(container.run("version").splitlines()[0])
    with container.serving():
        print("serves without a file")
        container.run("invoke", "Why is the sky blue?")
        container.run("health", "--service", "liveness")
    test, serve, config = chart_objects()
    (container.root / "etc" / "relight").mkdir()
    (container.root / "etc" / "relight" / "relight.yaml").write_text(config, encoding="utf-8")
    print(f"helm test ({' '.join(test)}): {container.run(*test).strip()}")
    with container.serving(*serve):
        print(f"serves as the chart starts it ({' '.join(serve)})")
    with container.serving():
        print("serves with /etc/relight/relight.yaml where it is mounted")


def raise_loopback():
    """A new network has nothing, and its loopback is down."""
    request = struct.pack("16sH14x", b"lo", 1 | 0x40)  # IFF_UP, IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def make_devices(folder):
    """What every container runtime gives."""
    folder.mkdir()
    for name, minor in (("null", 3), ("random", 8), ("urandom", 9)):
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        (folder / name).chmod(0o666)


def check(arguments):
    raise_loopback()
    here = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    for architecture, manifest, config in images(arguments.layout):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            root.chmod(0o755)
            unpacked, packed = unpack(arguments.layout, manifest, config, root)
            print(f"{architecture}: {unpacked / MIB:.1f} MiB, compressed {packed / MIB:.1f} MiB")
            elf = subprocess.run(["readelf", "--dynamic", root / "relight"], capture_output=True, text=True, check=True)
            if "NEEDED" in elf.stdout:
                raise AssertionError("the binary needs libraries that the image does not have")
            if arguments.max_mib and unpacked > arguments.max_mib * MIB:
                raise AssertionError(f"larger than {arguments.max_mib} MiB")
            if architecture == here:
                make_devices(root / "dev")
                check_running(Container(root, config["config"]))
            else:
                print(f"{architecture}: not started, this machine is {here}")


def archive(arguments):
    """One file that `skopeo copy oci-archive:…` and `podman load` take."""

    def anonymous(entry):
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
        return entry

    with tarfile.open(arguments.file, "w") as tar:
        for path in sorted(pathlib.Path(arguments.layout).rglob("*")):
            tar.add(path, path.relative_to(arguments.layout), recursive=False, filter=anonymous)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    builds = commands.add_parser("build", help="make a layout")
    builds.add_argument("--out", required=True)
    builds.add_argument("--revision", default="unknown")
    builds.add_argument("binaries", nargs="+", metavar="ARCHITECTURE=FILE")
    builds.set_defaults(run=build)
    checks = commands.add_parser("check", help="start what is in a layout")
    checks.add_argument("--max-mib", type=float, help="the largest size of the unpacked image")
    checks.add_argument("layout")
    checks.set_defaults(run=check)
    archives = commands.add_parser("archive", help="put a layout into one file")
    archives.add_argument("layout")
    archives.add_argument("file")
    archives.set_defaults(run=archive)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
