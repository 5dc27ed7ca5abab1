"""A certificate for `localhost` and the authority that signed it, made by openssl for one test."""

from __future__ import annotations

import pathlib
import subprocess


def authority(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The certificate of an authority and its key."""
    certificate, key = folder / "ca.pem", folder / "ca-key.pem"
    _request(certificate, key, "-subj", "/CN=authority")
    return certificate, key


def make(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """The certificate of an authority, one that it signed, and the key of that."""
    signer, signer_key = authority(folder)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    # An authority as the certificate of a server is refused by some libraries.
    leaf = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE")
    _request(certificate, key, *leaf, "-CA", str(signer), "-CAkey", str(signer_key))
    return signer, certificate, key


def _request(certificate: pathlib.Path, key: pathlib.Path, *more: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run([*command, "-out", str(certificate), "-keyout", str(key), *more], check=True, capture_output=True)
