#!/usr/bin/env python3
"""Checks what is compiled into Relight against deny.toml: licences, sources, banned crates, second versions; and that each
dependency is used.

    python3 .ci/dependencies.py

Reads `cargo metadata` and nothing else: no tool to build, no network beyond what the build itself needed. Advisories are
the section `advisories` of `.ci/run`. Prints every finding, and fails if there is one.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def metadata(targets):
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    for target in targets:
        command += ["--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def compiled(graph):
    """The packages that are compiled for the binary or for its build, dev-dependencies left out; and who asks for each."""
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    parents, waiting = {graph["resolve"]["root"]: set()}, [graph["resolve"]["root"]]
    while waiting:
        current = waiting.pop()
        for dependency in nodes[current]["deps"]:
            if all(kind["kind"] == "dev" for kind in dependency["dep_kinds"]):
                continue
            if dependency["pkg"] not in parents:
                parents[dependency["pkg"]] = set()
                waiting.append(dependency["pkg"])
            parents[dependency["pkg"]].add(packages[current]["name"])
    return [(packages[found], sorted(asking)) for found, asking in parents.items()]


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met with the allowed licences alone."""
    # The old spelling of OR.
    tokens = re.findall(r"\(|\)|[^\s()/]+|/", expression)
    position = 0

    def peek():
        return tokens[position] if position < len(tokens) else None

    def take():
        nonlocal position
        position += 1
        return tokens[position - 1]

    def either():
        met = both()
        while peek() in ("OR", "/"):
            take()
            met = both() or met
        return met

    def both():
        met = one()
        while peek() == "AND":
            take()
            met = one() and met
        return met

    def one():
        if peek() == "(":
            take()
            met = either()
            if take() != ")":
                raise ValueError(expression)
            return met
        name = take()
        if peek() == "WITH":
            take()
            name = f"{name} WITH {take()}"
        return name in allowed

    met = either()
    if position != len(tokens):
        raise ValueError(expression)
    return met


def matches(spec, package):
    """Whether `name` or `name@version` means the package; a version may be given in part."""
    name, _, version = spec.partition("@")
    return package["name"] == name and (not version or f"{package['version']}.".startswith(f"{version}."))


def licences(packages, rules):
    for package, _ in packages:
        allowed = set(rules["allow"])
        for exception in rules.get("exceptions", []):
            if matches(exception["crate"], package):
                allowed |= set(exception["allow"])
        expression = package["license"]
        if not expression:
            yield f"licence: {package['name']} {package['version']} names none"
        elif not is_allowed(expression, allowed):
            yield f"licence: {package['name']} {package['version']} is {expression}, which deny.toml does not allow"


def bans(packages, rules):
    for package, asking in packages:
        for ban in rules.get("deny", []):
            if matches(ban["crate"], package):
                yield f"banned: {package['name']} (asked for by {', '.join(asking)}): {ban['reason']}"
    root = packages[0][0]
    for dependency in root["dependencies"]:
        if dependency["req"] == "*" and dependency["source"]:
            yield f"wildcard: {dependency['name']} has no version in Cargo.toml"
    versions = collections.defaultdict(list)
    for package, asking in packages:
        if not any(matches(skip["crate"], package) for skip in rules.get("skip", [])):
            versions[package["name"]].append(f"{package['version']} (asked for by {', '.join(asking)})")
    for name, found in sorted(versions.items()):
        if len(found) > 1:
            yield f"twice: {name} {' and '.join(sorted(found))}; use one, or add a skip with its reason to deny.toml"


def sources(packages, rules):
    allowed = {f"registry+{url}" for url in rules["allow-registry"]}
    for package, _ in packages[1:]:
        own = package["source"] is None and (ROOT / "crates" / package["name"]).is_dir()
        if not own and package["source"] not in allowed:
            yield f"source: {package['name']} comes from {package['source'] or 'a path'}"


def stale(packages, rules):
    for skip in rules["bans"].get("skip", []):
        name = skip["crate"].partition("@")[0]
        present = any(matches(skip["crate"], package) for package, _ in packages)
        if not present or sum(package["name"] == name for package, _ in packages) < 2:
            yield f"{skip['crate']} is not there twice any more: remove its skip from deny.toml"


# Named by generated code alone.
GENERATED = {"prost-types", "tonic-prost"}


def unused(root, manifest):
    """The dependencies that no source file names."""
    folders = ["src", "tests", "benches", "examples"]
    files = [root / "build.rs", *(file for folder in folders for file in (root / folder).rglob("*.rs"))]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    for table in ("dependencies", "build-dependencies", "dev-dependencies"):
        for name in manifest.get(table, {}):
            if name not in GENERATED and not re.search(rf"\b{name.replace('-', '_')}(::|;| as )", code):
                yield f"unused: {name} in [{table}] of {root.name} is named by no source file"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
    packages = compiled(metadata(rules["graph"]["targets"]))
    findings = [
        *licences(packages, rules["licenses"]),
        *bans(packages, rules["bans"]),
        *sources(packages, rules["sources"]),
        *(
            finding
            for manifest in (ROOT / "Cargo.toml", ROOT / "clients/rust/Cargo.toml", *ROOT.glob("crates/*/Cargo.toml"))
            for finding in unused(manifest.parent, tomllib.loads(manifest.read_text(encoding="utf-8")))
        ),
    ]
    for finding in findings:
        print(f"error: {finding}", file=sys.stderr)
    for finding in stale(packages, rules):
        print(f"warning: {finding}", file=sys.stderr)
    if findings:
        sys.exit(1)
    print(f"{len(packages)} packages are compiled into Relight; licences, sources and versions are as deny.toml says")


if __name__ == "__main__":
    main()
