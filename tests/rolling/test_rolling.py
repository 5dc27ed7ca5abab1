"""The release before and this tree side by side, as a rolling update and its rollback have them: no call is lost, and they act as one.

Run by `.ci/run rolling`, with the client package of Python installed. RELIGHT names the binary of this tree, RELIGHT_EARLIER that of
the release before.
"""

import itertools
import time
import uuid

import provider as mock
from callers import Load
from fleet import ASKED, EARLIER, KEY, LATER, PATIENCE, commit, number, said
from relight.v1 import admin_service_pb2, recovery_service_pb2, target_pb2
from servers import target, wait_until

# docs/fleet.md, F3: half a second, of 99 changes in a hundred. This host does other work, too.
KNOWN = 2.0
EXCHANGES = 6


class Callers:
    """Thirty calls a second of all replicas, each with a question of its own: two of three unary, the others streamed. A client sends a
    call again that a replica refuses because it ends, and another replica gets it, as behind a Service of Kubernetes."""

    def __init__(self, fleet):
        self.questions = map(str, itertools.count(1))
        where = target(fleet.all)
        self.loads = [Load(where, 24, self.invoked, api_key=KEY), Load(where, 12, self.streamed, api_key=KEY)]

    def invoked(self, client):
        question = next(self.questions)
        return self.judged(question, client.invoke(question, timeout=60).text)

    def streamed(self, client):
        question = next(self.questions)
        return self.judged(question, "".join(client.stream(question, live=False, timeout=60)))

    def judged(self, question, text):
        return "answered" if text == mock.answer(question) else f"{question} has another answer: {text!r}"

    def __enter__(self):
        for load in self.loads:
            load.__enter__()
        return self

    def __exit__(self, *_):
        for load in self.loads:
            load.over.set()
        for load in self.loads:
            load.__exit__()

    def answered(self):
        return sum(load.outcomes["answered"] for load in self.loads)


class Checks:
    """What holds while two versions are mixed. Each check has a target that no other one uses."""

    def __init__(self, fleet, provider):
        self.fleet, self.provider = fleet, provider
        self.turns, self.latest = itertools.count(), 0.0

    def known(self, what, shows, but=None):
        """Waits until all replicas, or all but one, show this."""
        began, unaware = time.monotonic(), [replica for replica in self.fleet.all if replica is not but]
        while unaware := [replica for replica in unaware if not shows(replica)]:
            late = [f"{replica.name} ({replica.version})" for replica in unaware]
            assert time.monotonic() - began < KNOWN, f"{what} is not known to {late} within {KNOWN} s"
            time.sleep(0.02)
        self.latest = max(self.latest, time.monotonic() - began)

    def act_as_one(self):
        """All of it, begun in turn at a replica of the release before and at one of this version."""
        turn = next(self.turns)
        at, other = (self.fleet.of(version)[0] for version in (("earlier", "later") if turn % 2 == 0 else ("later", "earlier")))
        self.outage(f"outage-{turn}", at, other)
        self.word(f"word-{turn}", at, other)
        self.limit(f"limit-{turn}", at, other)
        self.seen_from_any()
        if self.fleet.is_handed_over:
            self.goes_on(at, other)
        self.held()
        print(f"at {at.name} ({at.version}) and {other.name} ({other.version}): as one")

    def state(self, name, state):
        return lambda replica: replica.target(name).circuit.state == state

    def outage(self, name, at, other):
        """An outage that one meets costs no call of the others, and what another one resets is well at all."""
        self.provider.fail(name)
        is_open = self.state(name, target_pb2.CIRCUIT_STATE_OPEN)
        wait_until(lambda: is_open(at) or at.is_answered(name), f"the outage at {at.name} ({at.version})")
        self.known(f"the outage that {at.name} ({at.version}) met", is_open, at)
        requests = self.provider.requests(name)
        for replica in self.fleet.all:
            assert not replica.is_answered(name)
        assert self.provider.requests(name) == requests, "a call was sent although all knew"
        self.provider.answer(name)
        other.reset(name)
        self.known(f"a reset at {other.name} ({other.version})", self.state(name, target_pb2.CIRCUIT_STATE_CLOSED))
        assert all(replica.is_answered(name) for replica in self.fleet.all)

    def word(self, name, at, other):
        """What an operator says at one holds at all, until another one is said something else."""
        at.force(name, admin_service_pb2.CIRCUIT_FORCE_OPEN, f"maintenance of {name}")
        self.known(f"a word at {at.name} ({at.version})", self.state(name, target_pb2.CIRCUIT_STATE_FORCED_OPEN))
        for replica in self.fleet.all:
            assert f"maintenance of {name}" in replica.call(name).failure.message
        assert self.provider.requests(name) == 0
        other.force(name, admin_service_pb2.CIRCUIT_FORCE_CLOSED, "it is well")
        self.known(f"a word at {other.name} ({other.version})", self.state(name, target_pb2.CIRCUIT_STATE_FORCED_CLOSED))
        at.reset(name)
        self.known(f"a reset at {at.name} ({at.version})", self.state(name, target_pb2.CIRCUIT_STATE_CLOSED))
        assert all(replica.is_answered(name) for replica in self.fleet.all)

    def limit(self, name, at, other):
        """A limit that one is told with its end holds at all until then; the success of another one ends it for all."""

        def gate(replica):
            return next((it for it in replica.target(name).gates if it.kind == target_pb2.GATE_KIND_RATE and it.closed), None)

        def end(replica):
            """The end that it was told. Until it was told twice, a second apart, the next probe is shown, which is sooner."""
            closed = gate(replica)
            return closed and closed.reopens_in_ms > 3000 and time.monotonic() + closed.reopens_in_ms / 1000

        self.provider.limit(name)
        wait_until(lambda: end(at) or at.is_answered(name), f"the end of the limit at {at.name} ({at.version})", mock.LIMIT)
        self.known(f"the limit that {at.name} ({at.version}) was told", end, at)
        assert abs(end(other) - end(at)) < 1
        requests = self.provider.requests(name)
        for _, replica in itertools.product(range(3), self.fleet.all):
            assert not replica.is_answered(name)
        # Each may send a probe in this time.
        assert self.provider.requests(name) <= requests + len(self.fleet.all)
        self.provider.answer(name)
        wait_until(lambda: other.is_answered(name), f"the end of the limit at {other.name} ({other.version})", PATIENCE)
        self.known(f"the end of the limit that {other.name} ({other.version}) found", lambda replica: not gate(replica))

    def seen_from_any(self):
        """A watch and the status, asked at any, show all; also with the command line of the other version."""
        label = {"check": str(uuid.uuid4())}
        watches = [replica.watch(label) for replica in self.fleet.all]
        made = {(it.name, it.call("default", label).invocation_id) for it in self.fleet.all}
        for asked, events in zip(self.fleet.all, watches):
            seen = [next(events).event for _ in made]
            assert {(it.replica, it.invocation_id) for it in seen} == made, f"asked at {asked.name} ({asked.version})"
            events.cancel()
        for binary, asked in itertools.product((EARLIER, LATER), self.fleet.all):
            shown = said(binary, "status", "--replicas", "3", "--address", f"http://{asked.address}")
            assert all(replica.name in shown for replica in self.fleet.all), shown

    def goes_on(self, at, other):
        """A thread, a request and a stream that were begun at one version go on at the other."""
        thread, request, streamed = (str(uuid.uuid4()) for _ in range(3))
        with at.client() as first, other.client() as second:
            begun = first.invoke(f"{request} first", thread_id=thread, request_id=request, timeout=30)
            again = second.invoke(f"{request} first", thread_id=thread, request_id=request, timeout=30)
            assert (again.invocation_id, again.text) == (begun.invocation_id, begun.text)
            assert self.provider.questions("load")[f"{request} first"] == 1
            second.invoke(f"{request} second", thread_id=thread, timeout=30)
            first.invoke(f"{request} third", thread_id=thread, timeout=30)
            for client in (first, second):
                found = client.stub.GetThread(recovery_service_pb2.GetThreadRequest(thread_id=thread), timeout=30, **ASKED)
                texts = [message.parts[0].text.text for message in found.thread.messages]
                asked = [f"{request} {turn}" for turn in ("first", "second", "third")]
                assert texts == [text for turn in asked for text in (turn, mock.answer(turn))]
            stream = first.stream(streamed, live=True, request_id=streamed, timeout=30)
            next(stream)
            assert "".join(second.resume(stream.detach(), timeout=30)) == mock.answer(streamed)
            assert self.provider.questions("load")[streamed] == 1

    def held(self):
        """What was said before the update holds at each, also at those that were started since."""
        for replica in self.fleet.all:
            assert replica.target("held").circuit.state == target_pb2.CIRCUIT_STATE_FORCED_OPEN, replica.name
        assert self.provider.requests("held") == 0


def test_the_release_before_and_this_version_act_as_one_in_an_update_and_back(fleet, provider):
    assert commit(EARLIER) != commit(LATER), "both binaries are of one version"
    checks = Checks(fleet, provider)
    fleet.start(EARLIER)
    fleet.all[0].force("held", admin_service_pb2.CIRCUIT_FORCE_OPEN, "since before the update")
    checks.known("a word of before", checks.state("held", target_pb2.CIRCUIT_STATE_FORCED_OPEN))
    with Callers(fleet) as callers:
        for binary in (LATER, EARLIER):
            for index in range(3):
                fleet.exchange(index, binary)
                if index < 2:
                    checks.act_as_one()
            checks.held()
            assert [replica.built_from() for replica in fleet.all] == [commit(binary)] * 3
            for asked in fleet.all:
                status = asked.status()
                assert [line.version for line in (status, *status.others)] == [number(binary)] * 3
            answered = callers.answered()
            wait_until(lambda: callers.answered() > answered + 50, "calls are answered")
    assert [load.failed() for load in callers.loads] == [{}, {}]
    asked = {question: count for question, count in provider.questions("load").items() if question.isdigit()}
    assert len(asked) == callers.answered()
    extra = sum(asked.values()) - len(asked)
    print(f"{len(asked)} calls, {extra} requests more than that; all knew of each change within {checks.latest:.2f} s")
    # A call is requested once more only if its replica ended before it did.
    cut = fleet.in_flight + EXCHANGES if fleet.is_handed_over else 0
    assert extra <= cut and max(asked.values()) <= 2
    assert fleet.panics() == []
