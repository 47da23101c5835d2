"""The smallest inputs that once ended in a traceback: each is an answer now, or one of karat's own errors."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fuzz.readers import READERS, Reader

DEEP = b'{"":' * 3000
ANOTHER_TEXT = b'{"worker":"\xa2"'
COMMIT = b"commit\ntree %s\n%s\n\nx\n"


def database() -> bytes:
    """SQLite complains of its schema in words that are not UTF-8."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE a (b TEXT)")
        return db.serialize().replace(b"CREATE TABLE a", b"CREATE TABL\x92 a")


INDEX = b"=== /simple/wcwidth/ application/json\n"
FILES = INDEX + b'{"files": [{"filename": "wcwidth-%s.tar.gz", "requires-python": "%s", "upload-time": "%s"}]}'
FOUND = {
    "package index": [
        INDEX + b'{"":"\x80"',
        INDEX + b"[" * 3000,
        INDEX + b'{"files": []}\n=== /pypi/wcwidth/json application/json\n' + DEEP,
        b'=== /simple/wcwidth/ text/html\n<a href="http://[">',
        FILES % (b"1" * 5000, b"", b""),
        FILES % (b"1", b">" + b"1" * 5000, b""),
        FILES % (b"1", b"", b"9999-12-31T23:59:59Z"),
    ],
    "goldens.lock.json": [b'{"":' + b"[" * 3000],
    "samples": [DEEP],
    "index.json": [DEEP],
    "manifest.json": [DEEP, ANOTHER_TEXT],
    "manifest of an artifact": [DEEP],
    "claim of a capture": [DEEP, ANOTHER_TEXT],
    "journal of captures": [DEEP, ANOTHER_TEXT],
    "dtype": [b"[" * 3000, b'["\xed\xa0\x80"]'],
    "store file": [DEEP],
    "challenge and stored login of a registry": [DEEP],
    "CODEOWNERS": [b"/docs/deep/down/a[0--9].md @ann\n", b"/docs/deep/down/a[--9].md @ann\n"],
    "SQLite for changes": [database()],
    "journal of a hunt": [database()],
    "git repository": [
        COMMIT % (b"4b825dc642cb6eb9a060e54bf8d69288fbee4904", b"author a <a@b> 1 +0000\ncommitter a <a@b> " + when)
        for when in (b"", b"99999999999999 +0000", b"253402300800 +0000", b"1 +9999")
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_what_once_broke_a_reader(name: str, tmp_path: Path) -> None:
    reader = READERS[name](tmp_path)
    for data in FOUND[name]:
        assert ends_well(reader, data), data[:80]


def ends_well(reader: Reader, data: bytes) -> bool:
    """Whether it is read, or refused in karat's own words; anything else is raised."""
    try:
        reader.read(data)
    except reader.told as error:
        return bool(str(error))
    return True
