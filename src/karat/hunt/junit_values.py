"""JUnit values: seconds, failures and passes of the test cases of a report that a name matches.

Reports come from what is under test: entities and document types, which can blow up a parser, are refused.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Literal
from xml.parsers import expat

import msgspec

from karat.hunt.numbers_in_text import number


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test case of a report."""

    name: str
    classname: str
    seconds: float | None
    """None where the report does not say."""
    result: Literal["passed", "failed", "skipped"]

    def matches(self, glob: str) -> bool:
        """Whether its name is meant: alone, or behind its class as pytest or JUnit writes it."""
        names = (self.name, f"{self.classname}::{self.name}", f"{self.classname}.{self.name}")
        # Parameters stand in brackets, which a glob takes for something else: `test_a[1-2]`.
        return any(name == glob or fnmatch.fnmatchcase(name, glob) for name in names)


def cases(data: bytes) -> tuple[Case, ...]:
    """Every test case of a report; ValueError where it is none."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:  # an encoding that nobody knows
        raise ValueError(f"the report is no XML: {error}") from error
    return tuple(reader.found)


def value(
    found: Sequence[Case], glob: str, what: Literal["seconds", "failed", "passed"]
) -> float | None:
    """The number asked for, of the test cases that match; None where none was run, or none has a time."""
    run = [case for case in found if case.matches(glob) and case.result != "skipped"]
    if not run:
        return None
    if what == "seconds":
        times = [case.seconds for case in run if case.seconds is not None]
        return sum(times) if times else None
    return float(sum(case.result == what for case in run))


def _refuse(*_: object) -> None:
    raise ValueError("the report has a document type, which no JUnit report needs")


class _Reader:
    """Collects test cases from a parser's calls."""

    def __init__(self) -> None:
        self.found: list[Case] = []
        self._open: Mapping[str, str] | None = None
        self._result: Literal["passed", "failed", "skipped"] = "passed"

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        tag = _local(tag)
        if tag == "testcase":
            self._open, self._result = attributes, "passed"
        elif self._open is not None and tag in {"failure", "error"}:
            self._result = "failed"
        elif self._open is not None and tag == "skipped" and self._result == "passed":
            self._result = "skipped"

    def end(self, tag: str) -> None:
        if _local(tag) != "testcase" or self._open is None:
            return
        self.found.append(
            Case(
                name=self._open.get("name", ""),
                classname=self._open.get("classname", ""),
                seconds=_seconds(self._open.get("time", "")),
                result=self._result,
            )
        )
        self._open = None


def _seconds(text: str) -> float | None:
    found = number(text)
    return found if found is not None and isfinite(found) and found >= 0 else None


def _local(tag: str) -> str:
    """A tag without the prefix of its namespace."""
    return tag.rpartition(":")[2]
