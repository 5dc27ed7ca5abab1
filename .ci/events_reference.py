#!/usr/bin/env python3
"""Writes docs/events.md from the contract, or says with `--check` that it is stale.

    .ci/events_reference.py [--check]

Needs grpcio-tools. The text of each event and field is its comment in proto/relight/v1.
"""

import importlib.resources
import pathlib
import re
import sys
import tempfile

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "events.md"
HEAD = """\
# Events

What `WatchRecovery`, `relight watch` and the log tell, in the words of the contract. Made from `proto/relight/v1` by
`.ci/events_reference.py`; `.ci/run contract` finds it stale. An event never holds a prompt, a response or a key. A filter and the
log name an event in lower case, as below; in Protobuf it is a member of `RecoveryEvent.body`.
"""
KINDS = {value: name.removeprefix("TYPE_").lower() for name, value in descriptor_pb2.FieldDescriptorProto.Type.items()}


def descriptors():
    """The messages of the contract by their name, each with its comment and those of its fields."""
    files = sorted(str(path) for path in (ROOT / "proto" / "relight" / "v1").glob("*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set.bin")
        words = [f"-I{ROOT / 'proto'}", f"-I{well_known}", "--include_source_info", f"--descriptor_set_out={out}"]
        if protoc.main(["protoc", *words, *files]) != 0:
            sys.exit("the contract cannot be read")
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    messages = {}
    for file in found.file:
        comments = {tuple(place.path): " ".join(place.leading_comments.split()) for place in file.source_code_info.location}
        for index, message in enumerate(file.message_type):
            fields = [(field, comments.get((4, index, 2, number), "")) for number, field in enumerate(message.field)]
            messages[message.name] = (comments.get((4, index), ""), fields)
    return messages


def kind(field):
    name = field.type_name.rsplit(".", 1)[-1] or KINDS[field.type]
    if name == "LabelsEntry":
        return "map of strings"
    return f"list of {name}" if field.label == field.LABEL_REPEATED else name


def table(fields):
    yield "| Field | Type | What it is |"
    yield "| --- | --- | --- |"
    for field, comment in fields:
        text = comment.replace("|", "\\|")
        yield f"| `{field.name}` | {kind(field)} | {text} |"


def page():
    messages = descriptors()
    comment, fields = messages["RecoveryEvent"]
    lines = [HEAD, "## The envelope", "", comment, ""]
    lines += table([(field, text) for field, text in fields if not field.HasField("oneof_index")])
    for field, _ in fields:
        if field.HasField("oneof_index"):
            text, members = messages[field.type_name.rsplit(".", 1)[-1]]
            lines += ["", f"## `{re.sub('_event$', '', field.name)}`", "", text]
            if members:
                lines += ["", *table(members)]
    return "\n".join(lines) + "\n"


def main():
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/events.md is stale: run .ci/events_reference.py")


if __name__ == "__main__":
    main()
