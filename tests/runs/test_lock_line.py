from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from karat.goldens.provenance import LockEntry, Provenance
from karat.runs.record import LockLine

DATA = b"golden"
SHA = hashlib.sha256(DATA).hexdigest()
PLAIN = Provenance(source="record")
FORCED = Provenance(source="record", accepted="--accept-incomplete")


@pytest.mark.parametrize(
    ("entries", "origin", "known"),
    [
        ({}, PLAIN, True),  # nobody has begun a lock
        ({}, FORCED, False),
        ({"other": LockEntry(source="github", sha256=SHA)}, PLAIN, False),
        ({"g": LockEntry(source="github", sha256=SHA)}, PLAIN, True),
        ({"g": LockEntry(source="github", sha256="0")}, PLAIN, False),
        ({"g": LockEntry(source="github", sha256=SHA)}, FORCED, False),
        ({"g": LockEntry(source="record", sha256=SHA, accepted="x")}, FORCED, True),
        ({"g": LockEntry(source="record", sha256=SHA, metrics={"lr": FORCED})}, FORCED, True),
    ],
)
def test_what_the_lock_says_already(
    entries: dict[str, LockEntry],
    origin: Provenance,
    known: bool,  # noqa: FBT001
) -> None:
    line = LockLine(file=Path("goldens.lock.json"), path="g", entries=entries)
    assert line.knows(DATA, origin) is known
