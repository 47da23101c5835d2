"""A run's curves → the curves its golden holds: chosen, renamed, thinned, rounded, and put in place of the old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import isfinite

import numpy as np
from msgspec.structs import replace

from karat.findings import Finding, Severity, UsageError, fail, warn
from karat.goldens.series_json import implied_steps
from karat.goldens.shapes import Golden, Metric, Series
from karat.report.words import few
from karat.runs.repeats import Repeat, copies, disagreements
from karat.settings import RecordSettings

_MOST_STEPS = 10_000_000  # A step that a counter got wrong must not fill the memory with NaN.
EXPECTED = "--steps, or steps in [record]"  # Where an expected last step comes from, unless an old golden gave it.


def shaped(series: Series, settings: RecordSettings) -> tuple[Series, tuple[Finding, ...]]:
    """The series as a golden of it would be, and what was wrong with the names."""
    taken = [name for name in series.metrics if any(fnmatchcase(name, tag) for tag in settings.tags)]
    findings = []
    if series.metrics and not taken:
        message = f"expected names that match {', '.join(settings.tags)}, found {few(sorted(series.metrics), 8)}"
        findings.append(fail("empty", message, next="karat config --show-origin"))
    metrics: dict[str, Metric] = {}
    origin: dict[str, str] = {}
    for tag in taken:
        name = settings.rename.get(tag, tag)
        if name in metrics:
            said = f'expected one source of the metric "{name}", found {origin[name]} and {tag}; the last one was read'
            findings.append(fail("duplicate-key", said, metric=name, next="karat config --show-origin"))
        metrics[name], origin[name] = series.metrics[tag], tag
    # Asked before steps are left out: the last one may be among them.
    short = short_run(Series(metrics), settings.steps, EXPECTED)
    thinned = _thinned(metrics, settings)
    if isinstance(thinned, Finding):
        return Series({}), (*findings, thinned)
    for name, metric in thinned.items():
        if settings.precision is not None:
            # Python rounds the decimal number; numpy scales, rounds and scales back, which can be off by one.
            values = [
                round(value, settings.precision) if isfinite(value) else value for value in metric.values.tolist()
            ]
            metric = replace(metric, values=np.array(values, np.float64))  # noqa: PLW2901
        if steps := metric.steps.tolist():
            # With its first and last step and its interval, as a block declares them.
            guess = settings.interval or (steps[-1] - steps[-2] if len(steps) > 1 else 1)
            fits = implied_steps(len(steps), steps[0], guess) == steps
            metric = replace(metric, start=steps[0], end=steps[-1], interval=guess if fits else 1)  # noqa: PLW2901
        thinned[name] = metric
    return replace(series, metrics=thinned), (*findings, *([short] if short else []))


def _thinned(metrics: Mapping[str, Metric], settings: RecordSettings) -> dict[str, Metric] | Finding:
    """Every metric on the same steps, as Megatron keeps them; NaN where one has no sample."""
    sampled = [m.steps for m in metrics.values() if len(m.steps)]
    interval, start = settings.interval, settings.start
    if not sampled or (interval is None and start is None):
        return dict(metrics)
    start = min(int(steps[0]) for steps in sampled) if start is None else start
    if interval is None:
        kept = {name: metric.steps >= start for name, metric in metrics.items()}
        return {name: replace(m, steps=m.steps[kept[name]], values=m.values[kept[name]]) for name, m in metrics.items()}
    # The start, and the multiples of the interval up to the end.
    end = max(int(steps[-1]) for steps in sampled)
    first = (start // interval + 1) * interval
    count = max(0, (end - first) // interval + 1)
    if count > _MOST_STEPS:
        said = (
            f"expected at most {_MOST_STEPS:,} steps between the first and the last one to keep, found"
            f" {count:,}; a larger interval, or another start, makes them fewer"
        )
        return fail("unreadable", said, numbers={"steps": count}, next="karat config --show-origin")
    wanted = np.full(1 + count if end >= start else 0, start, np.int64)
    wanted[1:] = np.arange(count) * interval + first if count else 0
    found = {}
    for name, metric in metrics.items():
        values = np.full(len(wanted), np.nan)
        _, here, there = np.intersect1d(wanted, metric.steps, assume_unique=True, return_indices=True)
        values[here] = metric.values[there]
        found[name] = replace(metric, steps=wanted, values=values)
    return found


def last_step(series: Series) -> int | None:
    finite = [m.steps[np.isfinite(m.values)] for m in series.metrics.values()]
    return max((int(steps[-1]) for steps in finite if len(steps)), default=None)


def short_run(series: Series, expected: int | None, because: str) -> Finding | None:
    """The finding that a run ended before its expected last step, or None."""
    if expected is None or not series.metrics:
        return None
    last = last_step(series)
    # A golden that keeps every tenth step of 1,005 ends at 1,000, and is whole.
    expected -= expected % min(metric.interval or 1 for metric in series.metrics.values())
    if last is not None and last >= expected:
        return None
    found = "no finite value at all" if last is None else f"the last finite value at step {last}"
    return fail(
        "short-run",
        f"expected a run up to step {expected} ({because}), found {found}: it died or was cut off",
        where=None if last is None else f"step {last}",
        numbers={"last_step": last, "expected_last_step": expected},
    )


def ends_behind(last: int | None, furthest: int | None) -> Finding | None:
    """The finding that a text of steps, some of them twice, ends before a step that it had reached."""
    if last is None or furthest is None or last >= furthest:
        return None
    said = (
        f"expected the last step at the end, found that it went to step {furthest}, then back, and ends at"
        f" step {last}: if it was restarted, the steps behind are of the run before"
    )
    return warn("superseded", said, where=f"step {last}", numbers={"last_step": last, "furthest_step": furthest})


def findings_of_runs(
    repeats: Sequence[Repeat], old: Golden | None, settings: RecordSettings, wanted: Sequence[str]
) -> list[Finding]:
    """What is wrong with the runs themselves, before any comparison of values."""
    expected = settings.steps
    if expected is None and isinstance(old, Series) and not wanted:
        expected = last_step(old)
    findings: list[Finding] = []
    for repeat in repeats:
        found = list(repeat.reading.findings)
        run = repeat.reading.golden
        if isinstance(run, Series):
            if not run.scalars and last_step(run) is None:
                # A golden of nothing would pass whatever it is compared with.
                message = f"expected a finite value among the steps to keep, found none in {repeat.path}"
                found.append(fail("empty", message, path=repeat.path))
            short = short_run(run, expected, "the old golden's last step")
            if short is not None and settings.steps is None:
                found.append(replace(short, path=repeat.path))
        # A cut file is no crash of a run that came to its end; where nobody knows the end, it is.
        ended = expected is not None and all(finding.kind != "short-run" for finding in found)
        cut = Severity.WARN if ended else Severity.FAIL
        findings += [replace(f, severity=cut) if f.kind == "truncated" else f for f in found]
    asked = matching(old, wanted)
    for repeat in repeats:
        # Metrics of the golden that --metric asks for and a run does not have.
        run = repeat.reading.golden
        for name in sorted(set(asked) - set(names_in(run))) if run is not None else ():
            message = f'expected "{name}", which --metric asks for and the golden has, found none in {repeat.path}'
            findings.append(fail("lost-metric", message, path=repeat.path, metric=name))
    series = [r.reading.golden for r in repeats if isinstance(r.reading.golden, Series)]
    if len(repeats) > 1 and len(series) == len(repeats):
        findings += copies(repeats)
        findings += disagreements([repeat.path for repeat in repeats], series)
    return findings


def new_golden(repeats: Sequence[Repeat], old: Golden | None, wanted: Sequence[str], form: str | None) -> Golden | None:
    """The golden that the runs make, which is that of the first; None if one of them could not be read."""
    goldens = [golden for r in repeats if (golden := r.reading.golden) is not None]
    if len(goldens) < len(repeats):
        return None
    series = [golden for golden in goldens if isinstance(golden, Series)]
    if len(series) == len(goldens):
        before = old if isinstance(old, Series) else None
        return onto(before, series[0], wanted, declare=form in {None, "series-json"})
    if len(goldens) > 1 or wanted:
        shapes = ", ".join(sorted({golden.shape for golden in goldens}))
        said = f"expected series where there are several runs, or --metric, found: {shapes}"
        raise UsageError(said, next_command="karat record --help")
    return goldens[0]


def settings_like(golden: Golden | None, settings: RecordSettings) -> RecordSettings:
    """The settings with the start and interval that all curves of a golden declare, unless said otherwise."""
    if not isinstance(golden, Series) or settings.interval is not None:
        return settings
    declared = {(m.start, m.interval) for m in golden.metrics.values()}
    start, interval = declared.pop() if len(declared) == 1 else (None, None)
    if interval is None or interval <= 1:
        return settings
    start = start if settings.start is None else settings.start
    return replace(settings, interval=interval, start=start)


def onto(old: Series | None, new: Series, wanted: Sequence[str], *, declare: bool) -> Series:
    """The new golden: the run's metrics, in the old one's order and with what it declares.

    With `wanted` globs only those metrics are taken, and the rest of the old golden stays as it was.
    `declare` says whether a metric that the old one does not have may carry start, end and interval.
    """
    before = old or Series({})
    chosen = new
    if wanted:
        known = [*names_in(new), *names_in(before)]
        unmatched = [glob for glob in wanted if not any(fnmatchcase(name, glob) for name in known)]
        kept = set(matching(new, wanted))
        if unmatched or not kept:
            globs, there = ", ".join(unmatched or wanted), ", ".join(names_in(new)) or "none"
            said = f"--metric {globs}: expected a metric that matches, found {there}"
            raise UsageError(said, next_command="karat record --help")
        chosen = Series(
            {name: metric for name, metric in new.metrics.items() if name in kept},
            {name: value for name, value in new.scalars.items() if name in kept},
            {name: value for name, value in new.others.items() if name in kept},
        )
    metrics: dict[str, Metric] = {}
    for name, metric in before.metrics.items():
        if name in chosen.metrics:
            metrics[name] = _like(chosen.metrics[name], metric)
        elif wanted:
            metrics[name] = metric
    for name, metric in chosen.metrics.items():
        metrics.setdefault(name, metric if declare else _bare(metric))
    if not wanted:
        return replace(chosen, metrics=metrics)
    return Series(metrics, {**before.scalars, **chosen.scalars}, {**before.others, **chosen.others})


def matching(golden: Golden | None, wanted: Sequence[str]) -> list[str]:
    """The names in a series that match one of the globs."""
    return [n for n in names_in(golden) if any(fnmatchcase(n, glob) for glob in wanted)]


def names_in(golden: Golden | None) -> list[str]:
    """Every name of a series; none of any other shape."""
    if not isinstance(golden, Series):
        return []
    return [*golden.metrics, *golden.scalars, *golden.others]


def _bare(metric: Metric) -> Metric:
    return replace(metric, start=None, end=None, interval=None)


def _like(metric: Metric, old: Metric) -> Metric:
    """The curve with what the old block declares, as far as it is still true."""
    metric = replace(metric, precision=old.precision, extra=old.extra)
    if old.start is None and old.end is None and old.interval is None:
        return _bare(metric)
    steps = metric.steps.tolist()
    if not steps:
        return metric
    interval = old.interval or 1
    fits = implied_steps(len(steps), steps[0], interval) == steps
    end = steps[-1]
    if old.end is not None and end <= old.end - old.listed < end + interval:
        end = old.end  # an end_step of 2000 over every 30th step is still what the test means
    return replace(metric, start=steps[0], end=end, interval=interval if fits else metric.interval)
