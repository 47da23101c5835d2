"""A whole store, verified: whatever is damaged is found, and nothing else is."""

from __future__ import annotations

import random

import pytest

from factories.stores import Memory, Watched, cases, pushed
from karat.findings import CannotVerify
from karat.store import pins, references
from karat.store.backends import Backend, is_store
from karat.store.objects import EXPIRING, key_of
from karat.store.verify import verify_store


@pytest.mark.slow
def test_a_sound_store(backend: Backend) -> None:
    pushed(backend, cases(3))
    pushed(backend, cases(4), "models/other", pin="why")
    backend.put(key_of("a" * 64), b"of a push that was killed")
    steps: list[tuple[int, int]] = []
    told = verify_store(backend, progress=lambda *at: steps.append(at))
    assert (len(references.entries(backend)), told.cases) == (2, 7)
    assert told.orphans == 1
    assert [finding.kind for finding in told.findings] == ["bundle-damaged"]  # its name is no hash
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_to_any_file_is_found(folder: Backend, seed: int) -> None:
    dice = random.Random(seed)
    pushed(folder, cases(2), pin="why" if seed % 2 else None)
    keys = [one.key for one in folder.list("") if one.key != "karat-store.json"]
    victim = dice.choice(sorted(keys))
    data = folder.get(victim)
    kind = dice.choice(["flip", "cut", "html", "swap", "gone"])
    if kind == "flip":
        at = dice.randrange(len(data))
        data = data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
    elif kind == "cut":
        data = data[: dice.randrange(len(data))]
    elif kind == "html":
        data = b"<html>not found</html>"
    elif kind == "swap":
        data = folder.get(dice.choice([key for key in keys if folder.get(key) != data]))
    if kind == "gone":
        folder.delete([victim])
    else:
        folder.put(victim, data, replace=True)
    told = verify_store(folder)
    # A link says nothing but its name. A pin that is not there was never made.
    if victim.startswith("links/") or (
        kind == "gone" and (victim.startswith("pins/") or (victim.startswith(("expiring/", "kept/")) and seed % 2))
    ):
        return  # an object may lie in the other area as well
    assert told.findings, (victim, kind)
    assert all(finding.next for finding in told.findings)


def test_a_page_in_the_place_of_an_object_is_called_one(folder: Backend) -> None:
    pushed(folder, cases(1))
    victim = next(one.key for one in folder.list("expiring/"))
    folder.put(victim, b"<!DOCTYPE html><html></html>", replace=True)
    said = [finding.message for finding in verify_store(folder).findings]
    assert f"{victim}: expected this digest, found an HTML page" in said


@pytest.mark.slow
def test_every_bit_of_references_pins_and_the_mark_counts() -> None:
    folder = Memory()
    pushed(folder, cases(1), pin="why")
    for key in [one.key for one in folder.list("") if not one.key.startswith("expiring/") and "kept/" not in one.key]:
        data = folder.get(key)
        for bit in range(len(data) * 8):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            folder.put(key, bytes(changed), replace=True)
            assert is_noticed(folder, key), (key, bit)
        folder.put(key, data, replace=True)
    assert verify_store(folder).findings == ()


def is_noticed(backend: Backend, key: str) -> bool:
    try:
        if key.startswith("refs/"):
            return bool(references.read_each(backend, references.entries(backend), 1)[1])
        if key.startswith("pins/"):
            pins.read_all(backend)
        else:
            is_store(backend)
    except CannotVerify:
        return True
    return False


def test_a_reference_that_is_collected_meanwhile_is_no_damage(folder: Backend) -> None:
    pushed(folder, cases(1))

    def before(_number: int, verb: str, key: str) -> None:
        if verb == "get" and key.startswith("refs/"):
            references.forget(folder, references.entries(folder))

    assert verify_store(Watched(folder, before)).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["notes.txt", "expiring/x", "goldens/a/b", "refs.json", ".hidden"])
def test_what_lies_beside_the_drawers_is_named(backend: Backend, key: str) -> None:
    pushed(backend, cases(1))
    backend.put(key, b"?")
    (finding,) = verify_store(backend).findings
    assert (finding.kind, finding.path) == ("unexpected-file", key)


def test_strangers_are_named(folder: Backend) -> None:
    pushed(folder, cases(1))
    folder.put("refs/models/nightly/notes.txt", b"")
    folder.put(f"{EXPIRING}/sha256/ab/notes.txt", b"")
    told = verify_store(folder)
    assert [finding.kind for finding in told.findings] == ["unexpected-file"] * 2
