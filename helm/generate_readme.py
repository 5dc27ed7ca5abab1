#!/usr/bin/env python3
"""Writes the table of values in the chart's README from the comments in values.yaml.

    python3 helm/generate_readme.py          # writes it
    python3 helm/generate_readme.py --check  # fails when it is stale

A comment that begins with `# --` belongs to the key below it. Every value is described by a comment of its own or by that
of a map around it; one that is not is an error. Needs the package PyYAML.
"""

import argparse
import json
import pathlib
import re
import sys

import yaml

CHART = pathlib.Path(__file__).resolve().parent / "relight"
BEGIN, END = "<!-- values: begin (python3 helm/generate_readme.py) -->", "<!-- values: end -->"
KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z0-9_]+):")


def comments(text):
    """The comment of every key that has one, by path."""
    found, stack, comment = {}, [], None
    for line in text.splitlines():
        stripped = line.strip()
        key = KEY.match(line)
        if stripped.startswith("# -- "):
            comment = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("#") and comment is not None:
            comment.append(stripped.lstrip("# "))
        elif key:
            depth = len(key["indent"]) // 2
            stack = [*stack[:depth], key["key"]]
            if comment is not None:
                found[".".join(stack)] = " ".join(comment)
            comment = None
        else:
            comment = None
    return found


def rows(values, described, path="", covered=False):
    """(path, type, default, description) of every row, in the order of the file."""
    for key, value in values.items():
        at = f"{path}.{key}" if path else key
        text = described.get(at)
        deeper = any(other.startswith(f"{at}.") for other in described)
        if text is not None:
            shown = "see values.yaml" if deeper else f"`{json.dumps(value, ensure_ascii=False)}`"
            yield at, value, shown, text
        if isinstance(value, dict) and value:
            yield from rows(value, described, at, covered or text is not None)
        elif text is None and not covered:
            sys.exit(f"generate_readme.py: {at} in values.yaml has no `# --` comment")


def type_of(value):
    names = {bool: "bool", int: "int", str: "string", list: "list", dict: "map", type(None): "int"}
    return names[type(value)]


def table():
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines = ["| value | type | default | what it does |", "| --- | --- | --- | --- |"]
    for path, value, default, description in rows(yaml.safe_load(text), comments(text)):
        default = default.replace("|", "\\|")
        description = description.replace("|", "\\|")
        lines.append(f"| `{path}` | {type_of(value)} | {default} | {description} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the table is stale")
    arguments = parser.parse_args()
    readme = CHART / "README.md"
    before = readme.read_text(encoding="utf-8")
    head, rest = before.split(BEGIN)
    tail = rest.split(END)[1]
    after = f"{head}{BEGIN}\n{table()}\n{END}{tail}"
    if before == after:
        return
    if arguments.check:
        sys.exit("helm/relight/README.md is stale: run python3 helm/generate_readme.py and commit it")
    readme.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
