"""An editor in a process of its own that saves a file again and again, and knows what each save of its own replaced."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from factories.repositories import Repository
from karat.system.files import _renameat2

# Both styles see the very bytes that they replace: the one exchanges names, the other reads what it then cuts off.
_EDITOR = """
import ctypes, json, os, pathlib, sys, time
path, style, times, pause, pattern, report = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
log = []
def rename_over(text):
    other = path + "~"
    pathlib.Path(other).write_text(text)
    if libc.renameat2(-100, os.fsencode(other), -100, os.fsencode(path), 2):
        os.rename(other, path)  # it was not there
        return ""
    found = pathlib.Path(other).read_text()
    os.unlink(other)
    return found
def truncate_write(text):
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as file:
        found = file.read()
        file.seek(0)
        file.truncate()
        time.sleep(float(pause) / 4)
        half = len(text) // 2
        file.write(text[:half])
        file.flush()
        time.sleep(float(pause) / 4)
        file.write(text[half:])
    return found
for number in range(int(times)):
    text = pattern.replace("NUMBER", str(number))
    log.append((text, locals()[style](text)))
    time.sleep(float(pause))
pathlib.Path(report).write_text(json.dumps(log))
"""
STYLES = ("rename_over", "truncate_write")


class Editor:
    """Saves `pattern` with NUMBER counting up."""

    def __init__(self, path: Path, style: str, *, times: int, pause: float, pattern: str) -> None:
        self.path = path
        self._report = path.with_name("editor.log")
        words = (str(path), style, str(times), str(pause), pattern, str(self._report))
        self.process = subprocess.Popen([sys.executable, "-c", _EDITOR, *words])

    @property
    def is_saving(self) -> bool:
        return self.process.poll() is None

    def lost(self, repository: Repository) -> tuple[int, list[str]]:
        """How many texts it saved, and those that are neither in the file nor with git, nor did it replace them itself."""
        assert self.process.wait() == 0
        log = json.loads(self._report.read_text())
        listed = repository.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        private = repository.root / ".git/karat/kept"
        there = {file.read_text() for file in private.iterdir()} if private.is_dir() else set()
        there |= {found for _, found in log} | {self.path.read_text() if self.path.exists() else ""}
        with_git = set(listed.split())
        return len(log), [text for text, _ in log if text not in there and _blob(text) not in with_git]


def _blob(text: str) -> str:
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@contextmanager
def editing(path: Path, style: str, *, times: int, pause: float, pattern: str) -> Iterator[Editor]:
    editor = Editor(path, style, times=times, pause=pause, pattern=pattern)
    try:
        yield editor
    finally:
        editor.process.kill()
        editor.process.wait()


def save_last_moment(monkeypatch: pytest.MonkeyPatch, file: Path, data: bytes) -> None:
    """Save a file once, after karat's last look at it and right before the names are exchanged."""
    due = [data]

    def save_then_rename(one: Path, other: Path, flags: int) -> bool:
        if other == file and due:
            file.write_bytes(due.pop())
        return _renameat2(one, other, flags)

    monkeypatch.setattr("karat.system.files._renameat2", save_then_rename)
