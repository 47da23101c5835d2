"""A repository to review: two goldens that drift, a truncated one, a new one, and somebody's staged notes."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from factories.repositories import Repository, curves, golden_path, golden_text, moved
from karat.api import diff_options
from karat.config import load
from karat.goldens.provenance import NAME, LockEntry, write_lock
from karat.reviews.review import Review
from karat.system.hashes import sha256_hex

A, B, C, D = (golden_path(case) for case in ("a", "b b", "ü", "d"))
LOSS, ZEROS = "lm loss", "num-zeros"


def text(seed: int, **factors: float) -> str:
    """A golden whose metrics are so many times as large."""
    factor = {name: factors.get(name.replace(" ", "_").replace("-", "_"), 1.0) for name in curves(seed)}
    return golden_text({name: moved(curve, factor[name]) for name, curve in curves(seed).items()})


def changed(repository: Repository) -> Repository:
    """A and B drift in two metrics, C was cut off, D is new; the lock knows A and B."""
    for n, path in enumerate((A, B, C)):
        repository.write(path, text(n))
    lines = {
        path: LockEntry(source="github", run="1", sha256=sha256_hex(text(n).encode())) for n, path in enumerate((A, B))
    }
    write_lock(repository.root / NAME, lines)
    repository.write("notes.txt", "one\n")
    repository.commit()
    repository.write("notes.txt", "two\n")
    repository.git("add", "notes.txt")
    for n, path in enumerate((A, B)):
        new = text(n, lm_loss=1.002, num_zeros=1.02)
        repository.write(path, new)
        write_lock(repository.root / NAME, {path: LockEntry(source="github", run="2", sha256=sha256_hex(new.encode()))})
    repository.write(C, golden_text(curves(2), stop=13))
    repository.write(D, text(3))
    return repository


def opened(tree: Repository) -> Review:
    """Its review."""
    return Review(tree.root, config := load(tree.root), diff_options(config, provenance=True))


def everything(tree: Repository) -> dict[str, bytes]:
    """Every file with its mode, and the index."""
    found = {
        f"{path.relative_to(tree.root)} {path.stat().st_mode:o}": path.read_bytes()
        for path in tree.root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(tree.root).parts
    }
    return {**found, "index": tree.git("ls-files", "--stage").encode(), "status": repr(status(tree)).encode()}


def status(tree: Repository) -> dict[str, str]:
    """Path → git's two letters."""
    lines = tree.git("status", "--porcelain", "-z", "--untracked-files=all").split("\0")
    return {line[3:]: line[:2] for line in lines if line}


class Screen:
    """A person at a terminal who types `karat review`."""

    def __init__(self, root: Path, *words: str, columns: int = 80, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        clean = {k: v for k, v in os.environ.items() if k not in {"CI", "NO_COLOR", "DISPLAY", "BROWSER"}}
        size = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "28"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "karat", "review", *words],
            cwd=root,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**clean, **size, **environment},
        )
        os.close(theirs)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def until(self, words: str, seconds: float = 20) -> str:
        """What has come since the last time, once these words are in it."""
        end = time.monotonic() + seconds
        come = ""
        while time.monotonic() < end and words not in come:
            if not select.select([self._ours], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                part = b""
            if not part:
                break
            self.seen += part.decode("utf-8", "replace")
            come = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)
        assert words in come, come
        self.seen = ""
        return come

    def press(self, keys: str, words: str) -> str:
        """Press some keys and wait for words."""
        os.write(self._ours, keys.encode())
        return self.until(words)
