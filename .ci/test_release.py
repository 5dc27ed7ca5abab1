"""What the making of a version promises."""

import json
import shutil
import subprocess
import sys

import pytest
import release
import yaml

NEXT = "7.8.9"


def git(folder, *words):
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def clone(tmp_path):
    """A repository with the files of this one, one commit, and something under Unreleased."""
    for name in git(release.ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        source = release.ROOT / name
        if source.is_file():
            into = tmp_path / name
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(release.UNRELEASED, f"{release.UNRELEASED}\n- Something new.\n", 1))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def run(clone, *words):
    command = [sys.executable, str(clone / ".ci" / "release.py"), *words]
    return subprocess.run(command, cwd=clone, check=False, capture_output=True, text=True, timeout=300)


def test_every_place_has_the_version_of_the_workspace():
    found = release.versions(release.ROOT)
    assert len(found) > 30
    assert len({number for _, number in found}) == 1, found


def test_a_version_is_everywhere_and_nothing_else_changes(clone):
    before = {number for _, number in release.versions(clone)}
    changed = [path for path, _ in release.versions(clone)]
    made = run(clone, NEXT, "toolchain")
    assert made.returncode == 0, made.stdout + made.stderr
    assert {number for _, number in release.versions(clone)} == {NEXT}
    names = {str(path.relative_to(clone)) for path in changed} | {"CHANGELOG.md", "helm/relight/UPGRADING.md"}
    assert set(git(clone, "diff", "--name-only").split()) <= names
    # One line for one line, but for the changelogs.
    for name in sorted(names - {"CHANGELOG.md", "helm/relight/UPGRADING.md"}):
        [was] = before
        shown = git(clone, "show", f"HEAD:{name}").splitlines()
        is_now = (clone / name).read_text().splitlines()
        differing = [(old, new) for old, new in zip(shown, is_now, strict=True) if old != new]
        assert differing and all(old.replace(was, NEXT) == new for old, new in differing), name
    chart = yaml.safe_load((clone / "helm/relight/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == NEXT
    changelog = (clone / "CHANGELOG.md").read_text()
    assert changelog.index("## Unreleased") < changelog.index(f"## {NEXT} (") < changelog.index("- Something new.")
    assert "## Unreleased" not in (clone / "helm/relight/UPGRADING.md").read_text()
    for channel in ("crates.io", "PyPI", "npm", "Maven", "Go", f"git tag --annotate v{NEXT}", "The workflow `release`"):
        assert channel in made.stdout


def test_no_file_of_a_package_names_the_version_in_a_place_that_is_not_known(clone):
    [now] = {number for _, number in release.versions(clone)}
    release.write(clone, NEXT)
    # Other packages may have the same number; these files are only ours.
    for folder in ("helm", "clients/python", "clients/java", "clients/typescript/src", "clients/rust", "proto"):
        for file in (path for path in (clone / folder).rglob("*") if path.is_file()):
            for line in file.read_text(errors="ignore").splitlines():
                # What a version changed stands under its number for good.
                assert line == f"## {now}" or now not in line, f"{file.relative_to(clone)}: {line}"


@pytest.mark.parametrize(
    ("version", "why"),
    [("0.0.9", "does not come after"), ("two", "is no version"), ("0.1", "is no version"), ("v1.0.0", "is no version")],
)
def test_what_is_no_next_version_is_refused(clone, version, why):
    refused = run(clone, version, "toolchain")
    assert refused.returncode == 1
    assert why in refused.stderr
    assert git(clone, "status", "--porcelain") == ""


def test_a_tree_with_changes_is_refused_and_keeps_them(clone):
    readme = clone / "README.md"
    readme.write_text("mine\n")
    refused = run(clone, NEXT, "toolchain")
    assert refused.returncode == 1
    assert "not committed" in refused.stderr
    assert readme.read_text() == "mine\n"
    assert git(clone, "diff", "--name-only").split() == ["README.md"]


def test_a_failing_check_leaves_the_tree_as_it_was(clone):
    source = clone / "src" / "main.rs"
    source.write_text(source.read_text() + "fn   unformatted( ) { }\n")
    git(clone, "commit", "--quiet", "--all", "--message", "unformatted")
    refused = run(clone, NEXT, "fmt")
    assert refused.returncode == 1
    assert "a check fails" in refused.stderr
    assert git(clone, "status", "--porcelain") == ""


def test_a_version_with_nothing_new_is_refused(clone):
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(release.UNRELEASED, f"{release.UNRELEASED}\n## 0.1.9 (2026-01-01)\n", 1))
    git(clone, "commit", "--quiet", "--all", "--message", "nothing new")
    refused = run(clone, NEXT, "toolchain")
    assert refused.returncode == 1
    assert "nothing under Unreleased" in refused.stderr


def test_versions_have_the_order_of_semantic_versioning():
    ordered = ["0.1.0", "0.1.10", "0.2.0-rc.1", "0.2.0", "0.10.0", "1.0.0"]
    assert sorted(reversed(ordered), key=release.precedence) == ordered


def test_three_crates_are_published_and_no_other():
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    graph = json.loads(subprocess.run(command, cwd=release.ROOT, check=True, stdout=subprocess.PIPE).stdout)
    published = {package["name"] for package in graph["packages"] if package["publish"] != []}
    assert published == {"relight-policy", "relight-proto", "relight-client"}
    assert all(f"-p {name}" in release.PLAN for name in published)


def test_the_plan_names_every_package_that_is_made():
    made = (release.ROOT / "clients" / "harness" / "pack.sh").read_text()
    for folder in ("python", "npm", "maven", "go"):
        assert f"target/packages/{folder}" in release.PLAN
        assert f"$out/{folder}" in made, folder
    assert "cargo semver-checks" in release.PLAN
