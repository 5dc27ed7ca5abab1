"""What the tests of the chart share: the way to the renderer, and the chart's own example values."""

import pathlib
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "helm"))

EXAMPLES = sorted((ROOT / "helm" / "relight" / "ci").glob("*-values.yaml"))


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem.removesuffix("-values"))
def example(request):
    """Each of the values files in `helm/relight/ci`, in turn."""
    return yaml.safe_load(request.param.read_text(encoding="utf-8")) or {}


def values_of(name):
    return yaml.safe_load((ROOT / "helm" / "relight" / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def production():
    """The values of a deployment with everything that matters in production."""
    return values_of("production")


@pytest.fixture(scope="session")
def gateway():
    """The values of a deployment behind gateways and ingresses, with KEDA and cert-manager."""
    return values_of("gateway")
