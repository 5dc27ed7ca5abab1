"""A release of the chart with three pods and callers, as the tests of the full cluster have it."""

import concurrent.futures
import contextlib
import json
import pathlib
import sys
import threading
import time

import yaml
from cluster import CHART, wait_until

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "load"))
from callers import Load, plain, scripted, streamed  # noqa: E402

REPLICAS = 3
WITHIN = 180


class Release:
    def __init__(self, cluster, namespace, **values):
        self.cluster, self.namespace = cluster, cluster.namespace(namespace)
        self.values = cluster.folder / f"{namespace}.yaml"
        self.values.write_text(yaml.safe_dump({"replicaCount": REPLICAS, "config": scripted(), **values}))
        cluster.helm("install", "relight", str(CHART), "-n", namespace, "-f", str(self.values), "--wait", "--timeout", f"{WITHIN}s")

    def upgrade(self, *words, within=WITHIN, **options):
        return self.cluster.helm("upgrade", "relight", str(CHART), "-n", self.namespace, "-f", str(self.values), "--wait", "--timeout",
                                 f"{within}s", *words, **options)  # fmt: skip

    def rollback(self):
        self.cluster.helm("rollback", "relight", "-n", self.namespace, "--wait", "--timeout", f"{WITHIN}s")

    def kubectl(self, *words, **options):
        return self.cluster.kubectl("-n", self.namespace, *words, **options)

    def deployment(self):
        return self.cluster.get("-n", self.namespace, "deployment", "relight")

    def listed(self):
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=app.kubernetes.io%2Fcomponent%3Dserver"
        return json.loads(self.cluster.ask(path))["items"]

    def pods(self):
        """Those that are not on their way out."""
        return [pod for pod in self.listed() if "deletionTimestamp" not in pod["metadata"]]

    def ready(self):
        """The names of the pods that take calls."""
        return sorted(pod["metadata"]["name"] for pod in self.pods() if is_ready(pod))

    def settle(self, count=REPLICAS):
        """Waits until there are so many pods, all ready, and none that ends."""
        wait_until(lambda: len(self.listed()) == len(self.ready()) == count, f"{count} pods, all ready")

    def log(self, pod):
        [log] = self.cluster.folder.glob(f"node-*/{pod}.log")
        return log.read_text()

    @contextlib.contextmanager
    def called(self, calls=12, streams=12):
        """Callers all the while, of which none may lose a call. Before it and after it there are as many answers as callers."""
        where = f"dns:///relight-headless.{self.namespace}.svc:50051"
        with Load(where, calls, plain) as quick, Load(where, streams, streamed) as long:
            loads = (quick, long)
            more(loads)
            yield
            more(loads)
        print(f"{quick.outcomes['answered']} calls, {long.outcomes['answered']} streams")
        lost = quick.failed(), long.failed()
        assert lost == ({}, {}), f"lost calls and streams: {lost}"

    @contextlib.contextmanager
    def watched(self):
        """Counts the pods that take calls, again and again, into the list that it yields."""
        counts, over = [], threading.Event()

        def watch():
            while not over.is_set():
                counts.append(len(self.ready()))
                time.sleep(0.1)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            watching = pool.submit(watch)
            try:
                yield counts
            finally:
                over.set()
            watching.result()


def more(loads):
    """Waits until each kind of callers had as many answers again as there are callers."""
    before = [load.outcomes["answered"] for load in loads]
    wait_until(lambda: all(load.failed() or load.outcomes["answered"] >= had + len(load.threads) for load, had in zip(loads, before, strict=True)),
               "callers have answers")  # fmt: skip


def is_ready(pod):
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
