"""A later server serves what an earlier version left: its journal, its clients, its configuration."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import BINARY, calls, served, stubs

# The retention of threads came after 0.1.0; without it those of a fixture would be too old one day.
SETTINGS = ", thread_retention: 876000h"
WHOLE = "One two three four five six seven eight nine ten eleven twelve."


@pytest.fixture
def upgraded(version, tmp_path):
    """What a caller of the earlier version held, and what it finds and gets at the later server over the same journal."""
    journal = pathlib.Path(shutil.copy(version / "journal.db", tmp_path))
    journal.chmod(0o600)
    (tmp_path / "stubs").mkdir()
    made = stubs(version / "contract.binpb", tmp_path / "stubs")
    with served(BINARY, journal, SETTINGS) as (address, _):
        [now] = list(calls(made, "find", address))
    return json.loads((version / "held.json").read_text()), now["found"], now["anew"]


def test_a_client_of_the_earlier_version_finds_its_calls_in_the_earlier_journal_and_makes_new_ones(upgraded):
    held, found, anew = upgraded
    # A request that is sent again returns what it returned, and is not made once more.
    for name in ("whole", "recovered", "failed"):
        assert found[name] == held[name] | {"replayed": True}, name
    assert held["recovered"]["attempts"] == 2
    assert held["failed"]["failure"] and not held["failed"]["text"]
    # The conversation goes on where it was.
    assert found["talk"] == held["talk"]
    assert len(held["talk"]) == 4
    assert found["talk afterwards"][:4] == held["talk"]
    assert len(found["talk afterwards"]) == 6
    # A finished stream is there as a whole; one that the crash cut becomes whole.
    assert (found["stream"]["text"], found["stream"]["ended"]) == (held["stream"]["text"], "completed")
    assert WHOLE.startswith(held["cut"]["text"])
    assert (found["cut"]["text"], found["cut"]["ended"]) == (WHOLE, "completed")
    states = {name: record["state"] for name, record in found["records"].items()}
    succeeded = dict.fromkeys(("whole", "recovered", "stream", "cut"), "INVOCATION_STATE_SUCCEEDED")
    assert states == succeeded | {"failed": "INVOCATION_STATE_FAILED"}
    assert found["records"]["whole"]["id"] == held["whole"]["id"]
    # New calls have the same end as before; only their ids differ. The scripted model fails once in a process.
    for name in ("whole", "recovered", "failed"):
        assert anew[name] | {"id": ""} == held[name] | {"id": ""}, name
    assert anew["talk"] == held["talk"]
    assert anew["stream"]["text"] == held["stream"]["text"]


def test_the_configuration_of_the_earlier_version_is_valid_or_each_fault_says_what_to_write_instead(version):
    keys = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "PATH": os.environ["PATH"]}
    command = [BINARY, "config", "check", str(version / "relight.yaml")]
    checked = subprocess.run(command, env=keys, capture_output=True, text=True, check=False)
    faults = [line for line in checked.stderr.splitlines() if line.startswith(str(version))]
    assert checked.returncode == 0 or faults, checked.stdout + checked.stderr
    assert [fault for fault in faults if "write" not in fault and "instead" not in fault] == []
