"""From the journal alone to the report, at any moment, also of a hunt that was killed; and what it comes to, as findings."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import PurePath
from statistics import fmean

import msgspec
from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.files import FILES
from karat.findings import Finding, Severity, fail, info, warn
from karat.hunts.journal import Journal, resume_command, show_command
from karat.hunts.model import (
    Attempt,
    ChangeReport,
    ChangeRow,
    Culprit,
    Decision,
    HuntEvent,
    HuntReport,
    Metric,
    Point,
    PointReport,
    RunNow,
    Span,
    SplitCell,
    SplitReport,
    StageReport,
    StageRow,
    Verdict,
)
from karat.hunts.report import sentences as say
from karat.hunts.report.sentences import between, flags, not_looked_at, sure, urgency, value
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import ENVIRONMENT, HuntSettings
from karat.hunts.timelines.container_engine import Kind
from karat.report.words import count

NOT_REPRODUCED = "The change does not show here"
"""How the note of a finer stage begins that does not see what the coarser one found."""
_KINDS = {
    "regression": ("level-regressed", Severity.FAIL),
    "improvement": ("level-improved", Severity.INFO),
    "shift": ("level-shifted", Severity.WARN),
    "dip": ("dip", Severity.WARN),
    "crash": ("crash-range", Severity.FAIL),
    "hang": ("crash-range", Severity.FAIL),
    "recovery": ("crash-range", Severity.INFO),
}
_SIDES = ("old", "new")
_MOVES = 4  # So many commits without a build of their own, and be they about texts, are no chance any more.
_TELL = ("commit.", "image", "package.", "value")  # What was to be under test, in an identity.
_LOG = 4000  # Bytes of a log that a report shows; `karat hunt show` has all of it.


def build_report(journal: Journal, *, logs: bool = True) -> HuntReport:
    facts, rows, metrics = journal.facts(), journal.stages(), journal.metrics()
    said, settings = facts.get("state", "running"), None
    with suppress(msgspec.MsgspecError, RecursionError):  # nothing where this karat does not understand them
        settings = msgspec.json.decode(facts.get("settings", ""), type=HuntSettings)
    # A journal that says running, and that nobody writes, is of a hunt that was killed.
    state = "stopped" if said == "running" and journal.writer() is None else said
    resume, notes = "", tuple[str, ...]()
    if state == "stopped":
        # Where its budget is spent, with twice as much.
        more = journal.fact("more", tuple[str, ...], "[]") if said == "stopped" else ()
        resume = str(resume_command(str(journal.path), more))
        why = facts.get("why") if said == "stopped" else "its process was killed"
        notes = (f"The hunt is not finished: {why}. To continue: {resume}",)
    if settings is not None and not (settings.probe.hash_files or settings.probe.identify):
        built = [row.timeline for row in rows if row.timeline in {"checkouts", "commits"}]
        if built and any(table and table.build for table in (settings.checkouts, settings.commits)):
            said = "Whether anything was rebuilt is not known: probe.hash_files, with all built files that the probe uses, tells"
            notes = (*notes, f"{said}, and saves runs where commits change none of them")
    stages = tuple(_stage(journal, row, state, logs=logs) for row in rows)
    notes += tuple(not_looked_at(stages)) if state == "stopped" else ()
    running, seconds_left = tuple[RunNow, ...](), None
    if state == "running":
        now, begun = time.time(), journal.running()
        running = tuple(RunNow(stage=s, point=p, why=why, seconds=max(0.0, now - at)) for s, p, why, at in begun)
        # Runs still to come at what the last ones took, over the slots that the engine has.
        took = [a.seconds for stage in stages[-1:] for p in stage.points for a in p.attempts if not a.shared_with]
        slots = journal.fact("slots", int, "1")
        if took and (left := stages[-1].expected_left) is not None:
            seconds_left = left * fmean(took[-20:]) / max(slots, 1)
    return HuntReport(
        karat=facts.get("karat", ""),
        name=facts.get("name", ""),
        file=facts.get("file", ""),
        journal=str(journal.path),
        command=journal.fact("command", tuple[str, ...], "[]"),
        state=state,
        split=split_of(journal, stages[0], metrics) if stages and rows[0].timeline == "split" else None,
        stages=stages,
        culprits=culprits(stages, {row.key: row.parent for row in rows}, metrics),
        runs=journal.runs(),
        seconds=sum(stage.seconds for stage in stages),
        cost=sum(attempt.cost for attempt in journal.attempts()),
        events=tuple(HuntEvent(when=when, stage=stage, message=said) for when, stage, said in journal.events()),
        never_rebuilt=never_rebuilt(journal.attempts()),
        notes=notes,
        resume=resume,
        process=journal.writer(),
        running=running,
        seconds_left=seconds_left,
        units={metric.name: metric.unit for metric in metrics if metric.unit},
    )


def _stage(journal: Journal, row: StageRow, state: str, *, logs: bool) -> StageReport:
    decision = row.decision or Decision(asks=())
    points = journal.points(row.key)
    there = range(len(points))
    named = [at for span in decision.spans for at in (span.good, span.bad, *span.between)]
    if not all(at in there for at in (*named, *decision.likely_next)):
        raise journal.damaged(f"a change of stage {row.key} is at a point that is not there")
    attempts: dict[str, list[Attempt]] = {}
    for known in journal.attempts(row.key):
        attempts.setdefault(known.point, []).append(known)
    own = [one for those in attempts.values() for one in those if not one.shared_with]
    reports = []
    for point in points:
        tried = attempts.get(point.id, [])
        # One word for all attempts: ok if it ever was, else the first that is evidence, else broken.
        order = (Outcome.OK, Outcome.CRASH, Outcome.HANG, Outcome.BROKEN)
        outcome = next((one for one in order if any(attempt.outcome is one for attempt in tried)), None)
        worked = outcome in (None, Outcome.OK) or not logs
        log = b"" if worked else journal.log(row.key, point.id, tried[-1].number)[-_LOG:]
        reports.append(
            PointReport(
                point=point,
                outcome=Outcome.MISSING if point.missing and outcome is None else outcome,
                values=observed_in(tried).values,
                attempts=tuple(tried),
                log=log.decode("utf-8", "backslashreplace"),
                flags=flags(tried),
            )
        )
    found, pairs = journal.changes(row.key), dips(decision.spans, len(points))
    changes = []
    for number, span in enumerate(decision.spans):
        known_change, dip = found.get(number, ChangeRow()), pairs.get(number)
        # Of failures, how they fail or that they end; of levels, that one came back.
        kind = "dip" if dip is not None and span.kind not in {"crash", "recovery"} else span.kind
        kind = "hang" if kind == "crash" and reports[span.bad].outcome is Outcome.HANG else kind
        change = ChangeReport(
            span=span,
            old=points[span.good],
            new=points[span.bad],
            kind=kind,
            dip=dip,
            verdict=known_change.verdict,
            suspects=known_change.suspects,
            zoom=known_change.zoom,
            # It goes into issues: the journal is that of hunt.toml's folder, and no path of this machine.
            reproduce=str(show_command(points[span.bad].id, stage="" if row.key == "0" else row.key, verb="try")),
        )
        both = span.before is not None and span.after is not None
        levels = f" {value(span.before)} → {value(span.after)}" if both else ""
        message = f"{span.metric}{levels}, {between(change)} ({sure(span.confidence)})"
        changes.append(structs.replace(change, message=message))
    return StageReport(
        key=row.key,
        title=row.title,
        timeline=row.timeline,
        state=state if row.state == "running" else row.state,
        points=tuple(reports),
        changes=tuple(changes),
        missed=decision.missed,
        runs=len(own),
        seconds=sum(attempt.seconds for attempt in own),
        flake_rate=decision.flake_rate,
        noise=decision.noise,
        notes=(*row.notes, *decision.notes),
        unsettled=decision.unsettled,
        expected_left=0 if row.state == "done" else decision.expected_left,
        likely_next=tuple(points[at].label for at in decision.likely_next),
    )


def split_of(journal: Journal, stage: StageReport, metrics: Sequence[Metric]) -> SplitReport:
    codes = [_code(one.point) for one in stage.points]
    cells = []
    for point in (point for key, point in journal.every_point() if key == stage.key):
        attempts = journal.attempts(stage.key, point.id)
        failed = [attempt for attempt in attempts if attempt.outcome is not Outcome.OK]
        cell = SplitCell(
            id=point.id,
            code=_SIDES[codes.index(_code(point))] if _code(point) in codes else "mixed",
            environment=point.parts[ENVIRONMENT],
            runs=len(attempts),
            failed=len(failed),
            values=observed_in(attempts).values,
            error=f"{failed[-1].outcome}: {failed[-1].signature or failed[-1].note}" if failed else "",
        )
        cells.append(cell)
    found = {change.span.metric: _word(change.verdict) for change in stage.changes}
    compared = stage.state == "done" and all(one.values for one in stage.points)
    verdicts = dict.fromkeys((metric.name for metric in metrics), "neither" if compared else "unclear")
    return SplitReport(verdicts={**verdicts, **found}, cells=tuple(cells))


def _code(point: Point) -> dict[str, str]:
    return {name: commit for name, commit in point.parts.items() if name != ENVIRONMENT}


def _word(verdict: Verdict) -> str:
    if verdict.interaction or len(verdict.parts) != 1:
        return "interaction" if verdict.interaction else "both" if verdict.parts else "unclear"
    return "environment" if verdict.parts[0] == ENVIRONMENT else "code"


def engine_used(journal: Journal, stage: str, tried: Sequence[Attempt]) -> Kind:
    """The container engine that was really used at a point, whichever hunt.toml left to be found."""
    ran = journal.commands(stage, tried[-1].point, tried[-1].number) if tried else ()
    podman = any(PurePath(word).name == "podman" for command in ran for word in command.argv[:1])
    return "podman" if podman else "docker"


def culprits(stages: Sequence[StageReport], parents: Mapping[str, str], asked: Sequence[Metric]) -> tuple[Culprit, ...]:
    """As close as the hunt came to every change of the stages that look into no other; what stands comes first, doubts last."""
    tree = {stage.key: stage for stage in stages}
    known = {metric.name: metric for metric in asked}
    numbers: dict[tuple[str, int], int] = {}
    roots = [(stage, change) for stage in stages if not parents.get(stage.key) for change in stage.changes]
    leaves = ((change, *end) for stage, change in roots for end in _ends(stage, change, tree, ()))
    ends = [(path, _dipped(leaf, change, path, numbers)) for change, path, leaf in leaves]
    found: dict[object, Culprit] = {}
    for number, (path, change) in enumerate(ends):
        verdict, metric = change.verdict, known.get(change.span.metric)
        # Without the repositories that swapping has cleared.
        parts = (verdict.part,) if verdict.part else verdict.parts if verdict.interaction else ()
        blamed = tuple(one for one in change.suspects if one.part in parts) or change.suspects
        culprit = Culprit(
            change=change,
            stage=path[-1],
            path=path,
            metric=change.span.metric,
            better=metric.better if metric else None,
            suspects=blamed,
            message=change.message,
        )
        # A branch that took in the main line has its changes, too, so that one commit may be found more than once.
        up = (change.span.after or 0.0) > (change.span.before or 0.0)
        same = (culprit.metric, up, blamed[0].part, blamed[0].id) if len(blamed) == 1 else number
        found.setdefault(same, culprit)
    return tuple(sorted(found.values(), key=lambda culprit: urgency(culprit.change)))


def _ends(
    stage: StageReport, change: ChangeReport, tree: Mapping[str, StageReport], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ChangeReport]]:
    """The finest changes below a change that may be it; the change itself where none shows."""
    here = (*path, stage.key)
    finer = tree.get(change.zoom)
    below = [c for c in finer.changes if alike(c.span, change.span)] if finer else []
    if finer is None or not below:
        yield here, _of_the_merge(change, finer)
        return
    both = change.verdict.interaction and change.verdict.confirmed
    for one in below:
        for way, leaf in _ends(finer, one, tree, here):
            yield (here, _with_partner(change, leaf)) if both else (way, leaf)


def _with_partner(change: ChangeReport, partner: ChangeReport) -> ChangeReport:
    """A commit's change that takes another repository's earlier one: both are suspects, and it showed with the later."""
    suspects = (*change.suspects, *partner.suspects)
    parts = tuple(dict.fromkeys(one.part for one in suspects))
    said = f"it takes {' and '.join(parts)} together: neither commit causes it without the other"
    tried = (*change.verdict.tried, *partner.verdict.tried)
    verdict = structs.replace(change.verdict, parts=parts, message=said, tried=tried)
    return structs.replace(change, suspects=suspects, verdict=verdict)


def _of_the_merge(change: ChangeReport, finer: StageReport | None) -> ChangeReport:
    """The change with the merge as its only suspect, where the merged branch was looked into and ends as it was before it."""
    moved = [n for n, commit in change.new.parts.items() if change.old.parts.get(n) != commit]
    part = change.verdict.part or (moved[0] if len(moved) == 1 else "")
    merge = change.new.parts.get(part)
    if finer is None or finer.state != "done" or finer.timeline != "commits" or not merge or not finer.points:
        return change
    # Any other line of commits ends with the new point's own; the branch of a merge ends before it.
    tip, span = finer.points[-1], change.span
    if tip.point.parts.get(part, merge) == merge:
        return change
    values = tip.values.get(span.metric, ())
    if span.before is None or span.after is None:
        works, fails = tip.outcome is Outcome.OK, tip.outcome in (Outcome.CRASH, Outcome.HANG)
        as_before = works if span.before is not None else fails
    else:
        as_before = bool(values) and abs(fmean(values) - span.before) < abs(fmean(values) - span.after)
    alone = tuple(one for one in change.suspects if as_before and (one.part, one.id) == (part, merge))
    return structs.replace(change, suspects=alone or change.suspects)


def _dipped(
    leaf: ChangeReport, coarse: ChangeReport, path: tuple[str, ...], numbers: dict[tuple[str, int], int]
) -> ChangeReport:
    """The change with the number of its dip in the whole hunt: every stage counts its own from 0.

    Whether it is a dip can mostly be told only where both of its ends are seen: at the coarsest stage.
    """
    for stage, change in ((path[0], coarse), (path[-1], leaf)):
        if change.dip is not None:
            number = numbers.setdefault((stage, change.dip), len(numbers))
            return structs.replace(leaf, kind=change.kind, dip=number)
    return leaf


def never_rebuilt(attempts: Iterable[Attempt]) -> dict[str, int]:
    """Repository → through how many commits it moved while its built files stayed the same; of those alone that were never rebuilt.

    Two neighbours with the same built files say little: most commits are about tests and texts. A repository that moves, and
    moves, and never has a build of its own is the trap: every point measures the same old binary. Its own files are those in
    its folder (`files.NAME`); beside them count points between which nothing else moved.
    """
    seen = [attempt.identity for attempt in attempts if FILES in attempt.identity]
    found = {}
    for key in dict.fromkeys(name for identity in seen for name in identity if name.startswith("commit.")):
        name = key.removeprefix("commit.")
        own = {identity.get(f"files.{name}") for identity in seen} - {None}
        alone: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for identity in seen:
            if key in identity:
                others = tuple(f"{n}={v}" for n, v in sorted(identity.items()) if n != key and n.startswith(_TELL))
                alone[others][identity[FILES]].add(identity[key])
        moved = sum(len(set().union(*builds.values())) - 1 for builds in alone.values())
        if len(own) == 1:
            moved = max(moved, len({identity[key] for identity in seen if key in identity}) - 1)
        if len(own) < 2 and all(len(builds) == 1 for builds in alone.values()) and moved >= _MOVES:
            found[name] = moved
    return found


def findings_of(report: HuntReport) -> tuple[Finding, ...]:
    """What a person should know of a hunt: that it is not finished, then its changes."""
    stages = (finding for stage in report.stages for finding in _of_stage(stage, report.journal))
    return (*_of_hunt(report), *stages)


def _of_hunt(report: HuntReport) -> Iterator[Finding]:
    points = [point for stage in report.stages for point in stage.points]
    if report.state == "stopped":
        said = report.notes[0] if report.notes else "the hunt is not finished"
        yield warn("hunt-unfinished", said, next=report.resume)
    if report.state == "done" and say.nothing_compared(report):
        # Where fewer than two points gave a value, nothing was found because nothing was compared.
        tried = [p for p in points if p.outcome not in (None, Outcome.MISSING)]
        failed = next((p.point.id for p in tried if p.outcome is not Outcome.OK), None)
        gave = sum(bool(p.values) for p in tried)
        said = f"expected at least two points with a value, found {gave} of {count(len(tried), 'point')} tried"
        then = None if failed is None else show_command(failed, journal=report.journal, log=True)
        yield warn("hunt-unfinished", said, next=then or "karat hunt run --dry-run")
    for name, said in zip(report.never_rebuilt, say.rebuilds(report), strict=True):
        newest = next((p.point.id for p in reversed(points) if p.values), "")
        then = show_command(newest, journal=report.journal, log=True) if newest else None
        yield fail("nothing-rebuilt", said, where=name, next=then)
    if report.state == "done" and say.one_build(report):
        # That every point passed says nothing where all were the same build.
        built = [p.point.id for p in points if p.values]
        said = f"expected each point to have its own build, found the same built files at all {len(built)}"
        then = show_command(built[-1], journal=report.journal, log=True)
        yield warn("nothing-compared", said, where=built[-1], next=then)
    for culprit in report.culprits:
        change, span = culprit.change, culprit.change.span
        kind, severity = _KINDS.get(change.kind, _KINDS["shift"])
        if kind == "level-shifted" and culprit.better == "equal":
            severity = Severity.FAIL
        # What does not stand any more, or could not be seen again, fails nobody's build.
        if say.doubtful(change) or change.dip is not None:
            severity = max(severity, Severity.WARN, key=lambda one: one.rank)
        yield Finding(
            kind=kind,
            severity=severity,
            message=say.headline(culprit, report.units.get(culprit.metric, "")),
            metric=culprit.metric,
            where=change.new.id,
            numbers={"before": span.before, "after": span.after, "confidence": span.confidence},
            next=show_command(change.new.id, stage=culprit.stage, journal=report.journal),
        )


def _of_stage(stage: StageReport, journal: str) -> Iterator[Finding]:
    # Where failures begin and stay, that is a change of its own.
    known = {change.new.id for change in stage.changes if change.kind in say.FAILURES}
    for (outcome, signature), points in say.failures(stage).items():
        if outcome != Outcome.BROKEN.value and not known & {point.id for point in points}:
            said = f"{stage.title}: {outcome} at {say.listed(points, 4)}: {signature}"
            then = show_command(points[0].id, stage=stage.key, journal=journal, log=True)
            yield warn("crash-range", said, where=points[0].id, next=then)
    for reason, points in say.lacking(stage).items():
        first, number = points[0].label, count(len(points), "point")
        said = f"{stage.title}: {number} not available, {first} the first: {reason}"
        yield info("points-missing", said, where=first)
    for metric in stage.unsettled:
        said = next((note for note in stage.notes if note.startswith(f"{metric} is not settled")), metric)
        yield warn("metric-unsettled", f"{stage.title}: {said}", metric=metric, where=stage.key)
    for note in stage.notes:
        if note.startswith(NOT_REPRODUCED):
            yield warn("not-reproduced", note, where=stage.key)


def alike(one: Span, other: Span) -> bool:
    """Whether a change of a finer stage may be what the coarser one saw: of the same metric, and of the same kind of sides.

    Where failures begin or end, one side has no level; that is no change of level of the metric.
    """
    first, second = ((s.metric, s.before is None, s.after is None) for s in (one, other))
    return first == second


def shown_in(spans: Sequence[Span], wanted: Sequence[Span]) -> bool:
    """Whether a finer stage saw one of these changes."""
    return any(alike(span, one) for span in spans for one in wanted)


def dips(spans: Sequence[Span], points: int) -> Mapping[int, int]:
    """Change → the number of its dip: one metric left its level, and with the next change came back to it, or failed and recovered.

    Of so many points. A gain that lasted, and was lost again, is no dip: the loss stands.
    """
    paired: dict[int, int] = {}
    # Where failures begin and end is one question, where levels move another.
    series = [(span.metric, span.kind in {"crash", "recovery"}) for span in spans]
    for each in dict.fromkeys(series):
        numbers = [n for n, one in enumerate(series) if one == each]
        numbers.sort(key=lambda n: spans[n].good)
        ends = [0, *(spans[n].bad for n in numbers)], [*(spans[n].good for n in numbers), points - 1]
        lengths = [last - begin + 1 for begin, last in zip(*ends, strict=True)]
        for at, (first, second) in enumerate(pairwise(numbers)):
            if spans[first].kind == "improvement" and 2 * lengths[at + 1] > min(lengths[at], lengths[at + 2]):
                continue
            if (spans[first].kind, spans[second].kind) == ("crash", "recovery"):
                paired[first] = paired[second] = len(set(paired.values()))
            start, low, end = spans[first].before, spans[first].after, spans[second].after
            if first in paired or start is None or low is None or end is None or spans[second].before is None:
                continue
            left, returned = low - start, end - low
            if left * returned < 0 and abs(end - start) <= 0.25 * min(abs(left), abs(returned)):
                paired[first] = paired[second] = len(set(paired.values()))
    return paired
