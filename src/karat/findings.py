"""Findings: what a person should know, how grave it is, and what the exit code says about it.

Everyone may import this module; it imports no one. The error tree is here, too:

    KaratError              a message in karat's voice, and the next command
    ├── UsageError          exit 2: wrong arguments or configuration
    └── CannotVerify        exit 3: the answer could not be had (I/O, missing objects)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Severity(StrEnum):
    """How grave a finding is."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the gravest, so that sorting puts it first."""
        return _RANKS[self]


_RANKS = {Severity.FAIL: 0, Severity.WARN: 1, Severity.INFO: 2}


class ExitCode(IntEnum):
    """The same four codes for every verb."""

    OK = 0
    FAIL = 1
    USAGE = 2
    CANNOT_VERIFY = 3


class KaratError(Exception):
    """An error a person can act on: what was expected, what was found, and the next command."""

    exit_code = ExitCode.FAIL

    def __init__(self, message: str, *, next_command: str = "karat --help") -> None:
        super().__init__(message)
        self.next_command = next_command


class UsageError(KaratError):
    """Wrong usage or configuration."""

    exit_code = ExitCode.USAGE


class CannotVerify(KaratError):  # noqa: N818 - it is a state of knowledge, not a bug
    """The answer could not be had; neither a match nor a difference."""

    exit_code = ExitCode.CANNOT_VERIFY


# Every kind of finding, with the sentence that explains it. Docs and `--fail-on` use this table.
KINDS: Mapping[str, str] = {
    "cannot-read": "the bytes could not be had (permissions, missing object, I/O error)",
    "conflict-markers": "the file still holds merge-conflict markers",
    "duplicate-key": "one JSON object names a key twice; readers disagree on which wins",
    "duplicate-row": "two rows of a table have the same key",
    "dropped-placeholders": 'steps that only ever held "nan" (no sample) are gone; no value was lost',
    "empty": "the golden holds nothing to compare",
    "format-only": "the bytes changed, the values did not",
    "gained-metric": "a metric or column that the old golden did not have",
    "gained-rows": "rows that the old table did not have",
    "gained-steps": "steps that the old golden did not have",
    "lost-metric": "a metric or column of the old golden is gone",
    "lost-rows": "rows of the old table are gone",
    "lost-steps": "steps that had a value are gone",
    "moved-golden": "the same bytes now live under another path",
    "new-golden": "there is no old side to compare with",
    "new-nan": "a value that was finite is now NaN or infinite",
    "no-usable-steps": "no shared step has two finite values and a non-zero old one",
    "non-finite-literal": "a NaN, Infinity or overflowing number stands where JSON allows none",
    "nothing-compared": "what was asked for matched nothing, so nothing was verified",
    "number-as-text": "a number is stored as a string",
    "precision-lost": "the new values carry fewer digits than the old",
    "ragged-row": "a row has more or fewer fields than the header",
    "removed-golden": "the golden is gone from the new side",
    "status-changed": "an outcome changed to or from one whose order is not known",
    "status-improved": "an outcome is better than before",
    "status-regressed": "an outcome is worse than before",
    "structure-changed": "keys, lengths or nesting of a document changed",
    "text-changed": "a text in a document changed",
    "tolerance-widened": "the golden now allows more than it did",
    "truncated": "the run stopped before its last step",
    "type-changed": "a value changed its type",
    "unreadable": "the file cannot be understood as a golden",
    "value-drift": "values moved",
}

# Kinds that mean "not verified": exit 3 unless something else failed outright.
UNVERIFIED = frozenset({"cannot-read", "nothing-compared"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a person should know."""

    kind: str
    severity: Severity
    message: str
    path: str = ""
    metric: str | None = None
    where: str | None = None
    """Line, JSON path or row key inside the file."""
    numbers: Mapping[str, float | int | str | None] = field(default_factory=dict)
    next: str | None = None
    """The exact command to run next."""


def exit_code(findings: Iterable[Finding], *, fail_on: Iterable[str] = ("fail",)) -> ExitCode:
    """The exit code that a list of findings deserves.

    `fail_on` holds severities and kinds. A severity stands for itself and everything graver.
    A plain failure outranks "cannot verify": it is certain, the other is not.
    """
    wanted = set(fail_on)
    ranks = [Severity(item).rank for item in wanted if item in {s.value for s in Severity}]
    worst = max(ranks, default=-1)
    unverified = False
    for finding in findings:
        if finding.kind in UNVERIFIED:
            unverified = True
        elif finding.severity.rank <= worst or finding.kind in wanted:
            return ExitCode.FAIL
    return ExitCode.CANNOT_VERIFY if unverified else ExitCode.OK
