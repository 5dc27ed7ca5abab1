"""A stand-in for the metrics server of a cluster: what the processes of pods use of a CPU, as an autoscaler asks for it."""

import contextlib
import datetime
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import threading
import time
import urllib.parse

import yaml
from cluster import GATEWAY, free_port, wait_until

GROUP = "metrics.k8s.io/v1beta1"
WINDOW = 2.0
TICKS = os.sysconf("SC_CLK_TCK")


def used(pod):
    """The seconds of CPU that its processes took; a pod's network namespace has its UID as name."""
    pids = subprocess.run(["ip", "netns", "pids", pod["metadata"]["uid"]], capture_output=True, text=True, check=False).stdout.split()
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


class Metrics:
    def __init__(self, cluster):
        self.cluster, self.port = cluster, free_port()

    def listed(self, path, selector):
        pods = json.loads(self.cluster.ask(f"/api/v1{path}?labelSelector={urllib.parse.quote(selector)}"))["items"]
        before = {pod["metadata"]["name"]: used(pod) for pod in pods}
        time.sleep(WINDOW)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        def item(pod):
            cores = max(used(pod) - before[pod["metadata"]["name"]], 0.0) / WINDOW
            usage = {"cpu": f"{int(cores * 1e9)}n", "memory": "64Mi"}
            containers = [{"name": container["name"], "usage": usage} for container in pod["spec"]["containers"]]
            return {"metadata": {key: pod["metadata"][key] for key in ("name", "namespace")}, "timestamp": now, "window": f"{WINDOW}s",
                    "containers": containers}  # fmt: skip

        return {"kind": "PodMetricsList", "apiVersion": GROUP, "metadata": {}, "items": [item(pod) for pod in pods]}

    def start(self):
        """Serves the API, and has the API server pass it on."""
        files = [str(self.cluster.folder / name) for name in ("metrics.pem", "metrics.key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=metrics",
                        "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server = http.server.ThreadingHTTPServer((GATEWAY, self.port), self._handler())
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = {"name": "metrics", "namespace": "kube-system"}
        objects = [
            {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": [{"name": "https", "port": 443, "targetPort": self.port}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": place | {"labels": {"kubernetes.io/service-name": "metrics"}},
             "endpoints": [{"addresses": [GATEWAY], "conditions": {"ready": True}}],
             "ports": [{"name": "https", "port": self.port, "protocol": "TCP"}]},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
             "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "service": place, "insecureSkipTLSVerify": True,
                      "groupPriorityMinimum": 100, "versionPriority": 100}},
        ]  # fmt: skip
        self.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))
        wait_until(self._is_passed_on, "the API server passes the metrics on")

    def _is_passed_on(self):
        with contextlib.suppress(OSError):
            return json.loads(self.cluster.ask(f"/apis/{GROUP}"))["resources"]
        return False

    def _handler(self):
        metrics = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked = urllib.parse.urlsplit(self.path)
                path = asked.path.removeprefix(f"/apis/{GROUP}")
                if path == "":
                    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": [
                        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}]}  # fmt: skip
                elif path.endswith("/pods"):
                    selector = urllib.parse.parse_qs(asked.query).get("labelSelector", [""])[0]
                    body = metrics.listed(path, selector)
                else:
                    self.send_error(404)
                    return
                encoded = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_):
                """Says nothing."""

        return Handler
