"""Placing: a recorded golden, its samples and its line in the lock, onto the disk.

Samples first, the golden then, the lock last, each file whole or not at all. Whoever is killed in
between finds on the next try what stands already, and does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.goldens.atomic import write_bytes
from karat.goldens.lock import Provenance
from karat.runs.lock_line import LockLine
from karat.runs.samples import Samples, render_samples, samples_path


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written, and for whom."""

    golden: Path
    data: bytes
    old: bytes | None
    """What stands there now; None: nothing."""
    samples: Samples | None
    line: LockLine | None
    origin: Provenance
    metrics: Sequence[str]
    """The metrics that were taken, where it was not all of them."""

    def write(self) -> tuple[str, bool]:
        """What became of the golden's file, and whether the lock has a new line."""
        if self.samples is not None:
            _put(samples_path(self.golden), render_samples(self.samples))
        same = self.data == self.old
        if not same:
            _put(self.golden, self.data)
        elif self.line is None or self.line.knows(self.data, self.origin):
            return "unchanged", False
        noted = self.line is not None and self.line.note(self.data, self.origin, self.metrics)
        return ("unchanged" if same else "written"), noted


def bytes_of(path: Path) -> bytes | None:
    """The bytes of a golden; None where there is none yet."""
    if path.is_symlink():  # asked before anything is written, the samples too
        raise UsageError(
            f"expected a plain file at {path}, found a symbolic link; record what it points at",
            next_command=f"readlink -f {quote(str(path))}",
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotVerify(
            f"expected to read the golden {path}, but: {error.strerror}",
            next_command=f"ls -ld {quote(str(path))}",
        ) from error


def _put(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {path}, but: {error.strerror or error}",
            next_command=f"ls -ld {quote(str(path.parent))}",
        ) from error
