"""The way to the renderer, the chart and what lies beside these tests."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHART = ROOT / "helm" / "relight"
sys.path.insert(0, str(ROOT / "helm"))
