from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, strategies as st

from factories.commands import karat
from factories.repositories import Repository
from karat.findings import CannotVerify
from karat.goldens.provenance import (
    NAME,
    RECORD_SCHEMA,
    LockEntry,
    Provenance,
    RefreshRecord,
    place_of,
    read_lock,
    read_record,
    record_path,
    write_lock,
)


def test_no_record_is_none(repository: Repository) -> None:
    assert read_record(repository.root) is None


def test_a_record_is_read_from_gits_private_files(repository: Repository) -> None:
    path = record_path(repository.root)
    path.parent.mkdir()
    path.write_text(json.dumps({"schema": RECORD_SCHEMA, "run_id": "7", "scope": "all"}), encoding="utf-8")
    assert read_record(repository.root) == RefreshRecord(run_id="7", scope="all")
    assert ".git" in path.parts
    assert repository.git("status", "--porcelain") == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "karat.refresh/9"}'])
def test_a_record_that_cannot_be_understood_is_said(repository: Repository, text: str) -> None:
    path = record_path(repository.root)
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CannotVerify, match="expected"):
        read_record(repository.root)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def entry(run: str = "1") -> LockEntry:
    return LockEntry(source="github", run=run, attempt=2, sha256="0" * 64)


@pytest.mark.slow
@given(st.dictionaries(TEXT.filter(lambda t: t != "schema"), TEXT, min_size=1, max_size=8))
def test_what_is_written_is_read_back_sorted(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, str]) -> None:
    file = tmp_path_factory.mktemp("lock") / NAME
    entries = {path: entry(run) for path, run in runs.items()}
    assert write_lock(file, entries)
    assert read_lock(file) == entries
    assert list(json.loads(file.read_text())) == [*sorted(runs), "schema"]
    assert not write_lock(file, entries)


def test_it_fits_its_schema(tmp_path: Path) -> None:
    origin = Provenance(source="s3", job="x")
    write_lock(tmp_path / NAME, {"a.json": LockEntry(source="github", sha256="0" * 64, metrics={"lm loss": origin})})
    schema = json.loads(karat("schema", "karat.lock/1", cwd=tmp_path).out)
    jsonschema.validate(json.loads((tmp_path / NAME).read_text()), schema)


def test_two_branches_that_refresh_different_goldens_merge(repository: Repository) -> None:
    file = repository.root / NAME
    write_lock(file, {f"{c}.json": entry() for c in "bdfhj"})
    repository.commit()
    for branch, name in (("one", "a.json"), ("two", "k.json")):
        repository.git("checkout", "--quiet", "-b", branch, "main")
        write_lock(file, {**read_lock(file), name: entry("2")})
        repository.commit()
    repository.git("merge", "--quiet", "one", "-m", "both")
    assert sorted(read_lock(file)) == [f"{c}.json" for c in "abdfhjk"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"schema": "karat.lock/2"}', '<<<<<<< HEAD\n{"schema": "karat.lock/1"}']
)
def test_a_wreck_is_not_believed(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(CannotVerify, match=r"karat\.lock/1"):
        read_lock(tmp_path / NAME)


@pytest.mark.parametrize(
    ("path", "globs", "root"),
    [
        ("tests/cases/gpt/a/golden_values_x.json", ("tests/cases/**/golden_values_*.json",), "tests/cases"),
        ("a/golden.json", ("**/*golden*.json",), ""),
        ("b/c/t.csv", ("a/*.csv", "b/**/*.csv"), "b"),
        ("exact/file.csv", ("exact/file.csv",), "exact"),
    ],
)
def test_the_lock_stands_at_the_fixed_part_of_the_glob(path: str, globs: tuple[str, ...], root: str) -> None:
    lock, name = place_of(path, globs)
    assert lock.rpartition("/")[0] == root
    assert f"{root}/{name}".lstrip("/") == path
