"""Callers that keep calling, and the scripted models that respond to them: slowly, so that something is in flight at any time."""

import collections
import threading
import time

import grpc
import relight

PATIENCE = 60.0
ANSWER = "One by one the lamps along the harbour were lit, and the last boat came in before the rain began to fall."


def scripted():
    """The part of a configuration that has a slow first token, and by the route `long` a slow stream."""
    quick = {"answer": {"text": ANSWER, "first_token_after": "150ms"}}
    long = {"answer": {"text": ANSWER, "tokens_per_second": 8}}
    return {
        "providers": {"scripted": {"dialect": "scripted", "script": {"models": {
            "quick": {"otherwise": quick}, "long": {"otherwise": long}}}}},
        "targets": {"quick": {"provider": "scripted", "model": "quick"}, "long": {"provider": "scripted", "model": "long"}},
        "routes": {"default": {"targets": ["quick"]}, "long": {"targets": ["long"]}},
    }  # fmt: skip


class Load:
    """Callers that call again as soon as they have their answer, until the block ends."""

    def __init__(self, where, callers, call, **connection):
        self.client = relight.Client(where, **connection)
        self.outcomes, self.latencies, self.lock = collections.Counter(), [], threading.Lock()
        self.call, self.over = call, threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(callers)]

    def _run(self):
        while not self.over.is_set():
            began = time.monotonic()
            try:
                outcome = self.call(self.client)
            except (relight.Error, grpc.RpcError, OSError) as error:
                outcome = f"{type(error).__name__}: {error}"
            with self.lock:
                self.outcomes[outcome] += 1
                self.latencies.append((began, time.monotonic() - began))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        self.client.close()

    def failed(self):
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != "answered"}

    def median(self, since, until):
        """The median latency of the calls that began between these times, and how many there were."""
        found = sorted(latency for began, latency in self.latencies if since <= began < until)
        return (found[len(found) // 2] if found else float("inf")), len(found)


def plain(client):
    """One call as a caller makes it that retries nothing by itself, without a request id: nothing of it is needed later."""
    from relight.v1 import invocation_pb2, recovery_service_pb2

    invocation = invocation_pb2.Invocation(operation="executor")
    invocation.model.messages.add(role="ROLE_USER").parts.add().text.text = "Why?"
    request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation)
    outcome = client.stub.InvokeWithRecovery(request, timeout=30).WhichOneof("outcome")
    return "answered" if outcome == "completion" else str(outcome)


def streamed(client):
    """One long stream, read on by the client package where its replica ends."""
    text = "".join(client.stream("Why?", route="long", timeout=90))
    return "answered" if text == ANSWER else f"another text: {text!r}"
