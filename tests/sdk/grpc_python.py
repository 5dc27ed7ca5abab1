"""The gRPC client of Python against the service: a failure is reported before the caller's own deadline, however long.

Run by .ci/run, with the service's address as the only argument; its model never answers. The generated stubs are on
PYTHONPATH. A number of seconds as the second argument tries deadlines up to that length only.
"""

import concurrent.futures
import sys
import time

import grpc
from relight.v1 import invocation_pb2, recovery_service_pb2, recovery_service_pb2_grpc

ADDRESS = sys.argv[1]
LONGEST = float(sys.argv[2]) if len(sys.argv) > 2 else 15
# The core states three digits and rounds up: the lengths just above a step are the worst.
TIMEOUTS = [0.25, 0.5, 0.999, 1.001, 2, 5.003, 9.999, 10.001, 10.01, 10.05, 10.5, 11.11, 12.34, 30.01, 60.02]
TIMEOUTS += [100.01, 100.5, 300.3, 600]


def invocation():
    text = invocation_pb2.Invocation(operation="executor")
    message = text.model.messages.add(role="ROLE_USER")
    message.parts.add().text.text = "Why?"
    return text


def code_of(stub, timeout):
    began = time.monotonic()
    try:
        response = stub.InvokeWithRecovery(
            recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation()), timeout=timeout
        )
        said = response.WhichOneof("outcome")
    except grpc.RpcError as error:
        said = error.code().name
    return timeout, said, time.monotonic() - began


with grpc.insecure_channel(ADDRESS) as channel:
    stub = recovery_service_pb2_grpc.RecoveryServiceStub(channel)
    grpc.channel_ready_future(channel).result(timeout=10)
    timeouts = [timeout for timeout in TIMEOUTS if timeout <= LONGEST]
    with concurrent.futures.ThreadPoolExecutor(len(timeouts)) as threads:
        results = list(threads.map(lambda timeout: code_of(stub, timeout), timeouts))
for timeout, said, took in results:
    print(f"deadline {timeout:7.3f} s: {said} after {took:.3f} s")
late = [timeout for timeout, said, _ in results if said != "failure"]
# Within 100 s the attempts are not used up before.
early = [timeout for timeout, _, took in results if took < 0.7 * min(timeout, 100)]
if late or early:
    raise SystemExit(f"FAILED: no report of the failure before {late} s; ended early: {early} s")
print(f"python: grpc {grpc.__version__}: all good")
