"""Provenance of both sides, from the locks that each side has."""

from __future__ import annotations

import json
from hashlib import sha256

import jsonschema
import pytest

from factories.commands import karat
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.goldens.provenance import LockEntry, encode_lock
from karat.schemas import schema

LOCK = "tests/functional_tests/test_cases/goldens.lock.json"


def lock(repository: Repository, run: str, *cases: str) -> None:
    """A lock that speaks of these goldens as they stand."""
    entries = {}
    for case in cases:
        path = golden_path(case)
        digest = sha256((repository.root / path).read_bytes()).hexdigest()
        name = path.removeprefix(LOCK.rpartition("/")[0] + "/")
        entries[name] = LockEntry(source="github", run=run, commit="c0ffee" * 6, date=f"2026-0{run}-01", sha256=digest)
    repository.write(LOCK, encode_lock(entries).decode())


@pytest.fixture
def two(repository: Repository) -> Repository:
    """Two commits, each with goldens of its own run; the second one edited `b` by hand."""
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    for run, seed in (("1", 1), ("2", 5)):
        for n, case in enumerate(("a", "b")):
            repository.write(golden_path(case), golden_text(curves(seed + n)))
        lock(repository, run, "a", "b")
        if run == "2":
            repository.write(golden_path("b"), golden_text(curves(9)))
        repository.commit()
    return repository


def provenance(repository: Repository, *words: str) -> dict[str, dict[str, str | None]]:
    document = json.loads(karat("diff", *words, "--json", "-", cwd=repository.root).out)
    jsonschema.Draft202012Validator(schema("karat.diff/1")).validate(document)
    return {
        file["path"].split("/")[-2]: {side: line and line["run"] for side, line in file["provenance"].items()}
        for file in document["files"]
    }


def test_two_revisions_tell_the_runs_of_both(two: Repository) -> None:
    assert provenance(two, "HEAD~1", "HEAD") == {"a": {"old": "1", "new": "2"}, "b": {"old": "1", "new": None}}


@pytest.mark.slow
def test_summary_and_page_tell_them_too(two: Repository) -> None:
    text = karat("summary", "HEAD~1", "HEAD", cwd=two.root).out
    assert "- Before: GitHub workflow run `1`, commit `c0ffeec0ffee`, 2026-01-01: 2 goldens." in text
    assert "2026-02-01: 1 golden; unknown, or edited since: 1 golden." in text
    page = karat("diff", "HEAD~1", "HEAD", "--html", "-", cwd=two.root).out
    assert "<b>old</b> from GitHub workflow run 1, commit c0ffeec0ffee, 2026-01-01: 2 goldens</span>" in page
    assert '"new values":"GitHub workflow run 2, 2026-02-01"' in page


@pytest.mark.slow
def test_the_working_tree_and_folders_have_locks_as_well(two: Repository) -> None:
    two.write(golden_path("a"), golden_text(curves(30)))
    lock(two, "3", "a")
    assert provenance(two) == {"a": {"old": "2", "new": "3"}}
    two.git("worktree", "add", "-q", "../before", "HEAD~1")
    assert provenance(two, "../before", ".")["a"] == {"old": "1", "new": "3"}


@pytest.mark.slow
def test_a_lock_that_cannot_be_read_costs_its_provenance_and_nothing_else(two: Repository) -> None:
    two.write(golden_path("a"), golden_text(curves(30)))
    two.write(LOCK, "<<<<<<< ours\n")
    result = karat("diff", "--json", "-", cwd=two.root)
    document = json.loads(result.out)
    (finding,) = document["findings"]
    assert (finding["kind"], finding["severity"], finding["path"]) == ("unreadable", "warn", LOCK)
    assert "merge-conflict markers" in finding["message"]
    assert document["files"][0]["provenance"] == {"old": document["files"][0]["provenance"]["old"], "new": None}
    assert "merge-conflict markers" in karat("summary", cwd=two.root).out


def test_without_a_lock_nothing_is_said(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    repository.write(golden_path("a"), golden_text(curves(2)))
    assert provenance(repository) == {"a": {"old": None, "new": None}}
    assert "Before:" not in karat("summary", cwd=repository.root).out
