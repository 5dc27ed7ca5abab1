"""A Kubernetes on this machine: etcd, the API server, and nodes without containers; the full one has its controllers and scheduler, too.

`run.sh` starts the tests in namespaces of their own, which end with every process that is started here."""

import contextlib
import json
import os
import pathlib
import socket
import ssl
import subprocess
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "relight"
BINARY = os.environ.get("RELIGHT", str(ROOT / "target" / "debug" / "relight"))
BUILT = ROOT / "target" / "cluster"
VERSION = "v1.37.2"
BRIDGE, GATEWAY = "relight-pods", "10.244.77.1"
NODES = ("node-a", "node-b")
PATIENCE = 180.0
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{ name: here, cluster: {{ server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true }} }}]
users: [{{ name: admin, user: {{ token: admin }} }}]
contexts: [{{ name: here, context: {{ cluster: here, user: admin }} }}]
current-context: here
"""
# As a pod has it.
RESOLVER = f"nameserver {GATEWAY}\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def wait_until(holds, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.2)
    return found


class Cluster:
    def __init__(self, folder, full):
        assert os.getpid() == 1, "outside of its own namespaces it would change this machine's: run tests/cluster/run.sh"
        self.folder, self.processes, self.full = pathlib.Path(folder), [], full
        self.program = BUILT / ("control-plane-full" if full else "control-plane")
        self.etcd, self.port = free_port(), free_port()
        (self.folder / "kubeconfig").write_text(KUBECONFIG.format(port=self.port))
        (self.folder / "tokens.csv").write_text('admin,admin,admin,"system:masters"\n')
        self.environment = os.environ | {
            "KUBECONFIG": str(self.folder / "kubeconfig"), "PATH": f"{BUILT}:{os.environ['PATH']}",
            **{f"HELM_{what}_HOME": str(self.folder / "helm") for what in ("CACHE", "CONFIG", "DATA")},
        }  # fmt: skip

    # === parts ===

    def start(self):
        for words in (f"link add {BRIDGE} type bridge", f"addr add {GATEWAY}/24 dev {BRIDGE}", f"link set {BRIDGE} up"):
            subprocess.run(["ip", *words.split()], check=True)
        for words in (["genrsa", "-out", "sa.key", "2048"], ["rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"]):
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, stderr=subprocess.DEVNULL)
        client, peer = f"http://127.0.0.1:{self.etcd}", f"http://127.0.0.1:{free_port()}"
        self._part("etcd", "--data-dir", "etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                   "--unsafe-no-fsync")  # fmt: skip
        self._part("apiserver", "--etcd-servers", client, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
                   "--endpoint-reconciler-type", "none", "--secure-port", str(self.port), "--cert-dir", "certs",
                   "--token-auth-file", "tokens.csv", "--authorization-mode", "RBAC,Node", "--service-cluster-ip-range", "10.96.0.0/16",
                   "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", "sa.pub",
                   "--service-account-signing-key-file", "sa.key", "--allow-privileged=false",
                   "--enable-aggregator-routing=true")  # fmt: skip
        wait_until(self._is_ready, "the API server is ready")
        if self.full:
            common = ("--kubeconfig", "kubeconfig", "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir")
            self._part("controllers", *common, "certs-controllers", "--secure-port", str(free_port()),
                       "--service-account-private-key-file", "sa.key", "--use-service-account-credentials",
                       # It looks at the load every 15 s otherwise, and takes a pod's first 5 minutes for its start.
                       "--horizontal-pod-autoscaler-sync-period", "2s", "--horizontal-pod-autoscaler-cpu-initialization-period", "5s",
                       "--horizontal-pod-autoscaler-initial-readiness-delay", "2s")  # fmt: skip
            self._part("scheduler", *common, "certs-scheduler", "--secure-port", str(free_port()))
            self._names()
        for number, name in enumerate(NODES if self.full else NODES[:1]):
            (self.folder / name).mkdir()
            self._part("node", "kubeconfig", BINARY, str(self.folder / name), self.image(), name, str(number), log=name,
                       **({} if self.full else {"BIND": "1"}))  # fmt: skip
        return self

    def image(self):
        return "relight:" + yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]

    def _names(self):
        """Has this process and all pods look names up in the cluster."""
        (self.folder / "resolv.conf").write_text(RESOLVER)
        subprocess.run(["mount", "--bind", str(self.folder / "resolv.conf"), "/etc/resolv.conf"], check=True)
        self._part("dns", "kubeconfig", f"{GATEWAY}:53")

    def _part(self, what, *words, log=None, **environment):
        with open(self.folder / f"{log or what}.log", "wb") as out:
            started = subprocess.Popen([str(self.program), what, *words], cwd=self.folder, stdout=out, stderr=out,
                                       env=os.environ | environment)  # fmt: skip
        self.processes.append(started)

    def _is_ready(self):
        assert all(process.poll() is None for process in self.processes), self.logs("apiserver")
        with contextlib.suppress(OSError):
            return self.ask("/readyz") == b"ok"
        return False

    def ask(self, path):
        unchecked = ssl._create_unverified_context()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers={"authorization": "Bearer admin"})
        with urllib.request.urlopen(request, context=unchecked, timeout=5) as response:
            return response.read()

    def logs(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    # === its clients ===

    def run(self, *words, given=None, check=True):
        ran = subprocess.run(words, env=self.environment, input=given, capture_output=True, text=True, check=False)
        assert not check or ran.returncode == 0, f"{' '.join(words)}\n{ran.stdout}{ran.stderr}\n{self.pods_seen()}"
        return ran

    def kubectl(self, *words, **options):
        return self.run("kubectl", *words, **options).stdout

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def helm(self, *words, **options):
        return self.run("helm", *words, **options)

    def pods_seen(self):
        seen = subprocess.run(["kubectl", "get", "pods", "-A", "-o", "wide"], env=self.environment, capture_output=True, text=True, check=False)
        return seen.stdout

    def namespace(self, name):
        """Makes one in which only pods of the restricted standard may run."""
        self.kubectl("create", "namespace", name)
        self.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        account = ("-n", name, "serviceaccount", "default")
        if self.full:
            wait_until(lambda: self.run("kubectl", "get", *account, check=False).returncode == 0, f"{name} has its account")
        else:
            self.kubectl("create", *account)
        return name
