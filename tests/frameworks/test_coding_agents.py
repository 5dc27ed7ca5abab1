"""Coding agents, set up as docs/frameworks.md has it: each runs the command that its model requests, whatever fails meanwhile."""

import os
import re
import subprocess

import drivers
import pytest
from conftest import AGENTS, KEY
from upstream import RAN

PROMPT = "Run the command."
# The heading of each on the page, the language of its block, and the file that the block is, where it is one.
PAGES = {
    "claude": ("Claude Code", "sh", None),
    "codex": ("Codex", "toml", ".codex/config.toml"),
    "opencode": ("opencode", "json", "project/opencode.json"),
}
COMMANDS = {
    "claude": ["claude", "--print", PROMPT, "--dangerously-skip-permissions"],
    "codex": ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT],
    "opencode": ["opencode", "run", PROMPT],
}


def run(agent, front, scenario, folder):
    """Runs it in a home of its own, and returns what it printed, and whether the command ran."""
    heading, language, file = PAGES[agent]
    block = drivers.fenced(heading, language).replace(drivers.ADDRESS, front).replace("my-route", f"{scenario}-{agent}")
    project = folder / "project"
    project.mkdir()
    environment = {
        "PATH": f"{drivers.HOME / 'node' / 'node_modules' / '.bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "RELIGHT_KEY": KEY,
        # Without it Claude Code refuses to run commands as root without a prompt for each.
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if file:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(block)
    else:
        environment |= dict(re.findall(r"(\w+)=(\S+)", block))
    command = COMMANDS[agent]
    done = subprocess.run(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    ran = project / "ran"
    return done.stdout + done.stderr, ran.exists() and ran.read_text() == "relit\n"


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("scenario", ["call", "limited", "cut", "outage"])
def test_a_coding_agent_does_its_work(upstream, front, tmp_path, agent, scenario):
    printed, has_run = run(agent, front, scenario, tmp_path)
    assert has_run, printed
    assert RAN in printed
    first = "down" if scenario == "outage" else scenario
    assert upstream.calls[f"{first}-{agent}"] >= 2


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_no_coding_agent_multiplies_the_calls(upstream, front, tmp_path, agent):
    printed, has_run = run(agent, front, "dead", tmp_path)
    assert "502" in printed or "503" in printed, printed
    assert not has_run
    # Three attempts, each of them one of Relight's.
    assert upstream.calls[f"dead-{agent}"] == 3
