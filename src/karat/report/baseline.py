"""Baselines: what is known to be wrong, as a list that may get shorter, and longer only by hand.

One name per line, sorted, each line with its comma, the schema last, so that two branches merge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.system.command import Command
from karat.system.foreign.limits import TEXT, read_plain


class BaselineFile(msgspec.Struct, frozen=True):
    """The files of one schema."""

    schema: str
    holds: str  # What its names are, for people.

    def parse(self, data: bytes, path: str) -> tuple[str, ...]:
        try:
            found = json.loads(data)
            good = isinstance(found, dict) and found.get("schema") == self.schema
        except (ValueError, RecursionError):
            good = False
        if not good:
            text = f'expected {path} to be an object of {self.holds} that ends in "schema": "{self.schema}", found something else'
            raise UsageError(text, next_command=Command("git", "log", "-p", "--", path))
        return tuple(sorted(key for key in found if key != "schema"))

    def read(self, path: Path, shown: str | None = None) -> tuple[str, ...]:
        """The names in a file; none where there is no file."""
        try:
            return self.parse(read_plain(path, TEXT), shown or path.name)
        except FileNotFoundError:
            return ()
        except OSError as error:
            text = f"cannot read {path}: {error.strerror or error}"
            raise CannotVerify(text, next_command=Command("ls", "-l", str(path))) from error

    def merged(self, there: bytes | None, path: str, added: Iterable[str], gone: Iterable[str]) -> bytes:
        """A file as it stands with more names and without others; for `karat.goldens.saves.update`, which loses no save."""
        names = {*(() if there is None else self.parse(there, path)), *added}.difference(gone)
        lines = [f"{json.dumps(name)}: null,\n" for name in sorted(names)]
        return "".join(["{\n", *lines, f'"schema": "{self.schema}"\n', "}\n"]).encode()
