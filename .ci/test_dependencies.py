"""What the check of dependencies promises."""

import pytest
from dependencies import bans, is_allowed, licences, matches, unused


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("GPL-3.0 AND MIT", False),
        ("MIT/GPL-2.0", True),
        ("Apache-2.0 / GPL-2.0", True),
        ("(MIT OR GPL-3.0) AND GPL-2.0", False),
        ("(MIT OR GPL-3.0) AND Apache-2.0", True),
        ("GPL-3.0 OR GPL-2.0 AND MIT", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("Apache-2.0 WITH LLVM-exception OR MIT", True),
    ],
)
def test_an_expression_is_met_with_allowed_licences_or_not_at_all(expression, allowed):
    assert is_allowed(expression, {"MIT", "Apache-2.0"}) is allowed


def test_a_dependency_that_no_source_file_names_is_unused(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text("use one_crate::Thing;\n")
    manifest = {"dependencies": {"one-crate": "1", "other": "1"}, "dev-dependencies": {"third": "1"}}
    found = list(unused(tmp_path, manifest))
    assert [finding.split()[1] for finding in found] == ["other", "third"]


def test_a_version_may_be_given_in_part():
    package = {"name": "syn", "version": "2.0.11"}
    assert matches("syn", package)
    assert matches("syn@2", package)
    assert matches("syn@2.0.11", package)
    assert not matches("syn@2.0.1", package)
    assert not matches("syn@20", package)


def package(name, version, licence="MIT"):
    return {"name": name, "version": version, "license": licence, "dependencies": []}


def test_a_second_version_needs_a_reason():
    packages = [(package("root", "1.0.0"), []), (package("a", "1.0.0"), ["x"]), (package("a", "2.0.0"), ["y"])]
    (finding,) = bans(packages, {})
    assert finding.startswith("twice: a 1.0.0 (asked for by x) and 2.0.0 (asked for by y)")
    assert list(bans(packages, {"skip": [{"crate": "a@1", "reason": "x"}]})) == []


def test_an_exception_is_for_its_own_crate_only():
    rules = {"allow": ["MIT"], "exceptions": [{"crate": "a", "allow": ["CC0-1.0"]}]}
    packages = [(package("a", "1.0.0", "CC0-1.0"), []), (package("b", "1.0.0", "CC0-1.0"), [])]
    (finding,) = licences(packages, rules)
    assert "b 1.0.0" in finding
