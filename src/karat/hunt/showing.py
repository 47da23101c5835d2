"""Showing one point of a hunt: its attempts, what was under test, its logs, and how to do it by hand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from karat.findings import UsageError, suggest
from karat.hunt.advice import show
from karat.hunt.attempt import Attempt
from karat.hunt.flags import flags
from karat.hunt.journal import Journal
from karat.hunt.journal_rows import CommandRow
from karat.hunt.point import Point
from karat.hunt.report_sentences import duration, value
from karat.hunt.reporting import settings_of
from karat.hunt.shell_words import quoted
from karat.report.terminal import Line

_PLACEHOLDER = re.compile(r"(@(?:AREA|OUT|SLOT|CORES|GPUS)@)")
# By hand there is no slot: the first one's name, and all cores and GPUs that there are.
_BY_HAND = {"SLOT": "0", "CORES": "", "GPUS": ""}
_STYLES = {"ok": "green", "crash": "bold red", "hang": "bold magenta", "broken": "yellow"}


class ShownAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, with what it ran."""

    attempt: Attempt
    purpose: str
    """search, swap N, confirm N (of change N)."""
    commands: tuple[CommandRow, ...]
    log: str | None = None


class ShownPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a hunt. Schema karat.hunt-point/1."""

    schema: str = "karat.hunt-point/1"
    stage: str
    point: Point
    flags: tuple[str, ...]
    attempts: tuple[ShownAttempt, ...]
    area: str
    """Where work areas of the hunt are."""


def find_point(journal: Journal, name: str, stage: str | None) -> tuple[str, Point]:
    """The point that a name means: its id or label, or the beginning of one; in the coarsest stage that has it."""
    every = [(s, p) for s, p in journal.every_point() if stage is None or s == stage]
    if stage is not None and not every:
        known = [row.key for row in journal.stages()]
        raise UsageError(
            f"--stage: expected one of {', '.join(known) or '(none yet)'}, found {stage!r}{suggest(stage, known)}",
            next_command=f"karat hunt status {shlex.quote(str(journal.path))}",
        )
    for matches in (
        [(s, p) for s, p in every if name in {p.id, p.label}],
        [(s, p) for s, p in every if p.id.startswith(name) or p.label.startswith(name)],
        [(s, p) for s, p in every if any(part.startswith(name) for part in p.parts.values())],
    ):
        ids = dict.fromkeys(p.id for _, p in matches)
        if len(ids) == 1:
            return _tried_first(journal, matches)
        if ids:
            raise UsageError(
                f"expected one point, found {len(ids)} that begin with {name!r}: {', '.join(list(ids)[:5])}",
                next_command=show(matches[0][1].id, stage=matches[0][0], journal=str(journal.path)),
            )
    labels = [p.label for _, p in every]
    raise UsageError(
        f"expected a point of the hunt, found none that begins with {name!r}{suggest(name, labels)}",
        next_command=f"karat hunt status {shlex.quote(str(journal.path))}",
    )


def _tried_first(journal: Journal, matches: Sequence[tuple[str, Point]]) -> tuple[str, Point]:
    """Of several stages that have the point, the first in which it was tried."""
    return next((m for m in matches if journal.entries(m[0], m[1].id)), matches[0])


def shown(journal: Journal, stage: str, point: Point, *, logs: bool) -> ShownPoint:
    """Everything that is known of a point."""
    every: dict[str, list[Attempt]] = {}
    for entry in journal.entries(stage):
        every.setdefault(entry.attempt.point, []).append(entry.attempt)
    said = flags([(p, every.get(p.id, [])) for p in journal.points(stage)])
    facts = journal.facts()
    settings = settings_of(facts)
    attempts = []
    for entry in journal.entries(stage, point.id):
        number = entry.attempt.number
        log = journal.log(stage, point.id, number).decode("utf-8", "backslashreplace")
        attempts.append(
            ShownAttempt(
                attempt=entry.attempt,
                purpose=entry.purpose,
                commands=journal.commands(stage, point.id, number),
                log=log if logs else None,
            )
        )
    return ShownPoint(
        stage=stage,
        point=point,
        flags=said.get(point.id, ()),
        attempts=tuple(attempts),
        area=f"{facts.get('root', '.')}/{settings.work if settings else '.karat/hunt'}/slot-0",
    )


def lines(what: ShownPoint) -> Iterator[Line]:
    """The point for a person."""
    point = what.point
    yield ((point.label, "bold"), (f"  stage {what.stage}", "dim"))
    if point.id != point.label:
        yield _fact("id", point.id)
    if point.when is not None:
        yield _fact("when", point.when.isoformat(sep=" ", timespec="seconds"))
    for name, text in point.parts.items():
        yield _fact(name, text)
    if point.missing:
        yield _fact("missing", point.missing)
    for flag in what.flags:
        yield ((f"  {flag}", "yellow"),)
    for one in what.attempts:
        yield ()
        yield from _attempt(one)
    if not what.attempts and not point.missing:
        yield ((("  not tried"), "dim"),)
    yield from _by_hand(what)


def _fact(name: str, text: str) -> Line:
    return ((f"  {name:<12}", "dim"), (text, ""))


def _attempt(one: ShownAttempt) -> Iterator[Line]:
    attempt = one.attempt
    yield (
        (f"attempt {attempt.number}: ", "bold"),
        (attempt.outcome.value, _STYLES.get(attempt.outcome.value, "")),
        (f"  {one.purpose}{f', {attempt.why}' if attempt.why else ''}", "dim"),
    )
    for name, samples in attempt.samples.items():
        yield _fact(name, ", ".join(value(sample) for sample in samples))
    if attempt.signature:
        yield _fact("signature", attempt.signature)
    if attempt.note:
        yield _fact("note", attempt.note)
    if attempt.shared_with:
        yield _fact("shared with", attempt.shared_with)
    if attempt.started:
        began = datetime.fromtimestamp(attempt.started, UTC)
        yield _fact(
            "ran", f"{began:%Y-%m-%d %H:%M:%S} UTC, {duration(attempt.seconds)}, {attempt.where}"
        )
    for name, text in attempt.identity.items():
        yield _fact("under test", f"{name} = {text}")


def _by_hand(what: ShownPoint) -> Iterator[Line]:
    """The commands of the last attempt that ran some, as a person would type them."""
    commands = next((a.commands for a in reversed(what.attempts) if a.commands), ())
    if not commands:
        return
    yield ()
    yield (("by hand:", "bold"),)
    said = " ".join(word for command in commands for word in (*command.argv, command.cwd))
    others = [f" {name}={text}" for name, text in _BY_HAND.items() if f"@{name}@" in said]
    yield ((f"  AREA={quoted(what.area)} OUT=$(mktemp -d){''.join(others)}", ""),)
    names = dict.fromkeys(name for command in commands for name in command.env)
    if names.pop("KARAT_OUT", "") is None:
        yield (("  export KARAT_OUT=$OUT", ""),)
    if names:
        yield ((f"  # with {', '.join(names)} set", "dim"),)
    for command in commands:
        # Further lines of a word are not set in: the blanks would be part of it.
        *first, last = f"  {typed(command)}".split("\n")
        yield from (((line, ""),) for line in first)
        yield ((last, ""), ("  # not needed then" if command.skipped else "", "dim"))


def typed(command: CommandRow) -> str:
    """A command for a shell; the runner's placeholders are variables there."""
    words = " ".join(_word(word) for word in command.argv)
    return words if command.cwd in {"", "."} else f"(cd {_word(command.cwd)} && {words})"


def _word(word: str) -> str:
    if not _PLACEHOLDER.search(word):
        return quoted(word)
    return "".join(
        f'"${piece.strip("@")}"' if _PLACEHOLDER.fullmatch(piece) else quoted(piece)
        for piece in _PLACEHOLDER.split(word)
        if piece
    )
