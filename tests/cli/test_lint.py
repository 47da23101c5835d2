"""`karat lint` as it is typed, and as pre-commit runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from conftest import framework
from factories.commands import karat_here
from factories.refreshed import ONE, TWO, noisy
from factories.repositories import Repository, golden_text
from karat.schemas import schema

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(repository: Repository) -> Repository:
    """One golden with a conflict, one whole."""
    repository.write(ONE, f"<<<<<<< ours\n{golden_text(noisy(1))}")
    repository.write(TWO, golden_text(noisy(2)))
    repository.commit()
    return repository


def test_reports_agree(project: Repository) -> None:
    words = ("--json", "l.json", "--junit", "l.xml")
    found = karat_here("lint", *words, cwd=project.root)
    assert found.code == 1
    assert "\n\nfail conflict-markers  1: " in found.out
    assert found.out.startswith("2 goldens: 1 fail  ")
    assert found.err == "next: git mergetool\n"
    data = json.loads((project.root / "l.json").read_bytes())
    jsonschema.validate(data, schema("karat.lint/1"))
    assert (data["goldens"], data["exit_code"], data["findings"][0]["kind"]) == ([ONE, TWO], 1, "conflict-markers")
    suite = ET.parse(project.root / "l.xml").getroot()  # noqa: S314 - ours
    assert suite.attrib == {"name": "karat lint", "tests": "2", "failures": "1", "errors": "0", "skipped": "0"}
    assert [(c.get("name"), len(c)) for c in suite.iter("testcase")] == [(ONE, 1), (TWO, 0)]


def test_in_github_actions_it_annotates(project: Repository) -> None:
    place = project.root / "summary.md"
    found = karat_here("lint", "-q", cwd=project.root, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(place))
    assert found.out.startswith(f"::error file={ONE},line=1,title=karat lint%3A conflict-markers::expected a golden")
    text = place.read_text()
    assert text.startswith("## karat lint: 2 goldens: 1 fail\n\n- **fail** conflict-markers `")


def test_names_are_seen_from_where_the_user_is(project: Repository) -> None:
    folder = project.root / TWO
    found = karat_here("lint", folder.name, cwd=folder.parent)
    assert (found.code, found.out) == (0, "1 golden: nothing to object to\n")
    wrong = karat_here("lint", "..", "--json", "-", cwd=folder.parent)
    assert (wrong.code, json.loads(wrong.out)["exit_code"]) == (2, 2)


def test_the_hooks_of_pre_commit(project: Repository, tmp_path: Path) -> None:
    framework("pre_commit")
    hooks = Repository(tmp_path / "hooks")
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    # Installing karat anew would take its own dependencies from an index: this environment's karat is the one to try.
    hooks.write(".pre-commit-hooks.yaml", text.replace("language: python", "language: system"))
    rev = hooks.commit()
    config = f"repos: [{{repo: {hooks.root}, rev: {rev}, hooks: [{{id: karat-lint}}, {{id: karat-diff}}]}}]\n"
    project.write(".pre-commit-config.yaml", config)
    project.commit()
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "karat").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m karat "$@"\n')
    (bin_ / "karat").chmod(0o755)
    path = f"{bin_}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(tmp_path / "cache"), "PYTHONWARNINGS": ""}
    run = [sys.executable, "-m", "pre_commit", "run"]

    def committed() -> tuple[int, str]:
        done = subprocess.run(run, cwd=project.root, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert shutil.which("git")
    project.write(TWO, golden_text(noisy(3)))
    project.git("add", TWO)
    code, out = committed()
    assert (code, "karat lint" in out, "Failed" in out) == (0, True, False), out
    project.write(ONE, golden_text(noisy(1), stop=13))
    project.git("add", ONE)
    code, out = committed()
    assert code == 1
    assert out.count("Failed") == 2
    assert "truncated" in out
