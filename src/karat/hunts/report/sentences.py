"""Sentences of a hunt's report, which the terminal, Markdown and the page share; what is odd about a point. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor, log10
from statistics import fmean

from karat.changepoints.series import Outcome
from karat.engines.files import FILES
from karat.hunts.model import (
    CRASH,
    Attempt,
    ChangeReport,
    Culprit,
    HuntReport,
    Point,
    PointReport,
    Span,
    SplitCell,
    SplitReport,
    StageReport,
    Suspect,
)
from karat.report.words import count, few

_MARKS = {Outcome.OK: "·", Outcome.CRASH: "✗", Outcome.HANG: "∞", Outcome.BROKEN: "□", Outcome.MISSING: " "}
UNTRIED = "˙"
FAILURES = ("crash", "hang")
SHARED = "shared with"  # How the flag of a point begins whose results are another's.


def value(number: float | None) -> str:
    """A measured value: four significant digits, more where it is large anyway."""
    if number is None:
        return "–"
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    digits = max(0, 3 - floor(log10(abs(number))))
    return f"{number:,.{digits}f}" if digits <= 6 and abs(number) < 1e15 else f"{number:.4g}"


def averages(values: Mapping[str, Sequence[float]], units: Mapping[str, str]) -> str:
    """`577.1 MLUPS, 3 failures`: the mean of each metric's samples; `ok` where only a crash is looked for, and none came."""
    if values.keys() == {CRASH} and not any(values[CRASH]):
        return "ok"
    return ", ".join(f"{value(fmean(numbers))} {units.get(n) or n}" for n, numbers in values.items() if numbers)


def came_of(attempt: Attempt, units: Mapping[str, str]) -> str:
    """`577.1 MLUPS`, or how it failed."""
    if attempt.outcome is Outcome.OK and attempt.samples:
        return averages(attempt.samples, units)
    return f"{attempt.outcome.value}: {attempt.signature or attempt.note}".removesuffix(": ")


def percent(old: float | None, new: float | None) -> str:
    """`−7.0%`, or nothing where the old value is zero or either is not known."""
    if old is None or new is None or old == 0:
        return ""
    relative = (new - old) / abs(old) * 100
    digits = 1 if abs(relative) >= 1 else 2
    return f"{relative:+.{digits}f}%".replace("-", "−")


def amount(change: ChangeReport, unit: str = "") -> str:
    """`577.4 → 536.7 MLUPS (−7.0%)`; of failures (crashes, hangs), that they begin or end."""
    span = change.span
    if span.kind == "crash" or span.after is None:
        return "works → hangs" if change.kind == "hang" else "works → fails"
    if span.before is None or span.metric == CRASH:
        return "fails → works again"
    return levels(span.before, span.after, unit)


def levels(old: float, new: float, unit: str) -> str:
    shown, by = f"{value(old)} → {value(new)}{f' {unit}' if unit else ''}", percent(old, new)
    return f"{shown} ({by})" if by else shown


def sure(confidence: float) -> str:
    """A confidence as it may be said: never as certainty."""
    if confidence >= 0.9995:
        return "over 99.9%"
    return f"{floor(confidence * 1000) / 10:g}%"


def heading(culprit: Culprit, report: HuntReport) -> str:
    """What kind of change it is; of a dip, which of its two ends."""
    change = culprit.change
    if change.kind != "dip":
        return f"{change.kind} (ended later)" if change.dip is not None and change.kind in FAILURES else change.kind
    first = next(c for c in report.culprits if c.change.dip == change.dip)
    return f"dip ({'there' if first is culprit else 'and back'})"


def flaky(stage: StageReport) -> str:
    return f"flaky: about {stage.flake_rate:.0%} of the runs fail at random" if stage.flake_rate else ""


def sides(kind: str) -> tuple[str, str]:
    """`last good`, `first bad`: what the two points around a change of that kind are called."""
    named = {"improvement": ("bad", "good"), "recovery": ("bad", "good"), "shift": ("old", "new")}
    before, after = named.get(kind, ("good", "bad"))
    return f"last {before}", f"first {after}"


def noises(stage: StageReport) -> Iterator[str]:
    """What moves each metric besides changes."""
    for noise in stage.noise:
        parts = (("run to run", noise.run), ("build to build", noise.build), ("worker to worker", noise.worker))
        said = [f"{size:.2%} from {name}" for name, size in parts if size >= 5e-5]
        said += [f"{noise.time:.2%} over time"] if noise.time >= 5e-5 else []
        taken = "; workers and time are taken out of the numbers" if noise.worker or noise.time else ""
        if said:
            yield f"noise of {noise.metric}: {', '.join(said)}{taken}"


def ends(kind: str, old: str, new: str) -> str:
    """`last good 2023-08-24, first bad 2023-08-26`."""
    last, first = sides(kind)
    return f"{last} {old}, {first} {new}"


def between(change: ChangeReport, shown: Callable[[str], str] = str) -> str:
    """The two points around a change, with what lies between and could not be tried."""
    lost = len(change.span.between)
    note = f" ({lost} between them could not be tried)" if lost else ""
    return f"{ends(change.span.kind, shown(change.old.label), shown(change.new.label))}{note}"


def dates(change: ChangeReport) -> str:
    """When the two points around a change were; nothing where their names say so, or nobody knows."""
    old, new = change.old, change.new
    if not old.when or not new.when or f"{new.when:%Y-%m-%d}" in new.label:
        return ""
    return f"{old.when:%Y-%m-%d %H:%M} … {new.when:%Y-%m-%d %H:%M} UTC"


def titled(point: Point) -> str:
    """`9381acb38e4f Fuse more convolutions`: a point's label, and what its commit says."""
    return f"{point.label} {point.title}".strip()


def compared(suspects: Sequence[Suspect]) -> list[str]:
    """Pages that show all suspects of a repository together, where they are several."""
    pages = Counter(link(one.compare) for one in suspects)
    return [page for page, number in pages.items() if page and number > 1]


def short(one: Suspect) -> str:
    """A suspect's id; of a commit its beginning."""
    return one.id[:12] if len(one.id) == 40 else one.id


def link(address: str) -> str:
    """Where something can be seen; nothing where that is no plain address, which might end its markup."""
    return address if re.fullmatch(r"https?://[^\s()<>\[\]`|\"'\\]+", address) else ""


def suspect(one: Suspect) -> str:
    words = [one.part, short(one), one.title, f"({one.author})" if one.author else ""]
    return " ".join(word for word in words if word)


def named(culprit: Culprit) -> bool:
    """Whether the hunt comes down to one, or to one of each repository that it takes; seen again, where that was tried."""
    those, verdict = culprit.suspects, culprit.change.verdict
    together = verdict.interaction and len({one.part for one in those}) == len(those) > 0
    return (len(those) == 1 or together) and not doubtful(culprit.change)


def headline(culprit: Culprit, unit: str = "") -> str:
    """The one line that says it: what, by how much, since when, who."""
    change = culprit.change
    what = amount(change, unit)
    first = f"{change.kind} of {culprit.metric}" if culprit.metric != CRASH else change.kind
    who = f": one of {len(culprit.suspects)} suspects" if culprit.suspects else ""
    if len(culprit.suspects) == 1 or named(culprit):
        who = f": {' together with '.join(map(suspect, culprit.suspects))}"
    return f"{first}{f', {what}' if what else ''}, {between(change)}{who}"


def doubtful(change: ChangeReport) -> bool:
    """Whether both sides, run again, speak against a change rather than for it: whoever fails a build on it fails it on noise."""
    verdict = change.verdict
    against = _again(change) and 0 < verdict.confidence < 0.5
    return verdict.confirmed is False or (verdict.confirmed is None and against)


def urgency(change: ChangeReport) -> int:
    """Where it stands in a report: what got worse and stays so, then what is over or better, then what could not be confirmed."""
    if change.dip is None and change.verdict.confirmed is not True and _again(change):
        return 2
    return 0 if change.dip is None and change.kind in {"regression", *FAILURES} else 1


def _again(change: ChangeReport) -> bool:
    return any(line.startswith("run again") for line in change.verdict.tried)


def confirmed(change: ChangeReport) -> str:
    """Whether the culprit and its parent, run again, still differed, and how sure it all is."""
    said = {
        True: "confirmed by running both sides again",
        False: "NOT confirmed: run again, the two sides do not differ as before",
        None: "both sides were run again, without a clear result" if _again(change) else "not run again",
    }[change.verdict.confirmed]
    return f"{said}; confidence {how_sure(change)}"


def how_sure(change: ChangeReport) -> str:
    """The confidence in a change, after both sides were run again if they were."""
    search, again = change.span.confidence, change.verdict.confidence or change.span.confidence
    # Two builds that differ may do so on one level: run again, they are no surer than what their neighbours say.
    return sure(min(search, again) if change.verdict.confirmed else again)


def blame(change: ChangeReport) -> str:
    """What swapping said: which repository, or that it takes several."""
    verdict = change.verdict
    if len(change.new.parts.keys() - {"image"}) == 1:
        return ""  # there is nobody else
    if verdict.message:
        return verdict.message
    if verdict.interaction:
        return "it takes several repositories together: none alone causes the change"
    return f"made by {verdict.part}" if verdict.part else ""


def tried(stage: StageReport) -> str:
    done = sum(point.outcome not in (None, Outcome.MISSING) for point in stage.points)
    points = count(len(stage.points), "point")
    return f"{done:,} of {points} tried, {count(stage.runs, 'run')}, {duration(stage.seconds)}"


def duration(seconds: float) -> str:
    """`3.2 s`, `12 min`, `5.1 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def strip(points: Sequence[PointReport], changes: Sequence[ChangeReport], width: int) -> str:
    """The timeline in one line: a mark per point or, where there is no room, per stretch; `|` where it changed."""
    cuts = {change.new.id for change in changes}
    marks = [UNTRIED if p.outcome is None else _MARKS[p.outcome] for p in points]
    cells = [f"|{mark}" if p.point.id in cuts else mark for p, mark in zip(points, marks, strict=True)]
    if sum(map(len, cells)) <= width:
        return "".join(cells)
    size = -(-len(points) // max(1, width - len(cuts)))
    line = ""
    for start in range(0, len(cells), size):
        # One mark for several points: what most of those that were tried came to, the gravest where it is even. Single
        # failures are listed below the strip; here they would hide hundreds of points that work.
        stretch = "".join(cells[start : start + size])
        tried = [mark for mark in "✗∞·□" if mark in stretch]
        line += "|" if "|" in stretch else ""
        line += max(tried, key=stretch.count, default=UNTRIED if UNTRIED in stretch else " ")
    return line


def failures(stage: StageReport) -> dict[tuple[str, str], list[Point]]:
    """(outcome, signature) → points, of those that did not succeed."""
    found: dict[tuple[str, str], list[Point]] = {}
    for one in stage.points:
        if one.outcome in (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN):
            last = one.attempts[-1] if one.attempts else None
            key = (one.outcome.value, (last.signature or last.note) if last else "")
            found.setdefault(key, []).append(one.point)
    return found


def lacking(stage: StageReport) -> dict[str, list[Point]]:
    """Reason → points, of those that are not available."""
    found: dict[str, list[Point]] = {}
    for point in [one.point for one in stage.points if one.outcome is Outcome.MISSING]:
        # Without what names the point itself: `no image jax:…` is every night's reason.
        reason = point.missing or "no reason is known"
        for name in sorted((*point.parts.values(), point.id, point.label), key=len, reverse=True):
            reason = reason.replace(name, "…") if name else reason
        found.setdefault(reason, []).append(point)
    return found


def listed(points: Sequence[Point], most: int, shown: Callable[[str], str] = str) -> str:
    return few([shown(point.label) for point in points], most)


def measured(report: HuntReport) -> str:
    return f"{count(report.runs, 'run')}, {duration(report.seconds)} of measuring"


def nothing_compared(report: HuntReport) -> bool:
    """Whether too few points gave a value for any two to be compared, and no change came out all the same."""
    points = [point for stage in report.stages for point in stage.points]
    return not report.culprits and sum(bool(point.values) for point in points) < 2


def one_build(report: HuntReport) -> bool:
    """Whether all points had the very same built files, so that no change could come out: one thing was measured again."""
    points = [point for stage in report.stages for point in stage.points if point.values]
    builds = {point.attempts[-1].identity.get(FILES) for point in points}
    return not report.culprits and len(points) > 1 and len(builds) == 1 and builds != {None}


def rebuilds(report: HuntReport) -> list[str]:
    """A sentence for each repository that was never rebuilt: what was found at its commits is not theirs."""
    why = "nothing of it was tested but one build. Is it built, and are its built files in probe.hash_files?"
    moved = [(name, count(commits, "commit")) for name, commits in report.never_rebuilt.items()]
    return [f"{name} moved through {said}, and its built files never changed: {why}" for name, said in moved]


def at_the_top(report: HuntReport) -> list[str]:
    """What a reader must know before the answers: what was never rebuilt, and what the first stage did not look for."""
    first = [stage.missed.message for stage in report.stages if not missed(stage, report) and stage.missed]
    return [*rebuilds(report), *(f"Not looked for everywhere: {said}" for said in first)]


def missed(stage: StageReport, report: HuntReport) -> str:
    """What a stage may have missed; nothing where that is said at the top already."""
    if stage.missed is None or (stage is report.stages[0] and report.state == "done" and stage.missed.runs_to_rule_out):
        return ""
    return stage.missed.message


def conclusion(report: HuntReport) -> str:
    """The first line: what a person wants to know before anything else."""
    state = "" if report.state == "done" else f" so far (the hunt is {report.state})"
    if unsettled := dict.fromkeys(metric for stage in report.stages for metric in stage.unsettled):
        state += f" ({few(list(unsettled), 3)} not settled)"
    stale = list(report.never_rebuilt)
    never = f" {few(stale, 3)} {'was' if len(stale) == 1 else 'were'} never rebuilt;" if stale else ""
    name = f"{report.name}:{never}"
    if one_build(report):
        return f"{name} nothing could be compared{state}{'' if stale else ': nothing was rebuilt'}"
    if report.state == "done" and nothing_compared(report):
        return f"{name} nothing could be compared"
    if not report.culprits:
        untold = {None, Outcome.MISSING, Outcome.BROKEN}
        outcomes = {p.outcome for stage in report.stages for p in stage.points} - untold
        always = "" if Outcome.OK in outcomes or not outcomes else ": every point that was tried fails"
        return f"{name} no change found{always}{state}"
    kinds = [c.change.kind for c in report.culprits]
    ends = {c.change.dip for c in report.culprits if c.change.kind == "dip"}
    numbers = {kind: len(ends) if kind == "dip" else kinds.count(kind) for kind in kinds}
    return f"{name} {', '.join(count(numbers[kind], kind) for kind in sorted(numbers, key='dip'.__eq__))}{state}"


def change_text(span: Span, points: Sequence[Point]) -> str:
    """`regression of speed, last good v006, first bad v007`."""
    return f"{span.kind} of {span.metric}, {ends(span.kind, points[span.good].label, points[span.bad].label)}"


def moved_text(span: Span) -> str:
    """`100 → 95 (−5.0%), `; nothing where one side fails."""
    return "" if span.before is None or span.after is None else f"{levels(span.before, span.after, '')}, "


def not_looked_at(stages: Sequence[StageReport]) -> Iterator[str]:
    """What a hunt that stopped has left undone, stage by stage."""
    known = {stage.key for stage in stages}
    for stage in stages:
        done = stage.state == "done"
        untried = 0 if done else sum(point.outcome is None for point in stage.points)
        wide = 0 if done else sum(not change.span.sure for change in stage.changes)
        parts = [f"{untried} of {count(len(stage.points), 'point')} not run"] if untried else []
        parts += [f"{count(wide, 'change')} not pinned down"] if wide else []
        later = sum(bool(change.zoom) and change.zoom not in known for change in stage.changes)
        parts += [f"{count(later, 'change')} not narrowed down further"] if later else []
        open_ = sum(change.verdict.confirmed is None and not change.zoom for change in stage.changes)
        parts += [f"{count(open_, 'change')} not confirmed"] if open_ else []
        if parts:
            yield f"Not done at {stage.title}: {', '.join(parts)}."


def flags(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """What is odd about the attempts at a point: shared, flaky."""
    sources = dict.fromkeys(a.shared_with for a in attempts if a.shared_with)
    # What could not be tried is no evidence either way.
    outcomes = [a.outcome for a in attempts if a.outcome in (Outcome.OK, Outcome.CRASH, Outcome.HANG)]
    failed = sum(outcome is not Outcome.OK for outcome in outcomes)
    flakes = [f"flaky: {failed} of {len(outcomes)} failed"] if 0 < failed < len(outcomes) else []
    return (*(f"{SHARED} {name}: the same thing was under test" for name in sources), *flakes)


_SAID = {
    "code": "the code: it changes with the new code alone, in old packages as well",
    "environment": "the environment: it changes with the new packages alone, with old code as well",
    "both": "both: new code and new packages have a share in it",
    "interaction": "an interaction: it takes new code in new packages; neither alone does it",
    "neither": "neither: old code in old packages and new code in new packages do not differ",
    "unclear": "unclear: the runs do not tell",
}


def split_table(split: SplitReport, units: Mapping[str, str]) -> list[list[str]]:
    """A header, and a row for each code."""
    known = {(cell.code, cell.environment): _cell(cell, units) for cell in split.cells if cell.runs}
    both = ("old", "new")
    rows = [[f"{code} code", *(known.get((code, side), "not run") for side in both)] for code in both]
    return [["", *(f"{side} environment" for side in both)], *rows]


def _cell(cell: SplitCell, units: Mapping[str, str]) -> str:
    values = averages({name: v for name, v in cell.values.items() if name != CRASH}, units) or "works"
    some = f", fails {cell.failed} times" if cell.failed else ""
    return f"{cell.error if cell.failed == cell.runs else f'{values}{some}'} ({count(cell.runs, 'run')})"


def split_sentences(split: SplitReport) -> Iterator[str]:
    for metric, word in split.verdicts.items():
        yield f"{'' if len(split.verdicts) == 1 else f'{metric}: '}{_SAID[word]}"
