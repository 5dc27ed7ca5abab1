"""What the tests of an upgrade share: stubs of an earlier contract, and a server over a journal."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import grpc_tools
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = os.environ.get("RELIGHT", str(ROOT / "target" / "debug" / "relight"))
VERSIONS = sorted(path.parent for path in (ROOT / "tests" / "fixtures").glob("*/contract.binpb"))
PATIENCE = 120.0


def stubs(contract, into):
    """Generates the stubs of a contract, as its users did."""
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    found = sorted(re.findall(rb"relight/v1/[a-z_]+\.proto", pathlib.Path(contract).read_bytes()))
    files = sorted({name.decode() for name in found})
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{well_known}", f"--descriptor_set_in={contract}",
               f"--python_out={into}", f"--grpc_python_out={into}", *files]  # fmt: skip
    subprocess.run(command, check=True)
    return into


@contextlib.contextmanager
def served(binary, journal, settings=""):
    """A server of tests/upgrade/relight.yaml over this journal, with further settings of it; yields its address and its process."""
    log = pathlib.Path(journal).with_suffix(".log")
    config = pathlib.Path(journal).with_suffix(".yaml")
    config.write_text((HERE / "relight.yaml").read_text().replace("retention: 876000h", f"retention: 876000h{settings}"))
    environment = {"PATH": os.environ["PATH"], "JOURNAL": str(journal)}
    with open(log, "wb") as out:
        process = subprocess.Popen([binary, "serve", "--config", str(config)], env=environment, stdout=out, stderr=out)
    try:
        end = time.monotonic() + PATIENCE
        while not (found := re.search(r'"address":"(127\.0\.0\.1:\d+)"', log.read_text())):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield found[1], process
    finally:
        process.kill()
        process.wait()


def calls(stubs_of, what, address):
    """Runs tests/upgrade/calls.py with these stubs; yields what it prints."""
    command = [sys.executable, str(HERE / "calls.py"), what, address]
    environment = os.environ | {"PYTHONPATH": str(stubs_of)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield json.loads(line)


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def version(request):
    """The folder of each earlier version, in turn."""
    return request.param
