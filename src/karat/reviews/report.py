"""A review as text and as JSON: what is left to decide, worst first, and the commands that decide it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from karat.compare.change import Verdict
from karat.diffs.origins import split_command
from karat.diffs.result import labels
from karat.findings import Finding, Severity
from karat.report.terminal import COMMAND, STYLES, Line, finding_lines
from karat.report.words import count, elide, few, span
from karat.reviews.causes import Cause, State
from karat.reviews.review import Decision, Review
from karat.system.command import Command

_NAMED, _NAME, _KEPT = 2, 40, 5
OPEN: frozenset[State] = frozenset({"pending", "partly", "skipped"})
STATES: Sequence[State] = ("accepted", "rejected", "partly", "skipped", "pending")


class ListedGolden(msgspec.Struct, frozen=True, kw_only=True):
    """A changed golden."""

    path: str
    verdict: Verdict
    state: State
    fails: bool  # Accepting it needs a reason.


class ListedCause(msgspec.Struct, frozen=True, kw_only=True):
    """Goldens that are decided together."""

    number: int
    id: str  # What `--group` takes; it stays, whatever else is decided.
    title: str
    severity: Severity | None
    goldens: tuple[ListedGolden, ...]


class ReviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to decide, worst first."""

    old: str
    new: str
    answer: str
    states: Mapping[str, int]  # State → how many goldens are in it.
    causes: tuple[ListedCause, ...]
    findings: tuple[Finding, ...]  # Of the whole, and of what is not decided yet.


def report_of(review: Review) -> ReviewReport:
    items = {item.path: item for item in review.items()}
    tally = Counter(item.state for item in items.values())
    listed = {}
    for path, item in items.items():
        fails = any(f.severity is Severity.FAIL for f in item.change.findings)
        listed[path] = ListedGolden(path=path, verdict=item.verdict, state=item.state, fails=fails)
    causes = []
    for cause in review.causes():
        goldens, severity = tuple(listed[path] for path in cause.paths), cause.severity
        causes.append(
            ListedCause(number=cause.number, id=cause.id, title=cause.title, severity=severity, goldens=goldens)
        )
    open_ = (item for item in items.values() if item.state in OPEN)
    return ReviewReport(
        old=review.diff.old,
        new=review.diff.new,
        answer=review.diff.answer(),
        states={state: tally[state] for state in STATES},
        causes=tuple(causes),
        findings=(*review.diff.findings, *(finding for item in open_ for finding in item.change.findings)),
    )


def progress_words(known: Mapping[str, State]) -> str:
    """`306 goldens: 4 accepted, 302 to decide`."""
    tally = Counter("pending" if state in OPEN else state for state in known.values())
    said = [f"{tally[state]:,} {state}" for state in ("accepted", "rejected") if tally[state]]
    left = f"{tally['pending']:,} to decide" if tally["pending"] else "all decided"
    return f"{count(len(known), 'golden')}: {', '.join([*said, left])}"


def lines(review: Review) -> Iterator[Line]:
    """The whole review, for who has no terminal."""
    known, names = review.states(), labels(review.diff.changes, review.diff.root)
    yield ((review.diff.answer(), "bold"),)
    if not known:
        return
    yield (f"{review.diff.old} → {review.diff.new}  ", ""), (progress_words(known), "dim")
    for cause in review.causes():
        yield ()
        yield from cause_lines(cause)
        yield ((f"     {few([elide(names[path], _NAME) for path in cause.paths], _NAMED)}", "dim"),)
        if any(known[path] in OPEN for path in cause.paths):
            reason = ["--reason", "…"] if cause.severity is Severity.FAIL else []
            yield ("     to take it:      ", "dim"), (Command("karat", "accept", "--group", cause.id, *reason), COMMAND)
            yield ("     to put it back:  ", "dim"), (Command("karat", "reject", "--group", cause.id), COMMAND)
        else:
            done = Counter(known[path] for path in cause.paths)
            yield ((f"     {', '.join(f'{n:,} {state}' for state, n in done.items())}", "green"),)
    yield ()
    if any(change.verdict in {Verdict.BREAK, Verdict.DRIFT} for change in review.diff.changes):
        yield ("code or environment? ", "dim"), (split_command(review.diff.provenance.values()), COMMAND)
    yield ("next: ", "dim"), (next_command(known), COMMAND)


def next_command(known: Mapping[str, State]) -> str:
    """Looking on, or telling others once all is decided; never a decision."""
    return "karat diff --html report.html" if OPEN.intersection(known.values()) else "karat summary"


def cause_lines(cause: Cause) -> Iterator[Line]:
    """Number, severity, title, and how far it moved."""
    severity = (f"{cause.severity.value:<4} ", STYLES[cause.severity]) if cause.severity else ("ok   ", "green")
    by = span(cause.group.low, cause.group.high, "  by ") if cause.group else ""
    other = len(cause.group.paths) - len(cause.paths) if cause.group else 0
    above = f"  ({other:,} above)" if other else ""
    yield severity, (f"{cause.number}. {cause.title}", "bold"), (by, "dim"), (above, "dim")


def decision_lines(decision: Decision) -> Iterator[Line]:
    """What was decided, and how to have back what was put back."""
    what = f" {decision.metric} of" if decision.metric else ""
    names = decision.paths[0] if len(decision.paths) == 1 else count(len(decision.paths), "golden")
    yield ((f"{decision.verb}{what} {names}" if decision.paths else "nothing is left to be decided there", "bold"),)
    if decision.reason:
        yield (("over what fails: ", "yellow"), (decision.reason, ""))
    yield from kept_lines(decision.findings)


def kept_lines(findings: Sequence[Finding]) -> Iterator[Line]:
    """How to have back what was put back."""
    for finding in findings[:_KEPT]:
        yield ("     have it back: ", "dim"), (finding.next or "", COMMAND)
    if len(findings) > _KEPT:
        yield ((f"     … and {len(findings) - _KEPT:,} more (--json - lists all)", "dim"),)


def refused_lines(failing: Sequence[Finding]) -> Iterator[Line]:
    """What stands in the way."""
    for finding in failing[:_KEPT]:
        yield from finding_lines(finding)
    yield ()
    yield ((f"nothing was accepted: {count(len(failing), 'fail finding')} and no --reason", "bold red"),)
