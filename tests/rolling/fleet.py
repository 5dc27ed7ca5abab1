"""Three replicas of two versions, and what each of them is asked."""

import os
import re
import subprocess

import relight
from relight.connection import open_channel
from relight.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    invocation_pb2,
    recovery_service_pb2,
    recovery_service_pb2_grpc,
    watch_pb2,
)
from servers import BINARY, Replica, get, wait_until

EARLIER, LATER = os.environ["RELIGHT_EARLIER"], BINARY
KEY = "a-key-of-an-operator"
# A connection of before, which gRPC shares, may be lost and wait until it is made again.
ASKED = {"metadata": (("authorization", f"Bearer {KEY}"),), "wait_for_ready": True}
# Time until replicas know each other after one was exchanged: one that is gone is forgotten after five seconds.
PATIENCE = 20.0


class Member(Replica):
    """One replica, and the stubs of its services."""

    def __init__(self, folder, name, settings, shared, binary):
        self.name, self.channel = name, None
        super().__init__(folder, {**settings, "fleet": {**shared, "name": name}}, binary)

    def start(self):
        super().start()
        if self.channel:
            self.channel.close()
        self.address = f"127.0.0.1:{self.port}"
        self.channel = open_channel(self.address, False)
        self.recovery = recovery_service_pb2_grpc.RecoveryServiceStub(self.channel)
        self.operator = admin_service_pb2_grpc.AdminServiceStub(self.channel)

    @property
    def version(self):
        return "earlier" if self.binary == EARLIER else "later"

    def client(self):
        return relight.Client(self.address, api_key=KEY)

    def built_from(self):
        """The commit of the binary that runs, as its metrics tell it."""
        return re.search(r'^relight_build_info{.*commit="([^"]+)"', get(f"http://127.0.0.1:{self.admin}/metrics"), re.MULTILINE)[1]

    def status(self):
        return self.operator.GetStatus(admin_service_pb2.GetStatusRequest(), timeout=10, **ASKED)

    def target(self, name):
        """A target as this replica itself sees it."""
        request = admin_service_pb2.ListTargetsRequest(targets=[name])
        [found] = self.operator.ListTargets(request, timeout=10, **ASKED).targets
        return found

    def force(self, name, how, reason):
        request = admin_service_pb2.ForceCircuitRequest(target=name, force=how, reason=reason)
        self.operator.ForceCircuit(request, timeout=10, **ASKED)

    def reset(self, name):
        self.operator.ResetCircuit(admin_service_pb2.ResetCircuitRequest(target=name), timeout=10, **ASKED)

    def call(self, route, labels=None):
        """One call of a route, which nobody repeats."""
        invocation = invocation_pb2.Invocation(route=route, operation="executor", labels=labels or {})
        invocation.model.messages.add(role="ROLE_USER").parts.add().text.text = "Why?"
        request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation)
        return self.recovery.InvokeWithRecovery(request, timeout=30, **ASKED)

    def is_answered(self, route):
        return self.call(route).WhichOneof("outcome") == "completion"

    def watch(self, label):
        """A watch of the calls with this label that succeed, from now on."""
        wanted = watch_pb2.RecoveryEventFilter(labels=label)
        wanted.event_types.append(watch_pb2.RECOVERY_EVENT_TYPE_INVOCATION_SUCCEEDED)
        request = recovery_service_pb2.WatchRecoveryRequest(filter=wanted, live=True)
        events = self.recovery.WatchRecovery(request, timeout=PATIENCE, **ASKED)
        # The first one is a bookmark: from here on nothing is missed.
        next(events)
        return events


class Fleet:
    """Three replicas, of which any may be exchanged for one of the other version."""

    def __init__(self, folder, settings, shared):
        self.folder, self.settings, self.shared = folder, settings, shared
        self.all, self.in_flight = [], 0

    @property
    def is_handed_over(self):
        """Whether what is begun at one replica goes on at another: if they have their journal in one database."""
        return self.settings["journal"]["store"] != "memory"

    def start(self, binary):
        for number in range(3):
            self.all.append(Member(self.folder, f"replica-{number}", self.settings, self.shared, binary))
        self.until_complete()

    def exchange(self, number, binary):
        """Ends one in order and starts the other version on the same port."""
        replica = self.all[number]
        self.in_flight += replica.metric("relight_inflight")
        took = replica.stop()
        replica.binary = binary
        replica.start()
        self.until_complete()
        print(f"{replica.name} ended after {took:.1f} s, now: {[it.version for it in self.all]}")

    def until_complete(self):
        wait_until(lambda: all(map(self.is_complete_at, self.all)), "all know all", PATIENCE)

    def is_complete_at(self, asked):
        """Whether the status of one has a line of each as it is now, and nobody is silent."""
        status = asked.status()
        lines = {line.replica: line.version for line in (status, *status.others)}
        return not status.silent and len(status.others) == 2 and lines == {it.name: number(it.binary) for it in self.all}

    def of(self, version):
        return [replica for replica in self.all if replica.version == version]

    def panics(self):
        return [line for replica in self.all for line in replica.log.read_text().splitlines() if "panicked" in line]


def said(*command):
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                         env={**os.environ, "RELIGHT_API_KEY": KEY})  # fmt: skip
    assert ran.returncode == 0, (command, ran.stdout)
    return ran.stdout


def number(binary):
    return said(binary, "version").split()[1]


def commit(binary):
    return re.search(r"\((.*)\)", said(binary, "version"))[1]

