"""Runs calls of every client package against the real server while connections are cut and the server is killed.

Whatever happens, each caller must hold the same answer at the end. CLIENT_DRIVERS names the drivers, RELIGHT_BINARY the
server, CLIENT_ROUNDS how many rounds of each kind are run (3), CLIENT_SEED what the faults begin with (printed),
CLIENT_STORE where the journal is (a file of SQLite; a URL of PostgreSQL works as well).
"""

from __future__ import annotations

import os
import pathlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from drivers import Driver, drivers
from proxy import Proxy
from replica import Replica

ANSWER = " ".join(f"Word {number} of the answer, größer 🙂;" for number in range(1, 13))
CONFIG = """
journal: {{ store: "{store}" }}
providers:
  scripted:
    dialect: scripted
    script:
      models:
        torn: {{ otherwise: {{ cut: {{ after_text: "Word 1 of the answer, größer 🙂; Word 2 of something else" }} }} }}
        sound: {{ otherwise: {{ answer: {{ text: "{answer}", tokens_per_second: 90 }} }} }}
targets:
  torn: {{ provider: scripted, model: torn }}
  sound: {{ provider: scripted, model: sound }}
  alone: {{ provider: scripted, model: sound }}
policies: {{ standard: {{ retry: {{ backoff: {{ base: 20ms }} }} }} }}
circuit: {{ mode: off }}
routes:
  default: {{ targets: [alone] }}
  rewound: {{ targets: [torn, sound] }}
"""
# About how long an answer takes, in seconds: faults come at random within it.
_ANSWER_TAKES = 1.2
_KINDS: list[dict[str, Any]] = [
    {"method": "stream", "live": True, "route": "rewound"},
    {"method": "stream", "live": True},
    {"method": "stream", "route": "rewound"},
    {"method": "invoke"},
]


def shown(items: list[list[str]]) -> str:
    """What is on the screen of a caller who does what the items say."""
    text = ""
    for kind, piece in items:
        text = piece if kind == "rewind" else text + piece
    return text


def wrong(result: dict[str, Any]) -> str | None:
    if result["ended"] != "answer" or result["text"] != ANSWER:
        return f"it holds {result}"
    if "items" in result and shown(result["items"]) != ANSWER:
        return f"its caller sees {shown(result['items'])!r}"
    if result["history"][-1] != ["ROLE_ASSISTANT", ANSWER]:
        return f"its history ends with {result['history'][-1]}"
    return None


class Rounds:
    def __init__(self, replica: Replica, running: list[Driver], dice: random.Random) -> None:
        self._replica, self._running, self._dice = replica, running, dice
        self._proxies = [Proxy(replica.port) for _ in running]
        self.failed = self.rewinds = self.kills = 0

    @property
    def cuts(self) -> int:
        return sum(proxy.cuts for proxy in self._proxies)

    def run(self, count: int, fault: Callable[[], None], name: str) -> None:
        for number in range(count):
            call = {"prompt": "Why?", "timeout_ms": 120_000, "attempts": 40, **_KINDS[number % len(_KINDS)]}
            over = threading.Event()
            trouble = threading.Thread(target=self._keep_breaking, args=(fault, over))
            trouble.start()
            with ThreadPoolExecutor(len(self._running)) as pool:
                pairs = zip(self._running, self._proxies)
                results = list(pool.map(lambda pair: pair[0].run(f"127.0.0.1:{pair[1].port}", call), pairs))
            over.set()
            trouble.join()
            for driver, result in zip(self._running, results):
                self.rewinds += sum(kind == "rewind" for kind, _ in result.get("items", []))
                if problem := wrong(result):
                    self.failed += 1
                    print(f"FAILED {name}, round {number} ({driver.language}), {call}: {problem}")

    def _keep_breaking(self, fault: Callable[[], None], over: threading.Event) -> None:
        # A few faults for each answer, and no more: a call that is never left alone would never end. The first one is early.
        for number in range(self._dice.randint(1, 3)):
            if over.wait(self._dice.uniform(0.05, _ANSWER_TAKES if number else _ANSWER_TAKES / 3)):
                return
            fault()

    def cut(self) -> None:
        for proxy in self._proxies:
            if self._dice.random() < 0.5:
                proxy.cut()
            else:
                proxy.cut_after(self._dice.randint(1, 2000))

    def kill(self) -> None:
        self._replica.kill()
        self.kills += 1
        time.sleep(self._dice.uniform(0.0, 0.5))
        self._replica.start()


def main() -> int:
    count = int(os.environ.get("CLIENT_ROUNDS", "3"))
    seed = int(os.environ.get("CLIENT_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
    running = drivers()
    with tempfile.TemporaryDirectory() as folder:
        store = os.environ.get("CLIENT_STORE", f"sqlite:{folder}/journal.db")
        replica = Replica(pathlib.Path(folder), CONFIG.format(store=store, answer=ANSWER))
        try:
            rounds = Rounds(replica, running, random.Random(seed))
            rounds.run(count, rounds.cut, "connections cut")
            rounds.run(count, rounds.kill, "server killed")
        finally:
            replica.kill()
            for driver in running:
                driver.close()
    languages = ", ".join(driver.language for driver in running)
    print(
        f"rounds: {2 * count} in {languages}, seed {seed}: {rounds.cuts} connections cut, {rounds.kills} kills, "
        f"{rounds.rewinds} rewinds; {rounds.failed} failed"
    )
    if not rounds.cuts or not rounds.kills or not rounds.rewinds:
        print("FAILED: nothing was broken, so that nothing was shown")
        return 1
    return 1 if rounds.failed else 0


sys.exit(main())
