"""What a refresh did, and its report: lines for a terminal, JSON of schema `karat.refresh-report/1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from karat.compare.change import Change, Verdict
from karat.diffs.origins import split_command
from karat.diffs.report.data import change_json
from karat.diffs.result import FindingGroup, labels, losses, named, told
from karat.findings import Finding, Severity, exit_code
from karat.goldens.paths import common_root
from karat.goldens.provenance import Provenance, RefreshRecord
from karat.report.json import encode, finding_json
from karat.report.result import Result
from karat.report.terminal import COMMAND, Line, lines_by_kind
from karat.report.words import count, short_path
from karat.system.ci import in_ci
from karat.system.command import Command


class State(StrEnum):
    """What became of a golden that came in."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class GoldenOutcome(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    state: State
    artifacts: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()  # The metrics that were taken, where not all were.
    provenance: Provenance | None = None
    change: Change | None = None  # Old against new, whether it was taken or not.
    findings: tuple[Finding, ...] = ()


class RefreshReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    source: str
    origin: str
    scope: str  # `only-failing` or `all`.
    jobs: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """Platform → conclusion → number of jobs."""
    dry_run: bool
    outcomes: tuple[GoldenOutcome, ...] = ()
    findings: tuple[Finding, ...] = ()  # About artifacts, jobs and the whole, rather than one golden.
    tests: int = 0  # The seed's first total: tests with golden values.
    found: int = 0  # The seed's second total: golden values found.
    superseded: int = 0
    out_of_scope: int = 0
    skipped: int = 0  # Jobs and artifacts that make no goldens, by the configuration.
    unmatched: tuple[str, ...] = ()
    received: int = 0  # Bytes over the network.
    reset: tuple[str, ...] = ()  # Goldens that --reset put back or deleted first.
    locks: tuple[str, ...] = ()  # Lock files that were written.
    groups: tuple[FindingGroup, ...] = ()  # What moved, written or refused, by likely cause.
    record: RefreshRecord | None = None
    command: Command = Command("karat", "refresh")  # As typed.

    def all_findings(self) -> Iterator[Finding]:
        yield from self.findings
        for outcome in self.outcomes:
            yield from outcome.findings

    def in_state(self, state: State) -> list[GoldenOutcome]:
        return [outcome for outcome in self.outcomes if outcome.state is state]

    def to_json(self) -> bytes:
        return encode(document(self))

    def rows(self) -> list[dict[str, Any]]:
        """One row per golden that came in."""
        return [
            {
                "golden": outcome.path,
                "state": outcome.state.value,
                "verdict": outcome.change.verdict.value if outcome.change else "",
                "artifacts": ", ".join(outcome.artifacts),
                "because": "; ".join(f.message for f in outcome.findings),
            }
            for outcome in self.outcomes
        ]

    def answer(self) -> str:
        """The whole in one sentence: what was written and refused, what of it needs a look, whether a loss moved."""
        refused, written, same = map(self.in_state, (State.REFUSED, State.WRITTEN, State.UNCHANGED))
        would = "to be written" if self.dry_run else "written"
        parts = [f"{len(written):,} of {count(len(self.outcomes), 'golden')} {would}"]
        if look := sum(any(f.severity is not Severity.INFO for f in o.findings) for o in written):
            parts[0] += f", {look:,} of them {'needs' if look == 1 else 'need'} a look"
        if not self.outcomes:
            parts = ["no golden was refreshed"]
        if refused:
            root = common_root(outcome.path for outcome in self.outcomes)
            names = labels([o.change for o in self.outcomes if o.change], root)
            why = ((o.path, next((f.kind for f in o.findings if f.severity is Severity.FAIL), "")) for o in refused)
            said = named([(names.get(path) or short_path(path, root), kind) for path, kind in why])
            parts.append(f"{len(refused):,} refused: {said}")
        if same:
            parts.append(f"{len(same):,} unchanged")
        if undone := sum(how_many(f) for f in self.findings if f.severity is Severity.FAIL):
            parts.append(f"{undone:,}{' more' if self.outcomes else ''} not refreshed")
        return "; ".join([*parts, *losses(o.change for o in written if o.change)])

    def headline(self) -> str:
        return f"{self.source}: {self.answer()}{' (dry run)' if self.dry_run else ''}"


def how_many(finding: Finding) -> int:
    """How many artifacts or jobs a finding speaks of."""
    return int(finding.numbers.get("artifacts") or finding.numbers.get("jobs") or 1)


_INSTEAD_OF = {
    "--run-id": ("--run-id", "--sha", "--workflow"),
    "--dry-run": ("--dry-run", "--write"),
    "--write": ("--dry-run", "--write"),
}
"""Option → those that it takes the place of; any other option, only its own."""
_FLAGS = frozenset({"--dry-run", "--write", "--keep-going", "--reset", "--accept-incomplete"})


def with_options(typed: Command, *words: str) -> Command:
    """The command that was typed, with these options in place of its own."""
    gone = {name for word in words if word.startswith("--") for name in _INSTEAD_OF.get(word, (word,))}
    return typed.without(gone, flags=_FLAGS).plus(*words)


def complete_all(findings: Iterable[Finding], typed: Command) -> list[Finding]:
    """The findings with commands that can be pasted."""
    return [replace(f, next=str(complete(f.next, typed))) if f.next is not None else f for f in findings]


def complete(advice: str, typed: Command) -> str:
    """A `Command` that says only what is to change, with all the rest that was typed; other advice as it is.

    Where findings are made, nobody knows the command line.
    """
    words = advice.words if isinstance(advice, Command) else ()
    if words[:2] != ("karat", "refresh") or words[2:] == ("--help",):
        return advice
    # A source that names itself only means: the same once more, as it was typed.
    return typed if "--source" in words else with_options(typed, *words[2:])


SCHEMA = "karat.refresh-report/1"


def lines(result: RefreshReport) -> Iterator[Line]:
    """The report: the answer, what was asked for, what moved by likely cause, what was refused, warnings, the totals."""
    from karat.diffs.report.text import group_lines

    root = common_root(outcome.path for outcome in result.outcomes)
    yield ((result.answer(), "bold"),)
    dry = "  dry run: nothing is written" if result.dry_run else ""
    yield (f"{result.origin}, scope {result.scope}", ""), (f"  {root}/" if root else "", "dim"), (dry, "yellow")
    for platform, ends in result.jobs.items():
        counts = ", ".join(f"{n:,} {end}" for end, n in ends.items())
        yield ((f"jobs{f' on {platform}' if platform else ''}: {counts}", ""),)
    left = [
        (result.superseded, "of an earlier or unfinished attempt"),
        (result.out_of_scope, "out of scope"),
        (result.skipped, "of jobs that [refresh] skip names"),
        (len(result.unmatched), "of unknown name"),
    ]
    if any(n for n, _ in left):
        yield (("left out: " + ", ".join(f"{n:,} {why}" for n, why in left if n), ""),)
    yield from group_lines(result.groups, labels([o.change for o in result.outcomes if o.change], root))
    known = told(result.groups)
    fails = [f for f in result.all_findings() if f.severity is Severity.FAIL]
    warns = [
        f for f in result.all_findings() if f.severity is Severity.WARN and (f.kind, f.path, f.metric) not in known
    ]
    told_too = ("gained-rows", "lost-rows", "new-golden")
    infos = [f for o in result.outcomes for f in o.findings if f.severity is Severity.INFO and f.kind in told_too]
    infos += [f for f in result.findings if f.severity is Severity.INFO]
    for title, found in (("Not refreshed", fails), ("Worth a look", warns), ("Good to know", infos)):
        if found:
            yield ()
            yield ((f"{title} ({len(found):,})", "bold"),)
            yield from lines_by_kind(found, root, most=5 if found is fails else 3)
    yield ()
    yield ((f"Total tests with golden values: {result.tests:,}", ""),)
    yield ((f"Total golden values found: {result.found:,}", ""),)
    if any(o.change and o.change.verdict in {Verdict.DRIFT, Verdict.BREAK} for o in result.in_state(State.WRITTEN)):
        yield ("before you accept: did code or packages move them? ", "dim"), (split_command(), COMMAND)
    # What failed has a command of its own, and it comes last.
    if (command := next_command(result)) is not None and not exit_code(result.all_findings()):
        yield ("next: ", "dim"), (command, COMMAND)


def next_command(result: RefreshReport) -> str | None:
    """What to do after this refresh."""
    if result.dry_run:
        if result.record is None or not result.in_state(State.WRITTEN):
            return None
        typed = result.command.without({"--dry-run"}, flags=_FLAGS)
        # Where CI is set, karat writes only if it is told to.
        return str(with_options(typed, "--write") if in_ci() else typed)
    taken = [*result.in_state(State.WRITTEN), *result.in_state(State.UNCHANGED)]
    if any(o.change is None or o.change.verdict is not Verdict.SAME for o in taken):
        return "karat review"
    return "git diff" if result.locks else None


def document(result: RefreshReport) -> dict[str, Any]:
    states = Counter(outcome.state for outcome in result.outcomes)
    return {
        "schema": SCHEMA,
        "source": result.source,
        "origin": result.origin,
        "scope": {"name": result.scope, "jobs": result.jobs},
        "dry_run": result.dry_run,
        "answer": result.answer(),
        "totals": {
            "tests": result.tests,
            "goldens": result.found,
            **{state.value: states[state] for state in State},
            "superseded": result.superseded,
            "out_of_scope": result.out_of_scope,
            "skipped": result.skipped,
            "unmatched": len(result.unmatched),
            "received_bytes": result.received,
        },
        "goldens": [
            {
                **structs.asdict(outcome),
                "provenance": structs.asdict(outcome.provenance) if outcome.provenance else None,
                "change": change_json(outcome.change) if outcome.change else None,
                "findings": [finding_json(f) for f in outcome.findings],
            }
            for outcome in result.outcomes
        ],
        "findings": [finding_json(f) for f in result.findings],
        "not_refreshed": result.record.not_refreshed if result.record else [],
        "unmatched": result.unmatched,
        "reset": result.reset,
        "locks": result.locks,
        "next": next_command(result),
    }
