"""A snapshot as a place: files are read without being pulled, and every object is verified first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from factories.captured import capture_many
from factories.stores import Watched, case, cases, contents, pushed
from karat.bundles.cases import cases as cases_of
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place
from karat.findings import UsageError
from karat.store.backends import Backend, StoreProblem, is_store_folder
from karat.store.objects import EXPIRING, every
from karat.store.place import SnapshotPlace, open_snapshot, open_word, split_word
from karat.store.push import PushOptions, gather, objections, push
from karat.tensors.tensor import Damaged


def opened(backend: Backend) -> SnapshotPlace:
    return open_snapshot(backend, "models/nightly", "store:models/nightly")


def test_files_and_their_bytes(backend: Backend) -> None:
    some = cases(4)
    pushed(backend, some)
    place = opened(backend)
    expected = contents(some)
    assert dict(place.files()) == {path: len(data) for path, data in sorted(expected.items())}
    assert list(place.files()) == sorted(expected)
    assert {path: place.read(path) for path in place.files()} == expected
    assert (place.kind, place.name, place.findings()) == ("store", "store:models/nightly", ())
    assert place.extent(next(iter(expected))).seekable == (not backend.url.startswith("s3"))
    place.close()


def test_any_range_of_a_file_in_chunks(folder: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.store.upload.CHUNK", 1 << 17)
    monkeypatch.setattr("karat.store.place._MAPPED", 1 << 10)
    some = [case(1, files={"program/p": 1_000_003, "a": 700, "b": 9})]
    pushed(folder, some)
    place, dice = opened(folder), random.Random(1)
    for path, data in contents(some).items():
        reader = place.extent(path).open()
        for _ in range(60):
            start = dice.randrange(len(data))
            buffer = bytearray(dice.randrange(len(data) - start + 1))
            reader.read_into(start, memoryview(buffer))
            assert buffer == data[start : start + len(buffer)]
        with pytest.raises(Damaged, match="in all"):
            reader.read_into(len(data), memoryview(bytearray(1)))
        reader.close()


@pytest.mark.slow
def test_each_damaged_object_is_noticed_before_a_byte_of_it_is_used(backend: Backend) -> None:
    some = cases(2)
    digest = pushed(backend, some).digest
    for one in list(every(backend, EXPIRING, 1)):
        if one.key.endswith(digest):
            continue
        whole = backend.get(one.key)
        backend.put(one.key, whole[:-1] + bytes([whole[-1] ^ 1]), replace=True)
        place, bad = opened(backend), 0
        for path, data in contents(some).items():
            try:
                assert place.read(path) == data
            except Damaged as error:
                assert one.key[-64:] in str(error)  # noqa: PT017 - those that can be read are, too
                bad += 1
        assert bad
        backend.put(one.key, whole, replace=True)


def test_unknown_and_large_files(folder: Backend) -> None:
    pushed(folder, cases(1))
    place = opened(folder)
    with pytest.raises(Damaged, match="found no such file"):
        place.extent("nothing")
    with pytest.raises(Damaged, match="expected at most 10 bytes"):
        place.read(next(iter(place.files())), 10)


@pytest.mark.slow
def test_from_a_bucket_manifests_come_in_packs(bucket: Backend) -> None:
    pushed(bucket, cases(120))
    counted = Watched(bucket, lambda *_: None)
    place = SnapshotPlace(counted, opened(bucket).digest, "x")
    before = counted.count
    for path in place.files():
        if path.endswith("manifest.json"):
            place.read(path)
    assert counted.count - before < 120 / 4


@pytest.mark.slow
def test_what_does_not_fit_in_memory_is_let_go(bucket: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.store.place._ROOM", 150_000)
    some = cases(6)
    pushed(bucket, some)
    place = opened(bucket)
    for _ in range(2):
        assert {path: place.read(path) for path in place.files()} == contents(some)
        assert place._held <= 150_000


@pytest.mark.slow
def test_captured_cases_are_pushed_verified_and_found_again(backend: Backend, tmp_path: Path) -> None:
    capture_many(tmp_path / "captures", 3)
    source = open_place(tmp_path / "captures")
    assert objections(source) == ()
    told = push(backend, gather(source).values(), "models/nightly", PushOptions())
    assert told.cases == 6
    place = opened(backend)
    verified = verify_place(place)
    assert (verified.cases, verified.findings) == (6, ())
    found = {one.path: one for one in cases_of(place)}
    for one in cases_of(source):
        again = found[one.path]
        assert again.manifest == one.manifest
        assert str(again.expected().value) == str(one.expected().value)


def test_damaged_and_incomplete_cases_are_objected_to(tmp_path: Path) -> None:
    capture_many(tmp_path, 1)
    program = next(tmp_path.rglob("model.pte"))
    program.write_bytes(b"another program")
    assert "bundle-damaged" in {finding.kind for finding in objections(open_place(tmp_path))}
    program.unlink()
    assert "incomplete-case" in {finding.kind for finding in objections(open_place(tmp_path))}


def test_words(folder: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed(folder, cases(1))
    monkeypatch.setenv("KARAT_STORE", "/from/environment")
    assert split_word("store:models/nightly") == ("/from/environment", "models/nightly")
    assert split_word("store:a@2026-11-14", "said") == ("said", "a@2026-11-14")
    assert split_word("s3://bucket/x#a/b@sha256:0") == ("s3://bucket/x", "a/b@sha256:0")
    assert split_word(f"{folder.url}#models/nightly") == (folder.url, "models/nightly")
    assert split_word(str(tmp_path)) is None
    assert split_word("odd#name.zip") is None
    with pytest.raises(UsageError, match="expected URL#REFERENCE"):
        split_word("s3://bucket/x")
    assert is_store_folder(Path(folder.url))
    place = open_word(f"{folder.url}#models/nightly")
    assert len(place.files()) == 4
    assert len(open_word("store:models/nightly", store=folder.url).files()) == 4
    with pytest.raises(StoreProblem, match="no such reference"):
        open_word(f"{folder.url}#models/nigthly")


def test_a_path_that_looks_like_a_word_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture_many(tmp_path / "store:captures", 1)
    monkeypatch.chdir(tmp_path)
    assert open_word("store:captures").kind == "folder"
    assert open_word(tmp_path / "store:captures").kind == "folder"
