#!/usr/bin/env python3
"""Keeps what a version leaves behind, for the tests of upgrades from it.

    python tests/upgrade/leave.py BINARY tests/fixtures/VERSION

From the tree of that version: its contract, the values of its chart, its example of a configuration. From its binary: a journal
after the calls of tests/upgrade/calls.py, killed in the middle of a stream as by a crash. Needs grpcio, grpcio-tools, and `buf` on the
path. A folder with a contract.binpb keeps the files of its tree.
"""

import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

from conftest import ROOT, calls, served, stubs

# Enough that there is something to keep, and something to come.
SEEN = 20


def keep_files(folder):
    """What is in the tree of a version."""
    (folder / "values").mkdir(parents=True)
    subprocess.run(["buf", "build", "--exclude-source-info", "-o", str(folder / "contract.binpb")], cwd=ROOT, check=True)
    shutil.copy(ROOT / "examples" / "relight.yaml", folder)
    shutil.copy(ROOT / "helm" / "relight" / "values.yaml", folder / "chart-values.yaml")
    for values in (ROOT / "helm" / "relight" / "ci").glob("*-values.yaml"):
        shutil.copy(values, folder / "values")


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    if not (folder / "contract.binpb").exists():
        keep_files(folder)
    with tempfile.TemporaryDirectory() as work:
        journal = pathlib.Path(work, "journal.db")
        pathlib.Path(work, "stubs").mkdir()
        made = stubs(folder / "contract.binpb", pathlib.Path(work, "stubs"))
        with served(binary, journal) as (address, process):
            printed = calls(made, "fill", address)
            held = next(printed)
            held["cut"] = next(seen for seen in printed if len(seen["text"]) > SEEN)
            process.kill()
        with sqlite3.connect(journal) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.execute("PRAGMA journal_mode = DELETE")
        (folder / "journal.db").write_bytes(journal.read_bytes())
        (folder / "held.json").write_text(json.dumps(held, indent=2) + "\n")


if __name__ == "__main__":
    main()
