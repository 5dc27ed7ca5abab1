#!/usr/bin/env python3
"""Makes a version: its number in every place, the changelog's and the chart's `Unreleased` under it, and all checks on the result.

    .ci/release.py 0.2.0                # all of `.ci/run`, and `publish`
    .ci/release.py 0.2.0 fmt publish    # only these sections

Changes nothing if the tree has changes of its own, if nothing is unreleased, or if a check fails. Commits and uploads nothing: it
prints what is published then, and by whom.
"""

import argparse
import datetime
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
NUMBER = r"(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)"
CRATE = rf'(?m)^relight-[a-z]+ = {{ path = "[^"]+", version = "{NUMBER}"'
LOCKED = rf'(?m)^name = "relight(?:-(?!fuzz)[a-z]+)?"\nversion = "{NUMBER}"'

# Every place of the number, as files and what stands around it there. The module for Go has none: its version is its tag.
PLACES = [
    ("Cargo.toml", rf'(?m)^\[workspace\.package\]\nversion = "{NUMBER}"'),
    ("Cargo.toml", CRATE),
    ("crates/*/Cargo.toml", CRATE),
    ("clients/rust/Cargo.toml", CRATE),
    ("Cargo.lock", LOCKED),
    ("fuzz/Cargo.lock", LOCKED),
    ("clients/python/pyproject.toml", rf'(?m)^version = "{NUMBER}"'),
    ("clients/typescript/package.json", rf'(?m)^  "version": "{NUMBER}"'),
    ("clients/typescript/package-lock.json", rf'"name": "@relight/client",\n +"version": "{NUMBER}"'),
    ("clients/java/pom.xml", rf"(?m)^  <version>{NUMBER}</version>"),
    ("helm/relight/Chart.yaml", rf"(?m)^(?:appVersion|version): {NUMBER}"),
    ("Dockerfile", rf"(?m)(?:^ARG VERSION=|relight:){NUMBER}"),
    (".ci/image.py", rf"relight-{NUMBER}\.oci\.tar"),
    ("docs/clients.md", rf"dev\.relight:relight-client:{NUMBER}"),
    ("docs/kubernetes.md", rf"/relight:{NUMBER}"),
    ("helm/relight/README.md", rf"relight:{NUMBER}"),
]
UNRELEASED = "## Unreleased\n"

PLAN = """
{version} is in the tree; the checks passed. It exists when these have been done:

A maintainer, by a commit and a tag:
    git commit --all --message 'chore(release): {version}'
    git tag --annotate v{version} --message 'Relight {version}'
    git push origin main v{version}

The workflow `release`, from the tag v{version}: binaries for amd64 and arm64 with their manual pages and completions, the image
ghcr.io/OWNER/relight:{version} for both, the chart, bills of materials, checksums, statements of provenance.

Owners of the names in the registries, from the folders and files that `.ci/run publish` left in target/packages:
    crates.io      cargo publish --locked -p relight-policy -p relight-proto -p relight-client
                   (once one is there: cargo semver-checks -p relight-policy -p relight-proto -p relight-client before it)
    PyPI           twine upload target/packages/python/*
    npm            npm publish --access public target/packages/npm/relight-client-{version}.tgz
    Maven Central  the repository target/packages/maven, signed; it asks for the project's address and developers, too
    Go             the module with its stubs, target/packages/go, as v{version} in the repository that relight.dev/api leads to

After that, one commit for what comes next: the contract that clients may rely on from here, and what the version leaves to the next.
    buf build --exclude-source-info -o proto/baseline.binpb
    tests/upgrade/leave.py BINARY tests/fixtures/{version}
"""


def places(root):
    """Each file with a number, and what finds it there."""
    for pattern, around in PLACES:
        files = sorted(root.glob(pattern))
        for file in files:
            # Not every crate needs another one of ours.
            if re.search(around, file.read_text(encoding="utf-8")):
                yield file, around
            elif len(files) == 1:
                sys.exit(f"release.py: no version in {file.relative_to(root)}, where one is expected")


def versions(root):
    """Every number in its place: the file, and the number."""
    return [(file, number) for file, around in places(root) for number in re.findall(around, file.read_text(encoding="utf-8"))]


def write(root, version):
    """Puts the number in every place."""

    def put(match):
        before, after = match.start(1) - match.start(), match.end(1) - match.start()
        return match[0][:before] + version + match[0][after:]

    for file, around in list(places(root)):
        file.write_text(re.sub(around, put, file.read_text(encoding="utf-8")), encoding="utf-8")


def name_unreleased(root, version, day):
    """What was unreleased is of this version from now on."""
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({day})\n", 1), encoding="utf-8")
    upgrading = root / "helm" / "relight" / "UPGRADING.md"
    text = upgrading.read_text(encoding="utf-8")
    upgrading.write_text(text.replace(UNRELEASED, f"## {version}\n", 1), encoding="utf-8")


def precedence(version):
    """Order of versions; a pre-release comes before its version."""
    numbers, _, pre = version.partition("-")
    return [int(part) for part in numbers.split(".")], not pre, pre


def refusal(root, version):
    """Why this version cannot be made, or None."""
    if not re.fullmatch(NUMBER, version):
        return f"{version} is no version such as 0.2.0"
    if git(root, "status", "--porcelain"):
        return "the tree has changes that are not committed"
    found = {number for _, number in versions(root)}
    if len(found) != 1:
        return f"the places disagree about the version of now: {', '.join(sorted(found))}"
    [now] = found
    if precedence(version) <= precedence(now):
        return f"{version} does not come after {now}"
    _, _, unreleased = (root / "CHANGELOG.md").read_text(encoding="utf-8").partition(UNRELEASED)
    if not unreleased.partition("\n## ")[0].strip():
        return "CHANGELOG.md has nothing under Unreleased"
    return None


def git(root, *words):
    return subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("sections", nargs="*", help="of `.ci/run`; all of them, and `publish`, without any")
    arguments = parser.parse_args()
    if why := refusal(ROOT, arguments.version):
        sys.exit(f"release.py: {why}; nothing was changed")
    write(ROOT, arguments.version)
    name_unreleased(ROOT, arguments.version, datetime.datetime.now(datetime.UTC).date())
    rounds = [arguments.sections] if arguments.sections else [[], ["publish"]]
    for sections in rounds:
        if subprocess.run([".ci/run", *sections], cwd=ROOT, check=False).returncode:
            git(ROOT, "checkout", "--", ".")
            sys.exit(f"release.py: a check fails at {arguments.version}; the tree is as it was")
    print(PLAN.format(version=arguments.version), end="")


if __name__ == "__main__":
    main()
