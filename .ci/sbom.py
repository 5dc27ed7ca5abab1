#!/usr/bin/env python3
"""Writes what is compiled into Relight as a CycloneDX 1.6 document, checked against the schema of the format.

    .ci/sbom.py x86_64-unknown-linux-gnu > relight.cdx.json

Reads `cargo metadata` for the given target and `Cargo.lock` for the checksums. Build scripts and what they need are in it,
tests and what they need are not.
"""

import datetime
import subprocess
import sys
import tomllib
import uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from dependencies import ROOT, compiled, metadata
from packageurl import PackageURL


def component(package, checksums, kind=ComponentType.LIBRARY):
    key = (package["name"], package["version"])
    # The old spelling of OR.
    licence = package["license"].replace("/", " OR ") if package["license"] else None
    return Component(
        type=kind,
        name=package["name"],
        version=package["version"],
        bom_ref="@".join(key),
        purl=PackageURL("cargo", None, *key),
        licenses=[LicenseFactory().make_from_string(licence)] if licence else (),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksums[key])] if key in checksums else (),
    )


def bill(graph, lock):
    """The bill of materials of the root package, with who needs what."""
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}
    [(root, _), *others] = compiled(graph)
    bom = Bom()
    bom.metadata.component = component(root, checksums, ComponentType.APPLICATION)
    parts = {root["id"]: bom.metadata.component}
    for package, _ in others:
        parts[package["id"]] = component(package, checksums)
        bom.components.add(parts[package["id"]])
    for node in graph["resolve"]["nodes"]:
        if node["id"] in parts:
            needed = {parts[one["pkg"]] for one in node["deps"]
                      if one["pkg"] in parts and any(kind["kind"] != "dev" for kind in one["dep_kinds"])}  # fmt: skip
            bom.register_dependency(parts[node["id"]], needed)
    return bom


def document(bom):
    """The text; the same packages make the same text."""
    commit = subprocess.run(["git", "log", "-1", "--format=%H %ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    name, seconds = commit.stdout.split()
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"relight:{name}")
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        raise ValueError(fault)
    return text


def main():
    [target] = sys.argv[1:]
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    print(document(bill(metadata([target]), lock)))


if __name__ == "__main__":
    main()
