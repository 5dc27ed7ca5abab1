"""The gRPC client of Python against a model that never answers: a failure is reported before the caller's own deadline.

Run by tests/clients/run.sh with the service's address, a set of descriptors (not used here: the generated stubs are on
PYTHONPATH), and the deadlines in milliseconds: those to wait for, then `--`, then those whose end is read from the stream.
"""

import concurrent.futures
import sys
import time

import grpc
from relight.v1 import invocation_pb2, recovery_service_pb2, recovery_service_pb2_grpc

ADDRESS = sys.argv[1]
SPLIT = sys.argv.index("--")
WAITED = [int(text) for text in sys.argv[3:SPLIT]]
READ = [int(text) for text in sys.argv[SPLIT + 1 :]]
# Below it the answer may be late, but is one of the two.
LEAST_MS = 1000
TRIES = 3


def invocation():
    made = invocation_pb2.Invocation(operation="executor")
    message = made.model.messages.add(role="ROLE_USER")
    message.parts.add().text.text = "Why?"
    return made


def waited(stub, deadline_ms):
    """What the caller gets, and whether that is right."""
    request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation())
    for _ in range(TRIES):
        began = time.monotonic()
        try:
            got = stub.InvokeWithRecovery(request, timeout=deadline_ms / 1000).WhichOneof("outcome")
        except grpc.RpcError as error:
            got = error.code().name
        took_ms = 1000 * (time.monotonic() - began)
        if got == "failure":
            return got, took_ms >= 0.7 * deadline_ms
        if deadline_ms < LEAST_MS and got == "DEADLINE_EXCEEDED":
            return got, True
    return got, False


def read(stub, deadline_ms):
    """When the service ends the call, in milliseconds after its begin, and whether that is in time."""
    request = recovery_service_pb2.StreamWithRecoveryRequest(invocation=invocation())
    began = time.time()
    stream = stub.StreamWithRecovery(request, timeout=deadline_ms / 1000)
    accepted = next(stream).event.accepted
    stream.cancel()
    ends_ms = round(1000 * (accepted.deadline.seconds + accepted.deadline.nanos / 1e9 - began))
    return f"ends after {ends_ms} ms", 0.9 * deadline_ms < ends_ms < deadline_ms


with grpc.insecure_channel(ADDRESS) as channel:
    stub = recovery_service_pb2_grpc.RecoveryServiceStub(channel)
    grpc.channel_ready_future(channel).result(timeout=10)
    with concurrent.futures.ThreadPoolExecutor(len(WAITED)) as threads:
        results = list(zip(WAITED, threads.map(lambda deadline_ms: waited(stub, deadline_ms), WAITED)))
    results += [(deadline_ms, read(stub, deadline_ms)) for deadline_ms in READ]
for deadline_ms, (got, right) in results:
    print(f"python: deadline {deadline_ms} ms: {got}{'' if right else '  WRONG'}")
if not all(right for _, (_, right) in results):
    raise SystemExit("python: FAILED")
print(f"python: grpc {grpc.__version__}: all good")
