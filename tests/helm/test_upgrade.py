"""Values that an earlier release of the chart took are taken by this one."""

import pathlib
import shutil

import helm_python
import kubernetes_validate
import pytest
import render
import yaml
from conftest import ROOT
from test_chart import CHART, CUSTOM, of_kind

VERSIONS = sorted(path.parent for path in (ROOT / "tests" / "fixtures").glob("*/chart-values.yaml"))
CASES = [(version, values) for version in VERSIONS for values in sorted((version / "values").glob("*-values.yaml"))]
NAMES = [f"{version.name}-{values.stem.removesuffix('-values')}" for version, values in CASES]
# What a selector of a Deployment may never change, or `helm upgrade` is refused.
SELECTOR = {
    "app.kubernetes.io/name": "relight",
    "app.kubernetes.io/instance": "relight",
    "app.kubernetes.io/component": "server",
}


@pytest.fixture(params=CASES, ids=NAMES)
def earlier(request):
    """The defaults of an earlier release, and values that somebody had with it."""
    version, values = request.param
    return version / "chart-values.yaml", yaml.safe_load(values.read_text(encoding="utf-8")) or {}


def test_values_of_the_earlier_release_make_valid_objects_with_the_same_selector(earlier):
    objects = render.objects(earlier[1])
    for item in (item for item in objects if item["kind"] not in CUSTOM):
        kubernetes_validate.validate(item, "1.37", strict=True)
    assert of_kind(objects, "Deployment")["spec"]["selector"]["matchLabels"] == SELECTOR


def test_reused_defaults_of_the_earlier_release_are_refused_with_the_way_that_works(earlier, tmp_path):
    defaults, values = earlier
    chart = pathlib.Path(shutil.copytree(CHART, tmp_path / "relight"))
    shutil.copy(defaults, chart / "values.yaml")
    with helm_python.Chart.load(chart) as loaded, pytest.raises(helm_python.HelmError, match="--reset-then-reuse-values"):
        loaded.render(values, name="relight", namespace="default")
