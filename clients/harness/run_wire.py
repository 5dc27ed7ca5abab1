"""How every client package reaches the real server: by TLS with an API key, and over all replicas behind one name."""

from __future__ import annotations

import hashlib
import os
import pathlib
import sys
import tempfile

import certificates
from drivers import Driver, drivers
from names import NameServer
from replica import Replica, free_port

_KEY = "relight-key-of-this-test"
_MOST_CALLS = 500
_HOSTS = ["127.0.0.1", "127.0.0.2"]
SECURED = """
server:
  tls: {{ cert_file: "{certificate}", key_file: "{key}" }}
  keys: [{{ tenant: test, sha256: {sha256} }}]
"""
REPLICA = """
journal: {{ store: memory }}
providers: {{ scripted: {{ dialect: scripted, script: {{ otherwise: {{ answer: {{ text: "{name}" }} }} }} }} }}
targets: {{ main: {{ provider: scripted, model: main }} }}
routes: {{ default: {{ targets: [main] }} }}
"""


def secured(folder: pathlib.Path, running: list[Driver]) -> list[str]:
    """A call is answered with the right authority and key, and refused without either."""
    authority, certificate, key = certificates.make(folder)
    sha256 = hashlib.sha256(_KEY.encode()).hexdigest()
    config = SECURED.format(certificate=certificate, key=key, sha256=sha256) + REPLICA.format(name="Here.")
    replica = Replica(folder, config)
    call = {"method": "invoke", "prompt": "Why?", "attempts": 2, "tls": authority.read_text(), "api_key": _KEY}
    try:
        faults = []
        for driver in running:
            target = f"localhost:{replica.port}"
            expected = {
                "with the key": (call, ["answer", None]),
                "with another key": ({**call, "api_key": "another"}, ["status", "UNAUTHENTICATED"]),
                # Which status it is depends on the library; none of them has a reason of Relight.
                "without TLS": ({**call, "tls": ""}, ["status", ""]),
            }
            for name, (asked, outcome) in expected.items():
                held = driver.run(target, asked)
                if [held["ended"], held.get("status", [None])[-1]] != outcome:
                    faults.append(f"{driver.language} {name}: {held}")
        return faults
    finally:
        replica.kill()


def balanced(folder: pathlib.Path, running: list[Driver]) -> list[str]:
    """One client reaches both replicas behind a name."""
    port, hosts = free_port(), _HOSTS
    replicas = [Replica(folder, REPLICA.format(name=host) + "server: { auth: none }\n", host, port) for host in hosts]
    names = NameServer(hosts)
    try:
        faults = []
        for driver in running:
            # Java has no name server of a target's own, and reads the file that `main` names.
            server = "" if driver.language == "java" else f"127.0.0.1:{names.port}"
            target = f"dns://{server}/relight-headless:{port}"
            if driver.language == "rust":
                # It asks the system for names, and takes a list of addresses as well.
                target = "ipv4:" + ",".join(f"{host}:{port}" for host in hosts)
            held = driver.run(target, {"method": "distinct", "prompt": "Why?", "distinct": 2, "most": _MOST_CALLS})
            if sorted(held.get("texts", [])) != hosts:
                faults.append(f"{driver.language} did not reach both replicas: {held}")
        return faults
    finally:
        names.close()
        for replica in replicas:
            replica.kill()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        running = drivers()
        faults = secured(pathlib.Path(folder), running)
        for driver in running:
            driver.close()
        # Without it, grpc-js passes over the name server that a target names.
        os.environ["GRPC_NODE_USE_ALTERNATIVE_RESOLVER"] = "true"
        hosts = pathlib.Path(folder, "hosts")
        hosts.write_text("".join(f"{host} relight-headless\n" for host in _HOSTS))
        os.environ["JAVA_TOOL_OPTIONS"] = f"-Djdk.net.hosts.file={hosts}"
        running = drivers()
        faults += balanced(pathlib.Path(folder), running)
        for driver in running:
            driver.close()
    for fault in faults:
        print(f"FAILED {fault}")
    print(f"wire: TLS, keys and replicas in {', '.join(driver.language for driver in running)}; {len(faults)} failed")
    return 1 if faults else 0


sys.exit(main())
