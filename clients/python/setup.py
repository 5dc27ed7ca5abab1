"""Builds the package: generates the stubs from proto/ into relight/v1 first.

`python setup.py build_py` does it in place, for tests and editors.
"""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent


def contract() -> pathlib.Path:
    """The folder of the contract: that of the source distribution, or of the repository."""
    packed = HERE / "proto"
    return packed if packed.is_dir() else HERE.parents[1] / "proto"


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
        protos = contract()
        generate(protos, HERE)
        super().run()
        if not self.editable_mode:
            generate(protos, pathlib.Path(self.build_lib))


class SourceWithContract(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        shutil.copytree(contract(), pathlib.Path(base_dir, "proto"), ignore=shutil.ignore_patterns("*.binpb"))


setup(cmdclass={"build_py": BuildWithStubs, "sdist": SourceWithContract})
