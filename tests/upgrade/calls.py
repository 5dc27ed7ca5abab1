"""The calls of a client of an earlier version, with the stubs of its contract: what leaves something in a journal, and what finds it.

    python calls.py fill ADDRESS     # prints what each caller holds, as JSON; the last stream is left in its middle
    python calls.py find ADDRESS     # the same callers again: by their ids, threads and cursors

The stubs (`relight.v1`) are on PYTHONPATH. Where the server is killed after the first line, a stream is cut.
"""

import json
import sys

import grpc
from relight.v1 import invocation_pb2, model_pb2, recovery_service_pb2, recovery_service_pb2_grpc, stream_pb2

PATIENCE = 120


def call(route, text, **fields):
    """An invocation as this version's examples write it."""
    parts = [model_pb2.Part(text=model_pb2.TextPart(text=text))]
    message = model_pb2.Message(role=model_pb2.ROLE_USER, parts=parts)
    return invocation_pb2.Invocation(route=route, operation="executor", model=model_pb2.ModelCall(messages=[message]), **fields)


class Caller:
    def __init__(self, address):
        self.stub = recovery_service_pb2_grpc.RecoveryServiceStub(grpc.insecure_channel(address))

    def invoke(self, *call_of, **fields):
        request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=call(*call_of, **fields))
        response = self.stub.InvokeWithRecovery(request, timeout=PATIENCE)
        return {
            "id": response.invocation_id,
            "text": response.completion.text,
            "failure": response.failure.failure_class,
            "attempts": len(response.attempts),
            "target": response.final_target,
            "replayed": response.disposition == invocation_pb2.REQUEST_DISPOSITION_REPLAY,
        }

    def stream(self, start, seen=None, timeout=PATIENCE):
        """The text of a stream by its deltas, rewinds and snapshots, and how it ends."""
        text, ended, cursor = "", None, None
        for message in self.stub.StreamWithRecovery(recovery_service_pb2.StreamWithRecoveryRequest(**start), timeout=timeout):
            event = message.event
            cursor = {"epoch": event.epoch, "seq": event.seq}
            match event.WhichOneof("body"):
                case "block_delta":
                    text = text.encode()[: event.block_delta.start_offset_bytes].decode() + event.block_delta.text
                    if seen:
                        seen({"text": text, "cursor": cursor})
                case "rewind":
                    kept = sum(block.length_bytes for block in event.rewind.keep)
                    text = text.encode()[:kept].decode()
                case "snapshot":
                    text = "".join(block.text for block in event.snapshot.blocks)
                case "terminal":
                    ended = event.terminal.WhichOneof("outcome")
        return {"text": text, "ended": ended, "cursor": cursor}

    def thread(self, name):
        response = self.stub.GetThread(recovery_service_pb2.GetThreadRequest(thread_id=name), timeout=PATIENCE)
        return [part.text.text for message in response.thread.messages for part in message.parts]

    def record(self, request_id):
        found = self.stub.GetInvocation(recovery_service_pb2.GetInvocationRequest(request_id=request_id), timeout=PATIENCE).invocation
        state = invocation_pb2.InvocationState.Name(found.state)
        return {"id": found.invocation_id, "state": state, "text": found.completion.text, "attempts": len(found.attempts)}


def fill(caller, prefix=""):
    held = {
        "whole": caller.invoke("quick", "Why is the sky blue?", request_id=prefix + "whole"),
        "recovered": caller.invoke("recovered", "Once more?", request_id=prefix + "recovered"),
        "failed": caller.invoke("failed", "Can you read it?", request_id=prefix + "failed"),
    }
    for turn in ("First.", "Second."):
        caller.invoke("quick", turn, thread_id=prefix + "talk")
    held["talk"] = caller.thread(prefix + "talk")
    held["stream"] = caller.stream({"invocation": call("quick", "And streamed?", request_id=prefix + "stream")})
    return held


def find(caller):
    found = {
        "whole": caller.invoke("quick", "Why is the sky blue?", request_id="whole"),
        "recovered": caller.invoke("recovered", "Once more?", request_id="recovered"),
        "failed": caller.invoke("failed", "Can you read it?", request_id="failed"),
        "talk": caller.thread("talk"),
        "stream": caller.stream({"resume": stream_pb2.Resume(request_id="stream")}),
        "cut": caller.stream({"resume": stream_pb2.Resume(request_id="cut")}),
        "records": {name: caller.record(name) for name in ("whole", "recovered", "failed", "stream", "cut")},
    }
    caller.invoke("quick", "Third.", thread_id="talk")
    found["talk afterwards"] = caller.thread("talk")
    return found


def main():
    what, address = sys.argv[1:]
    caller = Caller(address)
    if what == "find":
        print(json.dumps({"found": find(caller), "anew": fill(caller, "anew-")}))
        return
    print(json.dumps(fill(caller)), flush=True)
    resumable = invocation_pb2.Overrides(
        rewind_mode=invocation_pb2.REWIND_MODE_REWIND, resumable=invocation_pb2.Resumable(grace_ms=300_000)
    )
    invocation = call("long", "Slowly?", request_id="cut", overrides=resumable)
    # A timeout would be its deadline, which is to be in force when a later version looks.
    caller.stream({"invocation": invocation}, lambda seen: print(json.dumps(seen), flush=True), timeout=None)


if __name__ == "__main__":
    main()
