"""Builds the package: generates the stubs from proto/ into relight/v1 first.

`python setup.py build_py` does it in place, for tests and editors.
"""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent


def generate(protos: pathlib.Path, into: pathlib.Path) -> None:
    """Writes the stubs, with types, of every file of the contract."""
    import grpc_tools
    from grpc_tools import protoc

    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    files = sorted(str(path) for path in protos.glob("relight/v1/*.proto"))
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    into.mkdir(parents=True, exist_ok=True)
    if not files or protoc.main(["protoc", f"-I{protos}", f"-I{well_known}", *outputs, *files]) != 0:
        raise SystemExit(f"no stubs could be generated from {protos}")
    # Generated modules import `relight.v1`, which this makes a package.
    (into / "relight" / "v1" / "__init__.py").touch()


class BuildWithStubs(build_py):
    def run(self) -> None:
        protos = HERE.parents[1] / "proto"
        generate(protos, HERE)
        super().run()
        if not self.editable_mode:
            generate(protos, pathlib.Path(self.build_lib))


setup(cmdclass={"build_py": BuildWithStubs})
