"""Asks Relight one question, over gRPC. See docs/ten-minutes.md for how to generate the stubs."""

import os
import sys

import grpc
from relight.v1 import invocation_pb2, model_pb2, recovery_service_pb2, recovery_service_pb2_grpc

address = os.environ.get("RELIGHT_ADDRESS", "127.0.0.1:50051").removeprefix("http://")
# A long answer has more than the 4 MiB that gRPC's clients receive by default.
channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
relight = recovery_service_pb2_grpc.RecoveryServiceStub(channel)

invocation = invocation_pb2.Invocation(operation="executor", model=model_pb2.ModelCall(text=sys.argv[1]))
request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation)

response = relight.InvokeWithRecovery(request, timeout=60)
if response.WhichOneof("outcome") == "completion":
    print(response.completion.text)
else:
    print(response.failure.user_message, response.failure.recovery_hint, sep="\n", file=sys.stderr)
print(f"{len(response.attempts)} attempt(s), answered by {response.final_target}", file=sys.stderr)
