"""A Kubernetes on this machine: etcd, the API server, and a node without containers. No controllers: a Deployment stays an object."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "relight"
BINARY = os.environ.get("RELIGHT", str(ROOT / "target" / "debug" / "relight"))
BUILT = ROOT / "target" / "cluster"
VERSION = "v1.37.2"
BRIDGE, GATEWAY = "relight-pods", "10.244.77.1"
NODE = "node-a"
PATIENCE = 180.0
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{ name: here, cluster: {{ server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true }} }}]
users: [{{ name: admin, user: {{ token: admin }} }}]
contexts: [{{ name: here, context: {{ cluster: here, user: admin }} }}]
current-context: here
"""


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
    def __init__(self, folder):
        self.folder, self.processes = pathlib.Path(folder), []
        self.program = BUILT / "control-plane"
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
                   "--service-account-signing-key-file", "sa.key", "--allow-privileged=false")  # fmt: skip
        wait_until(self._is_ready, "the API server is ready")
        (self.folder / NODE).mkdir()
        self._part("node", "kubeconfig", BINARY, str(self.folder / NODE), NODE, "0", log=NODE, BIND="1")
        return self

    def _part(self, what, *words, log=None, **environment):
        with open(self.folder / f"{log or what}.log", "wb") as out:
            started = subprocess.Popen([str(self.program), what, *words], cwd=self.folder, stdout=out, stderr=out,
                                       env=os.environ | environment)  # fmt: skip
        self.processes.append(started)

    def _is_ready(self):
        assert all(process.poll() is None for process in self.processes), self.logs("apiserver")
        unchecked = ssl._create_unverified_context()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/readyz", headers={"authorization": "Bearer admin"})
        with contextlib.suppress(OSError), urllib.request.urlopen(request, context=unchecked, timeout=5) as response:
            return response.read() == b"ok"
        return False

    def logs(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def stop(self):
        """Ends the nodes first, with the processes of their pods, and the store last."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
        for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout.splitlines():
            name = line.split()[0]
            # Those of this cluster's pods: their folders are here.
            if (self.folder / NODE / name).exists():
                pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split()
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], check=False)

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
        # A controller makes this one elsewhere.
        self.kubectl("-n", name, "create", "serviceaccount", "default")
        return name
