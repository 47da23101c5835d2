"""Findings: what a person should know, how grave it is, and what the exit code says about it.

Everyone may import this module; it imports no one. The error tree is here, too:

    KaratError              a message in karat's voice, and the next command
    ├── UsageError          exit 2: wrong arguments or configuration
    └── CannotVerify        exit 3: the answer could not be had (I/O, missing objects)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TypedDict, Unpack


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

    @property
    def next_command(self) -> str:
        """What to run, or to write; also the last line of a traceback, for those who called from Python."""
        return self._next_command

    @next_command.setter
    def next_command(self, command: str) -> None:
        self._next_command = command
        self.__notes__ = [f"next: {command}"]


class UsageError(KaratError):
    """Wrong usage or configuration."""

    exit_code = ExitCode.USAGE


class CannotVerify(KaratError):  # noqa: N818 - it is a state of knowledge, not a bug
    """The answer could not be had; neither a match nor a difference."""

    exit_code = ExitCode.CANNOT_VERIFY


# Every kind of finding, with the sentence that explains it. Docs and `--fail-on` use this table.
KINDS: Mapping[str, str] = {
    "accepted-incomplete": "an incomplete golden was taken because --accept-incomplete said so",
    "ambiguous-job": "an artifact could be of several jobs, and nothing tells which",
    "approval-missing": "an exemption, skip or widened tolerance was added or changed, and nobody who may approve it has",
    "approvers-changed": "the range changes who may approve; those of its base are asked",
    "archive-refused": "an archive holds what no artifact needs: traversal, links, bombs, colliding names",
    "artifact-corrupt": "an artifact's bytes do not match their checksum",
    "artifact-expired": "the server has deleted the artifact (HTTP 410)",
    "artifact-forbidden": "the token may not read the artifact (HTTP 401 or 403)",
    "artifact-missing": "an artifact that should be there is not",
    "artifact-not-zip": "an artifact is no zip archive",
    "artifact-truncated": "an artifact ends before its end",
    "baseline-stale": "the ratchet's list names an op that has evidence now, or that is gone",
    "bundle-damaged": "bytes of a bundle are not what its manifest, index or digest says",
    "caller-compared": "the test compared by its own means; karat saw no comparison",
    "cannot-read": "the bytes could not be had (permissions, missing object, I/O error)",
    "cannot-store": "a value has no form in a bundle, so the case was not captured",
    "capture-failed": "a case could not be written; its test is not to blame",
    "captured-twice": "two captures of one session have the same identity",
    "check-conditional": "a gradient check runs only where a condition holds, and elsewhere compares nothing",
    "check-empty": "a test that is named for a gradient check does nothing",
    "check-narrowed": "a gradient check leaves out inputs or modes",
    "claimed-twice": "two artifacts claim one golden, and they are not attempts of one job",
    "conflict-markers": "the file still holds merge-conflict markers",
    "crash-range": "neighbouring points crashed, or hung, in the same way",
    "dip": "a series left its level and came back to it",
    "dropped-placeholders": 'steps that only ever held "nan" (no sample) are gone; no value was lost',
    "dtype-changed": "a tensor has another dtype than expected",
    "duplicate-key": "one JSON object names a key twice; readers disagree on which wins",
    "duplicate-row": "two rows of a table have the same key",
    "empty": "the golden holds nothing to compare",
    "environment-changed": "two sides come from different machines or versions, which explains much and proves nothing",
    "evidence-damaged": "a journal of evidence is cut off or cannot be read",
    "evidence-foreign": "evidence comes from another commit or suite than the rest",
    "evidence-inconclusive": "a gradient check could neither pass nor fail",
    "evidence-missing": "an op test has no gradient evidence for a differentiable input",
    "evidence-vacuous": "a gradient check did not fail on corrupted gradients, so it is no evidence",
    "evidence-weak": "gradients were compared with their author's own, and with nothing else",
    "exempted": "a deviation that an exemption covers",
    "exemption-expired": "an exemption has passed its date",
    "exemption-invalid": "an entry of exemptions.toml lacks what it must say, or says what is not allowed",
    "exemption-stale": "an exemption is not needed any more",
    "exemption-untrue": "what an exemption claims is not so",
    "exemption-unused": "an exemption covered nothing, or what it expects to fail passes",
    "exemption-unverified": "whether what an exemption claims is so could not be seen",
    "flag-by-hand": "a test sets by hand what only a comparison may set",
    "format-only": "the bytes changed, the values did not",
    "from-unfinished-job": "the values come from a job that was cancelled or timed out",
    "gained-metric": "a metric or column that the old golden did not have",
    "gained-rows": "rows that the old table did not have",
    "gained-steps": "steps that the old golden did not have",
    "gained-tensor": "a tensor that was not expected",
    "gap": "neighbouring points of a series are not there, or could not be tried",
    "grad-check-missing": "an op test has no gradient check",
    "grad-failed": "a gradient is wrong",
    "history-odd": "the history of a repository is cut off, not one line, or dated out of order",
    "hunt-unfinished": "a hunt was stopped before it had its answer",
    "identity-conflict": "two names of one file disagree about which golden it is",
    "identity-incomplete": "names and manifest do not say which golden a file is",
    "improved": "a result is better than its golden by more than the tolerance",
    "incomplete-case": "a case lacks an input, an output, its program or its manifest",
    "inputs-changed": "two captures of one case had different inputs, so their outputs say little",
    "kept-edits": "an uncommitted version of a golden was replaced; git keeps a copy",
    "level-improved": "a series moved to a better level",
    "level-regressed": "a series moved to a worse level",
    "level-shifted": "a series moved to another level, and nobody said which is better",
    "lost-metric": "a metric or column of the old golden is gone",
    "lost-rows": "rows of the old table are gone",
    "lost-steps": "steps that had a value are gone",
    "lost-tensor": "an expected tensor is not there",
    "missing-actual": "the golden has a result that the run did not leave",
    "missing-golden": "the run left a result that has no golden",
    "missing-shard": "a table lacks a shard, so its rows would be dropped",
    "moved-golden": "the same bytes now live under another path",
    "new-golden": "there is no old side to compare with",
    "new-nan": "a value that was finite is now NaN or infinite",
    "new-op": "an operator of a registered namespace has neither evidence nor an exemption",
    "no-baseline": "the old side cannot be read, so nothing was compared",
    "no-usable-steps": "no shared step has two finite values and a non-zero old one",
    "non-finite-literal": "a NaN, Infinity or overflowing number stands where JSON allows none",
    "not-a-bundle": "what should be a bundle is something else",
    "not-a-golden": "a file looks like a golden and is not one of this project's",
    "not-refreshed": "it was asked for, and not done",
    "not-reproduced": "a change that a coarser stage found does not show between the ends of the finer one",
    "not-selected": "an op test, or a part of it, was not selected by this run, so nothing is said of it",
    "nothing-compared": "what was asked for matched nothing, so nothing was verified",
    "nothing-rebuilt": "two different points had the very same files under test",
    "number-as-text": "a number is stored as a string",
    "out-of-tolerance": "values differ from the golden by more than the rule allows",
    "outside-goldens": "the place a file would go is not under the golden paths",
    "plain-values": "values that are no tensors, which a command is not given as files and cannot give back",
    "points-missing": "points of a timeline cannot be had",
    "precision-lost": "the new values carry fewer digits than the old",
    "program-changed": "the program of a case is another file",
    "ragged-row": "a row has more or fewer fields than the header",
    "reference-missing": "the store has no such reference",
    "removed-golden": "the golden is gone from the new side",
    "replay-failed": "the program did not run, or left no outputs",
    "shape-changed": "a tensor has another shape than expected",
    "short-run": "a run ended before its expected last step",
    "skip-without-exemption": "a test skips its gradient check without a matching exemption",
    "skip-without-reason": "a test skips its gradient check and does not say why",
    "status-changed": "an outcome changed to or from one whose order is not known",
    "status-improved": "an outcome is better than before",
    "status-regressed": "an outcome is worse than before",
    "store-busy": "another process is collecting or pushing, and did not end in time",
    "structure-changed": "keys, lengths or nesting of a document changed",
    "sums-missing": "zips lie there without the SHA256SUMS that says which there should be",
    "superseded": "a newer attempt of the same job exists",
    "taken-by-extension": "no file matched the golden patterns, so every data file was taken",
    "tensor-mismatch": "elements of a tensor lie outside the tolerance",
    "text-changed": "a text in a document changed",
    "tolerance-override": "a gradient check is allowed more error than it needs",
    "tolerance-tightened": "the golden now allows less than it did",
    "tolerance-widened": "the golden now allows more than it did",
    "transfer-failed": "the network or the server failed, again and again",
    "truncated": "the run stopped before its last step",
    "type-changed": "a value changed its type",
    "unexpected-file": "a bundle holds a file that its manifest does not know",
    "unmatched-artifact": "no pattern reads an identity off an artifact's name",
    "unreadable": "the file cannot be understood as what it should be",
    "unresolved-base": "a base class could not be found, so what it holds is not known",
    "unsafe-type": "a class of the capture is not known here; its fields came back without it",
    "value-drift": "values moved",
}

# Kinds that mean "not verified": exit 3 unless something else failed outright.
UNVERIFIED = frozenset({
    "artifact-corrupt", "artifact-expired", "artifact-forbidden", "artifact-missing", "artifact-not-zip",
    "artifact-truncated", "cannot-read", "evidence-damaged", "evidence-foreign", "exemption-unverified",
    "hunt-unfinished", "no-baseline", "nothing-compared", "reference-missing", "store-busy", "transfer-failed",
})  # fmt: skip

# Kinds that, where they fail, say that a golden is not all there or cannot be trusted: refresh and record refuse it.
INCOMPLETE = frozenset({
    "claimed-twice", "conflict-markers", "duplicate-key", "duplicate-row", "empty", "lost-metric", "lost-rows",
    "lost-steps", "missing-shard", "new-nan", "no-baseline", "no-usable-steps", "nothing-compared", "ragged-row",
    "short-run", "structure-changed", "truncated", "type-changed", "unreadable",
})  # fmt: skip


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


class _Details(TypedDict, total=False):
    path: str
    metric: str | None
    where: str | None
    numbers: Mapping[str, float | int | str | None]
    next: str | None


def fail(kind: str, message: str, **details: Unpack[_Details]) -> Finding:
    """A finding that fails."""
    return Finding(kind=kind, severity=Severity.FAIL, message=message, **details)


def warn(kind: str, message: str, **details: Unpack[_Details]) -> Finding:
    """A finding that warns."""
    return Finding(kind=kind, severity=Severity.WARN, message=message, **details)


def info(kind: str, message: str, **details: Unpack[_Details]) -> Finding:
    """A finding that only informs."""
    return Finding(kind=kind, severity=Severity.INFO, message=message, **details)


def parse_fail_on(words: Iterable[str], where: str, next_command: str) -> tuple[str, ...]:
    """What makes exit code 1, from words that may hold commas.

    A severity replaces the default, `fail`; `none` switches it off; a kind is added to it, because
    whoever names a kind wants to be stricter.
    """
    split = [word.strip() for item in words for word in item.split(",")]
    severities = {severity.value for severity in Severity}
    for word in split:
        if word not in severities | KINDS.keys() | {"none"}:
            raise UsageError(
                f"{where}: expected fail, warn, info, none or a kind of finding, found {word!r}"
                f"{suggest(word, [*severities, *KINDS])}",
                next_command=next_command,
            )
    kinds = [word for word in split if word in KINDS]
    chosen = [word for word in split if word in severities]
    if not chosen and "none" not in split:
        chosen = ["fail"]
    return (*chosen, *kinds)


def suggest(word: str, known: Sequence[str]) -> str:
    """`; did you mean …?`, or nothing if no known word is close."""
    import difflib  # noqa: PLC0415 - only for mistakes

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def exit_code(findings: Iterable[Finding], *, fail_on: Iterable[str] = ("fail",)) -> ExitCode:
    """The exit code that a list of findings deserves.

    `fail_on` holds severities and kinds. A severity stands for itself and everything graver.
    A plain failure outranks "cannot verify": it is certain, the other is not.
    """
    wanted = set(fail_on)
    worst = max((s.rank for s in Severity if s.value in wanted), default=-1)
    unverified = False
    for finding in findings:
        if finding.kind in wanted:
            return ExitCode.FAIL
        if finding.kind in UNVERIFIED:
            unverified = True
        elif finding.severity.rank <= worst:
            return ExitCode.FAIL
    return ExitCode.CANNOT_VERIFY if unverified else ExitCode.OK
