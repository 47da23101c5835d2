"""From the journal alone to the report: at any moment, also of a hunt that was killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from statistics import fmean

import msgspec
from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.files import FILES
from karat.hunts.journal.database import resume_command, show_command
from karat.hunts.journal.journal import Journal
from karat.hunts.journal.records import ChangeRow, StageRow
from karat.hunts.model import (
    Attempt,
    ChangeReport,
    Culprit,
    Decision,
    HuntEvent,
    HuntReport,
    Metric,
    PointReport,
    Span,
    StageReport,
)
from karat.hunts.report.reproduce import LONGEST, reproduce_command
from karat.hunts.report.sentences import between, flags, not_looked_at, sure, urgency, value
from karat.hunts.report.split import split_of
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import HuntSettings
from karat.hunts.stages import alike, dips
from karat.hunts.timelines.container_engine import Kind

_MOVES = 4  # So many commits without a build of their own, and be they about texts, are no chance any more.
_LOG = 4000  # Bytes of a log that a report shows; `karat hunt show` has all of it.


def build_report(journal: Journal) -> HuntReport:
    facts, rows, metrics = journal.facts(), journal.stages(), journal.metrics()
    said, settings = facts.get("state", "running"), settings_of_journal(facts)
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
    stages = tuple(_stage(journal, row, settings, state) for row in rows)
    notes += tuple(not_looked_at(stages)) if state == "stopped" else ()
    return HuntReport(
        karat=facts.get("karat", ""),
        name=facts.get("name", ""),
        file=facts.get("file", ""),
        journal=str(journal.path),
        command=journal.fact("command", tuple[str, ...], "[]"),
        state=state,
        split=split_of(journal, stages[0], [m for m, _ in metrics]) if stages and rows[0].timeline == "split" else None,
        stages=stages,
        culprits=culprits(stages, {row.key: row.parent for row in rows}, [m for m, _ in metrics]),
        runs=journal.runs(),
        seconds=sum(stage.seconds for stage in stages),
        cost=sum(row.attempt.cost for row in journal.attempts()),
        events=tuple(HuntEvent(when=when, stage=stage, message=said) for when, stage, said in journal.events()),
        never_rebuilt=never_rebuilt(row.attempt for row in journal.attempts()),
        notes=notes,
        resume=resume,
        units={metric.name: unit for metric, unit in metrics if unit},
        betters={metric.name: metric.better for metric, _ in metrics if metric.better},
    )


def settings_of_journal(facts: Mapping[str, str]) -> HuntSettings | None:
    """The settings as they were kept; None where this karat does not understand them."""
    try:
        return msgspec.json.decode(facts.get("settings", ""), type=HuntSettings)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _stage(journal: Journal, row: StageRow, settings: HuntSettings | None, state: str) -> StageReport:
    decision = row.decision or Decision(asks=())
    points = journal.points(row.key)
    there = range(len(points))
    if not all(at in there for span in decision.spans for at in (span.good, span.bad, *span.between)):
        raise journal.damaged(f"a change of stage {row.key} is at a point that is not there")
    attempts: dict[str, list[Attempt]] = {}
    for known in journal.attempts(row.key):
        attempts.setdefault(known.attempt.point, []).append(known.attempt)
    own = [one for those in attempts.values() for one in those if not one.shared_with]
    reports = []
    for point in points:
        tried = attempts.get(point.id, [])
        # One word for all attempts: ok if it ever was, else the first that is evidence, else broken.
        order = (Outcome.OK, Outcome.CRASH, Outcome.HANG, Outcome.BROKEN)
        outcome = next((one for one in order if any(attempt.outcome is one for attempt in tried)), None)
        worked = outcome in (None, Outcome.OK)
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
        change = ChangeReport(
            span=span,
            old=points[span.good],
            new=points[span.bad],
            kind=_kind(span, dip, reports[span.bad]),
            dip=dip,
            verdict=known_change.verdict,
            suspects=known_change.suspects,
            zoom=known_change.zoom,
            reproduce=_reproduce(journal, row, settings, reports[span.bad]),
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
        analyses=decision.analyses,
        missed=decision.missed,
        runs=len(own),
        seconds=sum(attempt.seconds for attempt in own),
        flake_rate=decision.flake_rate,
        noise=decision.noise,
        notes=(*row.notes, *decision.notes),
        unsettled=decision.unsettled,
    )


def _kind(span: Span, dip: int | None, new: PointReport) -> str:
    """What a change is called: of failures, how they fail or that they end; of levels, that one came back."""
    if span.kind in {"crash", "recovery"}:
        return "hang" if span.kind == "crash" and new.outcome is Outcome.HANG else span.kind
    return span.kind if dip is None else "dip"


def _reproduce(journal: Journal, row: StageRow, settings: HuntSettings | None, tried: PointReport) -> str:
    """One line for a shell that can be read, or the command that runs the point."""
    point, identity, line = tried.point, tried.attempts[-1].identity if tried.attempts else {}, ""
    if settings is not None:
        engine = engine_used(journal, row.key, tried.attempts)
        line = reproduce_command(settings, row.timeline, point, identity, engine=engine)
    # It goes into issues: the journal is that of hunt.toml's folder, and no path of this machine.
    return (
        line
        if 0 < len(line) <= LONGEST
        else str(show_command(point.id, stage="" if row.key == "0" else row.key, verb="try"))
    )


def engine_used(journal: Journal, stage: str, tried: Sequence[Attempt]) -> Kind:
    """The container engine that was really used at a point, whichever hunt.toml left to be found."""
    ran = journal.commands(stage, tried[-1].point, tried[-1].number) if tried else ()
    podman = any(PurePath(word).name == "podman" for command in ran for word in command.argv[:1])
    return "podman" if podman else "docker"


def culprits(
    stages: Sequence[StageReport], parents: Mapping[str, str], metrics: Sequence[Metric]
) -> tuple[Culprit, ...]:
    """As close as the hunt came to every change of the stages that look into no other; what stands comes first, doubts last."""
    tree = {stage.key: stage for stage in stages}
    known = {metric.name: metric for metric in metrics}
    numbers: dict[tuple[str, int], int] = {}
    ends = [
        (path, _dipped(leaf, change, path, numbers))
        for stage in stages
        if not parents.get(stage.key)
        for change in stage.changes
        for path, leaf in _ends(stage, change, tree, ())
    ]
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
    for one in below:
        for way, leaf in _ends(finer, one, tree, here):
            yield (
                (here, _with_partner(change, leaf))
                if change.verdict.interaction and change.verdict.confirmed
                else (way, leaf)
            )


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
                alone[_others(identity, key)][identity[FILES]].add(identity[key])
        moved = sum(len(set().union(*builds.values())) - 1 for builds in alone.values())
        if len(own) == 1:
            moved = max(moved, len({identity[key] for identity in seen if key in identity}) - 1)
        if len(own) < 2 and all(len(builds) == 1 for builds in alone.values()) and moved >= _MOVES:
            found[name] = moved
    return found


def _others(identity: Mapping[str, str], but: str) -> tuple[str, ...]:
    """What else was to be under test: commits, image, packages, value."""
    told = ("commit.", "image", "package.", "value")
    return tuple(f"{n}={v}" for n, v in sorted(identity.items()) if n != but and n.startswith(told))
