"""A rolling restart as the gRPC client of Python sees it: six restarts of three replicas under load lose no call.

Run by .ci/run, with the binary as the only argument; the generated stubs are on PYTHONPATH. The client balances by
round_robin and retries nothing by itself.
"""

import collections
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import grpc
from relight.v1 import invocation_pb2, recovery_service_pb2, recovery_service_pb2_grpc

BINARY = sys.argv[1]
CALLERS, REPLICAS, RESTARTS = 12, 3, 6
CONFIG = """
server: {{ listen: "127.0.0.1:{port}", admin_listen: "127.0.0.1:{admin}" }}
journal: {{ store: memory }}
providers:
  scripted:
    dialect: scripted
    script: {{ models: {{ echo: {{ otherwise: {{ slow_first_token: {{ after: 150ms, answer: {{ text: "Here." }} }} }} }} }} }}
targets: {{ echo: {{ provider: scripted, model: echo }} }}
routes: {{ default: {{ targets: [echo] }} }}
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Replica:
    def __init__(self, folder, port, admin):
        self.port, self.admin = port, admin
        self.config = pathlib.Path(folder, f"{port}.yaml")
        self.config.write_text(CONFIG.format(port=port, admin=admin))
        self.log = open(pathlib.Path(folder, f"{port}.log"), "ab")
        self.start()

    def start(self):
        self.process = subprocess.Popen([BINARY, "serve", "--config", str(self.config)], stderr=self.log)
        end = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz", timeout=1):
                    return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            raise SystemExit(f"FAILED: a replica ended with {self.process.returncode}")


def call(stub):
    invocation = invocation_pb2.Invocation(operation="executor")
    invocation.model.messages.add(role="ROLE_USER").parts.add().text.text = "Why?"
    request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation)
    try:
        return stub.InvokeWithRecovery(request, timeout=30).WhichOneof("outcome")
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


results, over = collections.Counter(), threading.Event()


def keep_calling(stub):
    while not over.is_set():
        results[call(stub)] += 1


with tempfile.TemporaryDirectory() as folder:
    ports = free_ports(2 * REPLICAS)
    replicas = [Replica(folder, *pair) for pair in zip(ports[:REPLICAS], ports[REPLICAS:])]
    try:
        target = "ipv4:" + ",".join(f"127.0.0.1:{replica.port}" for replica in replicas)
        options = [
            ("grpc.lb_policy_name", "round_robin"),
            # A list of addresses is no authority.
            ("grpc.default_authority", "relight"),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
        ]
        with grpc.insecure_channel(target, options=options) as channel:
            stub = recovery_service_pb2_grpc.RecoveryServiceStub(channel)
            grpc.channel_ready_future(channel).result(timeout=10)
            callers = [threading.Thread(target=keep_calling, args=(stub,)) for _ in range(CALLERS)]
            for caller in callers:
                caller.start()
            try:
                for number in range(RESTARTS):
                    time.sleep(1)
                    replicas[number % REPLICAS].stop()
                    replicas[number % REPLICAS].start()
                time.sleep(1)
            finally:
                over.set()
                for caller in callers:
                    caller.join()
    finally:
        for replica in replicas:
            replica.process.kill()
            replica.process.wait()
print(dict(results))
lost = sum(results.values()) - results["completion"]
if lost or results["completion"] < 100:
    raise SystemExit(f"FAILED: {lost} of {sum(results.values())} calls were lost over {RESTARTS} restarts")
print(f"python: grpc {grpc.__version__}, {RESTARTS} restarts: no call lost")
