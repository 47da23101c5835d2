"""Findings: what a person should know, how grave it is, and what the exit code says about it.

Everyone may import this module; it imports no one. The error tree is here, too:

    KaratError              a message in karat's voice, and the next command
    ├── UsageError          exit 2: wrong arguments or configuration
    └── CannotVerify        exit 3: the answer could not be had (I/O, missing objects)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import partial
from typing import Literal, NamedTuple

import msgspec


class Ranked(StrEnum):
    """Words from the gravest on."""

    rank: int  # 0 for the gravest, so that sorting puts it first.

    def __init__(self, _word: str) -> None:
        self.rank = len(type(self).__members__)


class Severity(Ranked):
    """How grave a finding is."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"


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
        self.advice = command  # as it was given: a Command remembers its words, and its options can be changed
        self._next_command = str(command)  # a report encodes plain text
        self.__notes__ = [f"next: {command}"]


class UsageError(KaratError):
    """Wrong usage or configuration."""

    exit_code = ExitCode.USAGE


class CannotVerify(KaratError):  # noqa: N818 - it is a state of knowledge, not a bug
    """The answer could not be had; neither a match nor a difference."""

    exit_code = ExitCode.CANNOT_VERIFY


class Kind(NamedTuple):
    """What is true of every finding of one kind."""

    meaning: str
    unverified: bool = False
    """The answer could not be had: exit 3, unless something else failed outright."""
    condemns: Literal["", "incomplete", "unfit"] = ""
    """A golden with a `fail` finding of this kind is not to be taken: something of it is missing or not to be
    trusted (its verdict is `incomplete`), or it is complete and of no use (another type, no golden at all)."""


# Every kind of finding, with the sentence that explains it. Docs and `--fail-on` use this table.
# fmt: off
KINDS: Mapping[str, Kind] = {
    "accepted-incomplete": Kind("an incomplete golden was taken because of --accept-incomplete"),
    "ambiguous-job": Kind("an artifact could belong to several jobs, and there is no way to tell which"),
    "approval-missing": Kind("an exemption, a skip or a wider tolerance was added or changed, and none of its approvers has approved it"),
    "approvers-changed": Kind("the range changes the list of approvers; the approvers at its base still apply"),
    "archive-refused": Kind("an archive is unsafe: path traversal, links, a zip bomb or colliding names"),
    "artifact-corrupt": Kind("an artifact's bytes do not match their checksum", unverified=True),
    "artifact-expired": Kind("the server has deleted the artifact (HTTP 410)", unverified=True),
    "artifact-forbidden": Kind("the token may not read the artifact (HTTP 401 or 403)", unverified=True),
    "artifact-missing": Kind("an expected artifact is missing", unverified=True),
    "artifact-not-zip": Kind("an artifact is not a zip archive", unverified=True),
    "artifact-truncated": Kind("an artifact's archive is cut short", unverified=True),
    "baseline-stale": Kind("the baseline lists something that is no longer wrong, or no longer exists"),
    "bundle-damaged": Kind("bytes of a bundle do not match its manifest, index or digest"),
    "caller-compared": Kind("the test did its own comparison; karat saw none"),
    "cannot-read": Kind("the bytes could not be read (permissions, missing object, I/O error)", unverified=True),
    "cannot-store": Kind("a value cannot be stored in a bundle, so the case was not captured"),
    "capture-failed": Kind("a case could not be written; its test is not to blame"),
    "captured-twice": Kind("two captures of one session have the same identity"),
    "check-conditional": Kind("a gradient check runs only under a condition, and otherwise compares nothing"),
    "check-empty": Kind("a test named after a gradient check does nothing"),
    "check-narrowed": Kind("a gradient check leaves out inputs, outputs or modes"),
    "claimed-twice": Kind("two files claim one golden, and they are not attempts of one job", condemns="unfit"),
    "conflict-markers": Kind("the file still holds merge-conflict markers", condemns="incomplete"),
    "crash-range": Kind("neighbouring points crashed or hung in the same way"),
    "copied-golden": Kind("goldens of different cases are the same, byte for byte"),
    "dip": Kind("a series left its level and later returned to it"),
    "dropped-placeholders": Kind('steps that only ever held "nan" (no sample) are gone; no value was lost'),
    "dtype-changed": Kind("a tensor has a different dtype than expected"),
    "duplicate-key": Kind("one JSON object names a key twice; readers disagree on which wins", condemns="incomplete"),
    "duplicate-row": Kind("two rows of a table have the same key, or two shards disagree about a row", condemns="incomplete"),
    "empty": Kind("the golden holds nothing to compare", condemns="incomplete"),
    "environment-changed": Kind("the two sides come from different machines or versions, which may explain a difference but does not prove the cause"),
    "evidence-damaged": Kind("a journal of evidence is cut off, was edited, or cannot be read", unverified=True),
    "evidence-foreign": Kind("evidence comes from another commit, suite or version of the sources", unverified=True),
    "evidence-inconclusive": Kind("a gradient check could neither pass nor fail"),
    "evidence-missing": Kind("an op test has no gradient evidence for a differentiable input"),
    "evidence-vacuous": Kind("a gradient check did not fail on corrupted gradients, so it is no evidence"),
    "evidence-weak": Kind("gradients were compared only with those that the author of the op wrote, without some laws, or at a single element"),
    "exempted": Kind("a deviation that an exemption covers"),
    "exemption-expired": Kind("an exemption is past its expiry date"),
    "exemption-invalid": Kind("an entry of exemptions.toml lacks a required key or has an invalid value"),
    "exemption-stale": Kind("an exemption is no longer needed"),
    "exemption-untrue": Kind("an exemption's claim is false"),
    "exemption-unused": Kind("an exemption covered nothing, or an expected failure passed"),
    "exemption-unverified": Kind("an exemption's claim could not be checked", unverified=True),
    "fault-unverified": Kind("a derivative looks wrong, but no script shows it without karat"),
    "flag-by-hand": Kind("a test sets a flag by hand that only a comparison may set"),
    "format-only": Kind("the bytes changed, but the values did not"),
    "from-unfinished-job": Kind("the values come from a job that was cancelled or timed out"),
    "gained-metric": Kind("a metric or column that the old golden did not have"),
    "gained-rows": Kind("rows that the old table did not have"),
    "gained-steps": Kind("steps that the old golden did not have"),
    "gained-tensor": Kind("a tensor that was not expected"),
    "gap": Kind("neighbouring points of a series are missing or could not be tried"),
    "grad-check-missing": Kind("an op test has no gradient check"),
    "grad-failed": Kind("a gradient is wrong"),
    "hunt-unfinished": Kind("a hunt was stopped before it found an answer", unverified=True),
    "identity-conflict": Kind("two names of a file, or a name and a manifest, disagree about which golden it is"),
    "identity-incomplete": Kind("the names and the manifest do not identify the golden that a file belongs to"),
    "improved": Kind("a result is better than its golden by more than the tolerance"),
    "incomplete-case": Kind("a case lacks an input, an output, its program or its manifest", condemns="incomplete"),
    "inputs-changed": Kind("two captures of one case had different inputs, so comparing their outputs says little"),
    "kept-edits": Kind("an uncommitted version of a golden was replaced; git keeps a copy"),
    "late-drift": Kind("a curve follows the old one up to some step, and then leaves it to one side"),
    "level-improved": Kind("a series moved to a better level"),
    "level-regressed": Kind("a series moved to a worse level"),
    "level-shifted": Kind("a series moved to another level, and it is not known which direction is better"),
    "lost-metric": Kind("a metric or column of the old golden is gone, or a golden lacks a metric that has to be gated", condemns="incomplete"),
    "lost-rows": Kind("rows of the old table are gone", condemns="incomplete"),
    "lost-steps": Kind("steps that had a value are gone", condemns="incomplete"),
    "lost-tensor": Kind("an expected tensor is missing", condemns="incomplete"),
    "metric-unsettled": Kind("a metric is too noisy, or changes too often, for the runs that a hunt may take", unverified=True),
    "missing-actual": Kind("the golden expects a result that the run did not produce"),
    "missing-golden": Kind("the run produced a result that has no golden"),
    "missing-shard": Kind("a table lacks a shard, so its rows would be dropped", condemns="unfit"),
    "mixed-style": Kind("a line of a file is indented or ended unlike the others, or a lock is not sorted"),
    "moved-golden": Kind("the same bytes now live under another path"),
    "new-golden": Kind("there is no old side to compare with"),
    "new-nan": Kind("a value that was finite is now NaN or infinite", condemns="incomplete"),
    "new-op": Kind("an operator of a registered namespace has neither evidence nor an exemption"),
    "no-baseline": Kind("the old side cannot be read, so nothing was compared", unverified=True, condemns="unfit"),
    "no-usable-steps": Kind("no shared step has two finite values and a non-zero old value", condemns="unfit"),
    "noise-changed": Kind("the values of a series stray farther from their level than before, or less far"),
    "non-finite-literal": Kind("the file contains a NaN, Infinity or overflowing number, which JSON does not allow"),
    "not-a-bundle": Kind("expected a bundle, found something else"),
    "not-a-golden": Kind("a file looks like a golden but is not one of this project's"),
    "not-audited": Kind("nothing of an operator could be checked"),
    "not-finite": Kind("a curve is NaN or infinite where it must have a value", condemns="incomplete"),
    "not-refreshed": Kind("something was requested but not refreshed"),
    "not-reproduced": Kind("a change found at a coarser stage does not appear at the finer one"),
    "not-selected": Kind("this run did not select an op test, or part of it, so it gives no evidence about it"),
    "not-signed": Kind("a reference of a store has no signature by a key that may sign"),
    "nothing-compared": Kind("nothing matched the request, so nothing was verified", unverified=True, condemns="incomplete"),
    "nothing-rebuilt": Kind("points that should differ test the same build: a repository that moves is never rebuilt"),
    "number-as-text": Kind("a number is stored as a string", condemns="unfit"),
    "op-ended": Kind("an operator crashed, hung or ran out of memory while it was audited", unverified=True),
    "other-function": Kind("what was checked under the name of an op is a function of another name"),
    "out-of-tolerance": Kind("values differ from the golden by more than the rule allows"),
    "outside-goldens": Kind("a file would be written outside the golden paths"),
    "plain-values": Kind("a case has values that are not tensors, which a command neither receives nor returns as files"),
    "points-missing": Kind("points of a timeline are not available"),
    "precision-cut": Kind("the new values are the old ones with fewer digits", condemns="unfit"),
    "precision-lost": Kind("the new values have fewer digits than the old"),
    "program-changed": Kind("the program of a case is a different file"),
    "ragged-row": Kind("a row has more or fewer fields than the header", condemns="incomplete"),
    "reference-missing": Kind("the store has no such reference", unverified=True),
    "removed-golden": Kind("the golden is gone from the new side", condemns="unfit"),
    "reordered": Kind("the new values are the old ones in another order", condemns="unfit"),
    "replay-failed": Kind("the program did not run, or wrote no outputs"),
    "rescaled": Kind("the new values are the old ones, all multiplied or all moved by one constant", condemns="unfit"),
    "shape-changed": Kind("a tensor has a different shape than expected"),
    "shifted": Kind("the new values are the old ones, some steps earlier or later", condemns="unfit"),
    "short-run": Kind("a run ended before its expected last step", condemns="unfit"),
    "skip-without-exemption": Kind("a test skips its gradient check without a matching exemption"),
    "skip-without-reason": Kind("a test skips its gradient check and does not say why"),
    "stale-golden": Kind("a golden was not refreshed for long"),
    "status-changed": Kind("an outcome changed to or from one that is not in the `status` list"),
    "status-improved": Kind("an outcome is better than before"),
    "status-regressed": Kind("an outcome is worse than before"),
    "store-busy": Kind("another process is collecting garbage or pushing, and did not finish in time", unverified=True),
    "structure-changed": Kind("keys, lengths or nesting of a document changed", condemns="unfit"),
    "stuck": Kind("one and the same value from some step on, where the old curve varied", condemns="unfit"),
    "sums-missing": Kind("there is no SHA256SUMS file next to the zips to say which zips are expected"),
    "superseded": Kind("a newer attempt of the same job exists"),
    "taken-by-extension": Kind("no file matched the golden patterns, so every data file was taken"),
    "tensor-mismatch": Kind("elements of a tensor lie outside the tolerance"),
    "test-without-golden": Kind("a test has no golden"),
    "text-changed": Kind("text in a document changed"),
    "tokens-changed": Kind("generated tokens differ from the old ones"),
    "tolerance-override": Kind("a gradient check is allowed more error than it needs"),
    "tolerance-tightened": Kind("the golden now allows less than it did"),
    "tolerance-widened": Kind("the golden now allows more than it did"),
    "transfer-failed": Kind("the network or the server failed repeatedly", unverified=True),
    "trend": Kind("a series rose or fell slowly"),
    "truncated": Kind("the run stopped before its last step", condemns="incomplete"),
    "type-changed": Kind("a value changed its type", condemns="unfit"),
    "untested-golden": Kind("no test is known that uses the golden"),
    "unexpected-file": Kind("a bundle contains a file that its manifest does not list"),
    "unreadable": Kind("the file cannot be parsed in its expected format", condemns="unfit"),
    "unresolved-base": Kind("a base class could not be found, so its members are unknown"),
    "unsafe-type": Kind("a class of the capture is not known here; its fields were restored without it"),
    "untold-tolerance": Kind("the test compared by its own means and told no tolerance; replays use each dtype's own"),
    "vacuous-golden": Kind("zeros, another tensor, a permuted output or one that is off by 10% would pass in place of a captured one"),
    "value-drift": Kind("values moved"),
}
# fmt: on

UNVERIFIED = frozenset(name for name, kind in KINDS.items() if kind.unverified)


class Finding(msgspec.Struct, frozen=True):
    """One thing a person should know."""

    kind: str
    message: str
    severity: Severity
    path: str = ""
    metric: str | None = None
    where: str | None = None
    """Line, JSON path or row key inside the file."""
    numbers: Mapping[str, float | int | str | None] = {}
    next: str | None = None
    """The exact command to run next."""

    @property
    def condemns(self) -> Literal["", "incomplete", "unfit"]:
        """Why a golden that this is said of must not be taken, unless somebody insists; nothing if it may be."""
        # A format of a third party may have kinds of its own.
        return KINDS[self.kind].condemns if self.severity is Severity.FAIL and self.kind in KINDS else ""


fail = partial(Finding, severity=Severity.FAIL)
warn = partial(Finding, severity=Severity.WARN)
info = partial(Finding, severity=Severity.INFO)


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
    kinds, chosen = ([word for word in split if word in known] for known in (KINDS, severities))
    return (*(chosen or ([] if "none" in split else ["fail"])), *kinds)


def suggest(word: str, known: Sequence[str]) -> str:
    """`; did you mean …?`, or nothing if no known word is close."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    """UsageError for a configuration that does not hold what it must."""
    if not condition:
        raise UsageError(message, next_command="karat config")


def check_keys(table: Iterable[str], known: Sequence[str], where: str) -> None:
    """UsageError, with a suggestion, for a key of a configuration that there is not."""
    for key in table:
        if key not in known:
            expect(False, f"{where}: unknown key {key!r}{suggest(key, known)} (known: {', '.join(known)})")


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
