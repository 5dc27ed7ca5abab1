"""The channel to Relight, and how often a lost connection is made again."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from typing import Any

import grpc

from relight.errors import DeadlineExceeded, StatusError


@dataclasses.dataclass(frozen=True)
class Tls:
    """Encrypts the connection. All are PEM; without `ca` the authorities that gRPC knows are trusted."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    #: The name in the server's certificate, where it differs from the address.
    server_name: str = ""


@dataclasses.dataclass(frozen=True)
class Reconnect:
    """How often a lost connection, or a replica that is going away, is tried again without any progress between."""

    attempts: int = 12
    #: The first wait, doubled up to `max_wait`, in seconds; each is spread by half of itself.
    wait: float = 0.1
    max_wait: float = 2.0


class Retry:
    """The attempts that are left to one call, and its deadline."""

    def __init__(self, reconnect: Reconnect, timeout: float | None) -> None:
        self._reconnect = reconnect
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._failed = 0

    def time_left(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def progressed(self) -> None:
        self._failed = 0

    def wait(self, error: StatusError) -> None:
        """Waits before the next attempt, or raises `error` when there is none."""
        if not error.transient or self._failed >= self._reconnect.attempts:
            raise error
        backoff = min(self._reconnect.wait * 2**self._failed, self._reconnect.max_wait)
        pause = max(backoff * random.uniform(0.5, 1.0), error.retry_after or 0.0)
        left = self.time_left()
        if left is not None and pause >= left:
            raise DeadlineExceeded(grpc.StatusCode.DEADLINE_EXCEEDED, f"no time is left to try again after: {error}")
        self._failed += 1
        time.sleep(pause)


def open_channel(target: str, tls: Tls | bool) -> grpc.Channel:
    """A channel that spreads calls over all addresses of the target, and repeats nothing by itself."""
    options: list[tuple[str, Any]] = [
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # All replicas may be replaced within the half minute for which names are not looked up again by default.
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        # Finds out about a peer that is gone without a word.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if target.startswith(("ipv4:", "ipv6:")):
        # A list of addresses is no valid authority.
        options.append(("grpc.default_authority", "relight"))
    if tls is False:
        return grpc.insecure_channel(target, options)
    settings = Tls() if tls is True else tls
    if settings.server_name:
        options.append(("grpc.ssl_target_name_override", settings.server_name))
    credentials = grpc.ssl_channel_credentials(settings.ca, settings.key, settings.certificate)
    return grpc.secure_channel(target, credentials, options)
