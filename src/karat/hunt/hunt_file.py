"""hunt.toml: what a hunt puts under test, how, and what it looks at.

In: a path. Out: `HuntSettings` in which every key is understood and everything fits together; what does not is an error that
names the file and the key, before anything is pulled or built.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from karat.config import in_our_words
from karat.findings import UsageError
from karat.hunt import agreement
from karat.hunt.settings import HuntSettings
from karat.hunt.words import EDIT

NAME = "hunt.toml"
_INDEX = re.compile(r"\[(\d+)\](\.?)")
_LONGEST = 1000
_TIMED = ("containers", "checkouts", "commits")


def read(path: Path) -> HuntSettings:
    """The settings of a hunt."""
    return parse(_text(path), path)


def parse(text: str, path: Path) -> HuntSettings:
    """The settings in a text; `path` is where it came from, for messages."""
    edit = f"edit {shlex.quote(str(path))}"
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"expected TOML in {path}, found: {error}", next_command=edit) from error
    return checked(raw, path)


def checked(raw: Mapping[str, Any], path: Path) -> HuntSettings:
    """The settings in tables, if they are some and fit together."""
    edit = f"edit {shlex.quote(str(path))}"
    try:
        _without_nul(raw, "")
        settings = msgspec.convert(_moments(raw), HuntSettings)
        agreement.check(settings)
    except msgspec.ValidationError as error:
        said = _cut(_counted(in_our_words(str(error), HuntSettings)))
        raise UsageError(f"{path.name}: {said}", next_command=edit) from error
    except UsageError as error:
        said = _cut(str(error))
        raise UsageError(f"{path.name}: {said}", next_command=_next(error, edit)) from error
    return settings


def _counted(text: str) -> str:
    """`probe.metrics[0].which` as a person counts: `probe.metrics number 1: which`."""
    return _INDEX.sub(lambda found: f" number {int(found[1]) + 1}{': ' if found[2] else ''}", text)


def _cut(text: str) -> str:
    """A sentence that a person reads to its end, whatever was quoted in it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _without_nul(found: Any, key: str) -> None:
    """Raises for a text that no program, file or address could be given."""
    if isinstance(found, str) and "\0" in found:
        raise UsageError(f"{key}: expected a text without NUL, found {found!r}", next_command=EDIT)
    if isinstance(found, Mapping):
        for name, each in found.items():
            _without_nul(name, key or "a key")
            _without_nul(each, f"{key}.{name}" if key else name)
    elif isinstance(found, list | tuple):
        for number, each in enumerate(found, 1):
            _without_nul(each, f"{key} number {number}")


def _next(error: UsageError, edit: str) -> str:
    """The file is what to edit, unless the mistake names something better."""
    return edit if error.next_command == EDIT else error.next_command


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"expected UTF-8 in {path}, found: {error}",
            next_command=f"file {shlex.quote(str(path))}",
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"expected a hunt in {path}, found no such file", next_command=_init(path)
        ) from error
    except OSError as error:
        raise UsageError(
            f"expected to read {path}, but: {error.strerror}",
            next_command=f"ls -l {shlex.quote(str(path))}",
        ) from error


def _moments(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with every day as its midnight and every time with a zone: the decoder takes moments only."""
    return {
        key: {name: _moment(value, f"{key}.{name}") for name, value in table.items()}
        if key in _TIMED and isinstance(table, dict)
        else table
        for key, table in raw.items()
    }


def _moment(value: Any, key: str) -> Any:
    if isinstance(value, str) and key.endswith((".start", ".end")):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError as error:
            raise UsageError(
                f"{key}: expected a day or a time such as 2023-08-24 or 2023-08-24T06:00:00Z, found {value!r}",
                next_command=EDIT,
            ) from error
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return value


def _init(path: Path) -> str:
    named = "" if str(path) == NAME else f" --output {shlex.quote(str(path))}"
    return f"karat hunt init{named}"
