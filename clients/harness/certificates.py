"""A certificate for `localhost`, made by openssl for one test."""

from __future__ import annotations

import pathlib
import subprocess


def make(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The certificate, which is its own authority, and its key."""
    certificate, key = folder / "ca.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", str(certificate)]
    subprocess.run([*command, "-keyout", str(key)], check=True, capture_output=True)
    return certificate, key
