"""The lock of a consumer: sorted lines that merge."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, strategies as st

from factories.editors import save_last_moment
from factories.repositories import Repository
from karat.findings import CannotVerify
from karat.schemas import schema
from karat.store.pins import Locked, read_lock, store_in, store_of, write_lock

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
locks = st.dictionaries(
    st.sampled_from(["models/nightly", "a", "b/c", "models/x"]),
    st.builds(Locked, store=st.text(max_size=20), digest=digests, date=st.just("")),
    min_size=1,  # where there is no lock, none without lines is made
)


@pytest.mark.slow
@given(locks)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, lines: dict[str, Locked]) -> None:
    file = tmp_path_factory.mktemp("lock") / "bundles.lock.json"
    assert write_lock(file, lines)
    assert not write_lock(file, lines)
    assert read_lock(file) == lines
    text = file.read_bytes().decode().split("\n")
    assert text[1:-3] == sorted(text[1:-3])
    assert len(text) == len(lines) + 4
    jsonschema.validate(json.loads(file.read_text()), schema("karat.bundle-lock/1"))


@pytest.mark.parametrize("inside", [True, False])
def test_a_line_that_is_saved_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inside: bool) -> None:
    root = Repository(tmp_path / "tree").root if inside else tmp_path
    file, line = root / "bundles.lock.json", Locked(store="./store", digest="0" * 64, date="2026-11-14")
    write_lock(file, {"a": line, "typed": line})
    typed = file.read_bytes()
    file.unlink()
    write_lock(file, {"a": line})
    save_last_moment(monkeypatch, file, typed)
    assert write_lock(file, {"pulled": line})
    assert set(read_lock(file)) == {"a", "typed", "pulled"}


def test_a_store_of_the_same_checkout_is_named_from_the_lock(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    lock = tmp_path / "repo" / "tests" / "bundles.lock.json"
    for store, written in (
        (tmp_path / "repo" / "store", "../store"),
        (tmp_path / "repo" / "tests" / "sub" / "store", "./sub/store"),
        (tmp_path / "elsewhere", str(tmp_path / "elsewhere")),
    ):
        assert store_in(lock, str(store)) == written
        assert Path(store_of(lock, written)).resolve() == store
    assert store_in(lock, "s3://bucket/x") == store_of(lock, "s3://bucket/x") == "s3://bucket/x"
    # Without a checkout, only what lies beside or below the lock moves along with it.
    assert store_in(tmp_path / "a" / "lock", str(tmp_path / "a" / "s")) == "./s"
    assert store_in(tmp_path / "a" / "lock", str(tmp_path / "s")) == str(tmp_path / "s")


def test_no_lock_is_an_empty_one(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected karat"),
        ("<<<<<<< HEAD\n{}", "merge-conflict markers"),
        ('{"schema": "karat.lock/1"}', r"karat\.lock/1"),
        ('{"a": {"store": "", "digest": "abc", "date": ""}, "schema": "karat.bundle-lock/1"}', "digest"),
        ('{"a": 1, "schema": "karat.bundle-lock/1"}', "expected"),
    ],
)
def test_a_lock_that_cannot_be_read_is_no_answer(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "lock").write_text(text)
    with pytest.raises(CannotVerify, match=said):
        read_lock(tmp_path / "lock")
    with pytest.raises(CannotVerify):
        read_lock(tmp_path)
