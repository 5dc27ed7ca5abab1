"""Writes the schema of the configuration into that of the chart's values: `relight config schema | generate_schema.py`.

So a wrong key or value fails when the chart is rendered, and not in a pod. Kept as the chart needs it: what the chart
writes itself is left to it, every value may be a `${ENV}` reference, and settings of earlier versions are taken.
"""

import json
import pathlib
import sys

SCHEMA = pathlib.Path(__file__).parent / "relight" / "values.schema.json"
REFERENCE = {"type": "string", "pattern": r"\$\{"}
# Words for people, which values.schema.json has no use for.
WORDS = ("title", "description", "format", "default", "x-needs-restart", "writeOnly")


def taken(node):
    """What the chart takes where Relight takes this."""
    if isinstance(node, list):
        return [taken(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": node["$ref"].replace("#/$defs/", "#/definitions/")}
    node = {
        # Of several texts one may be a reference, which all of them take.
        "anyOf" if key == "oneOf" else key: {name: taken(member) for name, member in value.items()} if key == "properties" else taken(value)
        for key, value in node.items()
        if key not in WORDS or not isinstance(value, str | int | float | bool | list | dict)
    }
    kinds = node.get("type")
    scalar = {"integer", "number", "boolean"} & set([kinds] if isinstance(kinds, str) else kinds or [])
    return {"anyOf": [node, REFERENCE]} if scalar or "enum" in node or "const" in node else node


def type_of(schema, sections):
    """The name of the type that a section has; `*` is any name, `[]` any element."""
    name, node = "Config", schema
    for section in sections:
        node = {"*": lambda: node["additionalProperties"], "[]": lambda: node["items"]}.get(section, lambda: node["properties"][section])()
        for choice in [node, *node.get("anyOf", [])]:
            if "$ref" in choice:
                name = choice["$ref"].rsplit("/", 1)[-1]
                node = schema["$defs"][name]
                break
    return name


def definitions(schema):
    """Every type of the configuration, the file itself as `Config`."""
    types = {"Config": schema} | schema["$defs"]
    result = {}
    for name, node in types.items():
        node = {key: value for key, value in node.items() if key not in ("$defs", "$schema", "x-retired")}
        result[name] = taken(node)
    # Read by Relight with a warning.
    for path in schema["x-retired"]:
        *sections, old = path.split(".")
        result[type_of(schema, sections)]["properties"][old] = {}
    # It was a switch once.
    result["StreamMode"]["anyOf"].append({"type": "boolean"})
    # The chart writes addresses and certificates, and rejects values for them.
    for name in ("listen", "admin_listen", "tls"):
        result["ServerConfig"]["properties"][name] = {}
    result["OpenaiFrontConfig"]["properties"]["listen"] = {}
    return result


def with_configuration(values, schema):
    """The schema of the values with that of the configuration."""
    values = {key: value for key, value in values.items() if key != "definitions"}
    values["properties"] = values["properties"] | {"config": {"$ref": "#/definitions/Config"}}
    return values | {"definitions": definitions(schema)}


def text(values):
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text(with_configuration(json.loads(SCHEMA.read_text("utf-8")), json.load(sys.stdin))), "utf-8")
