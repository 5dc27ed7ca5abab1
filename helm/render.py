#!/usr/bin/env python3
"""Prints what the chart makes of a values file: the configuration file, or every manifest.

    python3 helm/render.py helm/relight/ci/production-values.yaml > relight.yaml
    python3 helm/render.py --manifests helm/relight/ci/production-values.yaml

With `--stand-ins DIRECTORY`, files that the configuration names (keys, certificates) are made there with a text that
means nothing, so that `relight config check` finds them outside a cluster; `--env` prints the variables that it refers
to, one `NAME=value` a line, with values that mean nothing. Needs the packages helm-python-sdk and PyYAML. Never talks to
a cluster.
"""

import argparse
import pathlib
import re
import sys

import helm_python
import yaml

CHART = pathlib.Path(__file__).resolve().parent / "relight"
MOUNTS = "/run/relight"


def render(values=None, *, name="relight", namespace="default"):
    """Every template with content, by its path in the chart."""
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(values or {}, name=name, namespace=namespace)
    return {path: text for path, text in rendered.items() if text.strip()}


def objects(values=None, **options):
    """Every object, in the order of the templates."""
    rendered = render(values, **options)
    documents = (
        document
        for path, text in sorted(rendered.items())
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
    )
    return [document for document in documents if document]


def config_text(values=None, **options):
    """The text of `relight.yaml`."""
    for item in objects(values, **options):
        if item["kind"] == "ConfigMap" and "relight.yaml" in item["data"]:
            return item["data"]["relight.yaml"]
    raise LookupError("these values take their configuration from a ConfigMap of their own (existingConfigMap)")


def with_stand_ins(text, directory):
    """The text with the files that it names made below `directory`."""
    directory = pathlib.Path(directory).resolve()
    for path in re.findall(rf"{MOUNTS}/[^\s\"']+", text):
        file = directory / pathlib.Path(path).relative_to(MOUNTS)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("stand-in\n", encoding="utf-8")
    return text.replace(MOUNTS, str(directory))


def required_variables(text):
    """The variables that the text refers to without a fallback."""
    return sorted(set(re.findall(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)\}", text)))


def stand_in(variable):
    """A value that means nothing, of the kind that the name promises."""
    return "postgres://stand-in:stand-in@localhost/stand-in" if variable.endswith("_URL") else "stand-in"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("values", nargs="?", help="a values file; without one, the chart's defaults")
    parser.add_argument("--name", default="relight", help="name of the release")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--stand-ins", metavar="DIRECTORY", help="make the files that are named, with no meaning in them")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--manifests", action="store_true", help="print every manifest")
    output.add_argument("--env", action="store_true", help="print the variables that the configuration needs")
    arguments = parser.parse_args()
    values = {}
    if arguments.values:
        values = yaml.safe_load(pathlib.Path(arguments.values).read_text(encoding="utf-8")) or {}
    options = {"name": arguments.name, "namespace": arguments.namespace}
    try:
        if arguments.manifests:
            yaml.safe_dump_all(objects(values, **options), sys.stdout, sort_keys=False)
            return
        text = config_text(values, **options)
    except (helm_python.HelmError, LookupError) as error:
        sys.exit(f"render.py: {error}")
    if arguments.env:
        print("".join(f"{name}={stand_in(name)}\n" for name in required_variables(text)), end="")
        return
    if arguments.stand_ins:
        text = with_stand_ins(text, arguments.stand_ins)
    print(text, end="" if text.endswith("\n") else "\n")


if __name__ == "__main__":
    main()
