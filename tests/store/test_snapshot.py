"""Snapshots that are no snapshots, and snapshots that mean harm."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import jsonschema
import pytest

from factories.stores import cases
from karat.schemas import schema
from karat.store.backends import Backend, StoreProblem
from karat.store.objects import key_of
from karat.store.snapshot import load
from karat.store.upload import plan_upload

EMPTY = sha256(b"").hexdigest()


def stored(backend: Backend, document: Any) -> str:
    """A snapshot with a true digest, whatever it says."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    digest = sha256(data).hexdigest()
    backend.put(key_of(digest), data)
    return digest


def of(*names: str, **more: Any) -> dict[str, Any]:
    files = [{"name": name, "size": 0, "digest": EMPTY, **more} for name in names]
    return {"schema": "karat.snapshot/2", "size": 0, "packs": [], "cases": [{"path": "s/f/c", "files": files}]}


def test_what_was_planned_comes_back(folder: Backend) -> None:
    made = plan_upload(cases(20), 2)
    folder.put(key_of(made.digest), made.data)
    assert load(folder, made.digest) == made.snapshot
    jsonschema.validate(json.loads(made.data), schema("karat.snapshot/2"))


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "a/./b",
        "",
        "a\\b",
        "c:x",
        "a\0b",
        "a\nb",
        "nul",
        "COM1.txt",
        "com².x",
        "a/aux",
        "dot.",
        "space ",
        ".karat-pull.json",
        "x" * 256,
        "a/.karat/b",
        "\ud800",
        ".git/config",
        ".GIT",
        "a/GiT~1/config",
        "a/.g\u200cit/x",
        "\ufeff.git",
    ],
)
def test_names_that_no_folder_should_hold_are_refused(folder: Backend, name: str) -> None:
    digest = stored(folder, of("good", name))
    with pytest.raises(StoreProblem, match="expected a snapshot") as caught:
        load(folder, digest)
    assert caught.value.finding.kind == "bundle-damaged"


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("a", "a/b"), ("é", "e\u0301")])
def test_names_that_collide_are_refused(folder: Backend, names: tuple[str, ...]) -> None:
    with pytest.raises(StoreProblem):
        load(folder, stored(folder, of(*names)))


@pytest.mark.parametrize(
    "more",
    [
        {"pack": 0},
        {"pack": -1},
        {"size": -1},
        {"size": 1 << 40},
        {"digest": "../../x"},
        {"chunks": [{"digest": EMPTY, "size": 3}]},
        {"tail": {"stored": 0, "text": 0, "own": ""}},
        {"tail": {"stored": -1, "text": 0, "own": "x"}},
        {"chunks": [{"digest": "x", "size": 0}]},
        {"digest": EMPTY.upper()},
    ],
)
def test_objects_that_cannot_hold_a_file_are_refused(folder: Backend, more: dict[str, Any]) -> None:
    with pytest.raises(StoreProblem):
        load(folder, stored(folder, of("a", **more)))


def test_files_beyond_their_pack_are_refused(folder: Backend) -> None:
    document = of("a", pack=0, offset=5)
    document["packs"] = [{"digest": EMPTY, "size": 4}]
    with pytest.raises(StoreProblem):
        load(folder, stored(folder, document))


def test_packs_beyond_any_memory_are_refused(folder: Backend) -> None:
    document = of("a", pack=0)
    document["packs"] = [{"digest": EMPTY, "size": 1 << 40}]
    with pytest.raises(StoreProblem, match="an object called"):
        load(folder, stored(folder, document))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"<html>", b"\xff\xfe", b'{"schema": 1}', b'{"x":' + b"[" * 100_000]
)
def test_what_is_no_snapshot_is_said_to_be_none(folder: Backend, data: bytes) -> None:
    with pytest.raises(StoreProblem, match="expected a snapshot"):
        load(folder, stored(folder, data))


def test_another_version_is_refused(folder: Backend) -> None:
    with pytest.raises(StoreProblem, match=r"karat\.snapshot/3"):
        load(folder, stored(folder, {**of("a"), "schema": "karat.snapshot/3"}))
