from __future__ import annotations

import json

import pytest

from factories.commands import karat
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.goldens.provenance import record_path


def refreshed(repository: Repository) -> Repository:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    repository.write(golden_path("a"), golden_text(curves(2)))
    return repository


def test_it_writes_the_pr_text(repository: Repository) -> None:
    result = karat("summary", cwd=refreshed(repository).root)
    assert result.code == 0
    assert "## Summary" in result.out


def test_it_uses_the_record_of_the_last_refresh(repository: Repository) -> None:
    root = refreshed(repository).root
    path = record_path(root)
    path.parent.mkdir()
    record = {
        "schema": "karat.refresh/1",
        "run_id": "7",
        "scope": "only-failing",
        "command": "karat refresh --run-id 7",
        "not_refreshed": ["bert on dgx_h100: the artifact has expired"],
    }
    path.write_text(json.dumps(record), encoding="utf-8")
    text = karat("summary", cwd=root).out
    assert "for failing functional tests from GitHub workflow run `7`" in text
    assert "- Re-ran `karat refresh --run-id 7`." in text
    assert "the artifact has expired" in text


@pytest.mark.slow
def test_output_goes_to_a_file_and_formats_differ(repository: Repository) -> None:
    root = refreshed(repository).root
    assert karat("summary", "-o", "pr.md", "--format", "github", cwd=root).out == ""
    assert "## Summary" in (root / "pr.md").read_text(encoding="utf-8")


def test_nothing_compared_is_not_a_text_to_believe(repository: Repository) -> None:
    repository.write("README", "x")
    repository.commit()
    result = karat("summary", cwd=repository.root)
    assert result.code == 3
    assert "nothing" in result.out or "nothing" in result.err


def test_a_moved_golden_is_neither_new_nor_removed(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    repository.git("mv", golden_path("a").rsplit("/", 1)[0], golden_path("b").rsplit("/", 1)[0])
    text = karat("summary", cwd=repository.root).out
    assert "moved, with the same bytes" in text
    assert "without a baseline" not in text
    assert "removed" not in text
