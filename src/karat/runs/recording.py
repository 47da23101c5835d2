"""Recording: a run's curves put in the place of a golden's, in the form that the golden has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
from msgspec import structs

from karat.findings import Finding, Severity, UsageError
from karat.goldens.series_block import implied_steps
from karat.goldens.shapes import Golden, Metric, Series
from karat.runs.repeats import Combine, Repeat, combined, copies, disagreements
from karat.runs.settings import RecordSettings
from karat.runs.shaping import last_step, short_run


def said_by_runs(
    repeats: Sequence[Repeat], old: Golden | None, settings: RecordSettings, wanted: Sequence[str]
) -> list[Finding]:
    """What the runs themselves give reason to say, before any comparison of values."""
    expected = settings.steps
    if expected is None and isinstance(old, Series) and not wanted:
        expected = last_step(old)
    findings = [f for repeat in repeats for f in _of_run(repeat, expected, settings)]
    series = [r.reading.golden for r in repeats if isinstance(r.reading.golden, Series)]
    if wanted and isinstance(old, Series):
        findings += [f for r in repeats for f in _wanted_in_vain(r, old, wanted)]
    if len(repeats) > 1 and len(series) == len(repeats):
        findings += copies(repeats)
        findings += disagreements([repeat.path for repeat in repeats], series)
    return findings


def _of_run(repeat: Repeat, expected: int | None, settings: RecordSettings) -> list[Finding]:
    found = list(repeat.reading.findings)
    golden = repeat.reading.golden
    if isinstance(golden, Series) and not golden.scalars and last_step(golden) is None:
        found.append(_no_value(repeat.path))
    if settings.steps is None and isinstance(golden, Series):
        short = short_run(golden, expected, "the old golden's last step")
        found += [replace(short, path=repeat.path)] if short is not None else []
    # A cut file is no crash of a run that came to its end; where nobody knows the end, it is.
    ended = expected is not None and all(finding.kind != "short-run" for finding in found)
    severity = Severity.WARN if ended else Severity.FAIL
    return [replace(f, severity=severity) if f.kind == "truncated" else f for f in found]


def _no_value(path: str) -> Finding:
    # A golden of nothing would pass whatever it is compared with.
    return Finding(
        kind="empty",
        severity=Severity.FAIL,
        message=f"expected a finite value among the steps to keep, found none in {path}",
        path=path,
    )


def _wanted_in_vain(repeat: Repeat, old: Series, wanted: Sequence[str]) -> list[Finding]:
    """Metrics of the golden that --metric asks for and a run does not have."""
    run = repeat.reading.golden
    lost = sorted(set(matching(old, wanted)) - set(names_in(run))) if run is not None else ()
    return [
        Finding(
            kind="lost-metric",
            severity=Severity.FAIL,
            message=f'expected "{name}", which --metric asks for and the golden has, found none in {repeat.path}',
            path=repeat.path,
            metric=name,
        )
        for name in lost
    ]


def new_golden(
    repeats: Sequence[Repeat],
    combine: Combine,
    old: Golden | None,
    wanted: Sequence[str],
    form: str | None,
) -> Golden | None:
    """The golden that the runs make; None if one of them could not be read."""
    goldens = [repeat.reading.golden for repeat in repeats]
    if any(golden is None for golden in goldens):
        return None
    series = [golden for golden in goldens if isinstance(golden, Series)]
    if len(series) == len(goldens):
        return onto(
            old if isinstance(old, Series) else None,
            combined(series, combine),
            wanted,
            declare=form in {None, "series-json"},
        )
    if len(goldens) > 1 or wanted:
        shapes = ", ".join(sorted({golden.shape for golden in goldens if golden is not None}))
        raise UsageError(
            f"expected series where there are several runs, or --metric, found: {shapes}",
            next_command="karat record --help",
        )
    return goldens[0]


def settings_like(golden: Golden | None, settings: RecordSettings) -> RecordSettings:
    """The settings with the start and interval that all curves of a golden declare, unless said otherwise."""
    if not isinstance(golden, Series) or settings.interval is not None:
        return settings
    declared = {(m.start, m.interval) for m in golden.metrics.values()}
    if len(declared) != 1:
        return settings
    start, interval = declared.pop()
    if interval is None or interval <= 1:
        return settings
    return structs.replace(
        settings, interval=interval, start=start if settings.start is None else settings.start
    )


def onto(old: Series | None, new: Series, wanted: Sequence[str], *, declare: bool) -> Series:
    """The new golden: the run's metrics, in the old one's order and with what it declares.

    With `wanted` globs only those metrics are taken, and the rest of the old golden stays as it was.
    `declare` says whether a metric that the old one does not have may carry start, end and interval.
    """
    before = old or Series({})
    chosen = _chosen(new, wanted, before)
    metrics: dict[str, Metric] = {}
    for name, metric in before.metrics.items():
        if name in chosen.metrics:
            metrics[name] = _like(chosen.metrics[name], metric)
        elif wanted:
            metrics[name] = metric
    for name, metric in chosen.metrics.items():
        metrics.setdefault(name, metric if declare else _bare(metric))
    if not wanted:
        return structs.replace(chosen, metrics=metrics)
    return Series(metrics, {**before.scalars, **chosen.scalars}, {**before.others, **chosen.others})


def matching(golden: Golden, wanted: Sequence[str]) -> list[str]:
    """The names in a series that match one of the globs."""
    return [n for n in names_in(golden) if any(fnmatchcase(n, glob) for glob in wanted)]


def names_in(golden: Golden | None) -> list[str]:
    """Every name of a series; none of any other shape."""
    if not isinstance(golden, Series):
        return []
    return [*golden.metrics, *golden.scalars, *golden.others]


def _chosen(new: Series, wanted: Sequence[str], before: Series) -> Series:
    if not wanted:
        return new
    known = [*names_in(new), *names_in(before)]
    vain = [glob for glob in wanted if not any(fnmatchcase(name, glob) for name in known)]
    kept = set(matching(new, wanted))
    if vain or not kept:
        raise UsageError(
            f"--metric {', '.join(vain or wanted)}: expected a metric that matches, found"
            f" {', '.join(names_in(new)) or 'none'}",
            next_command="karat record --help",
        )
    return Series(
        {name: metric for name, metric in new.metrics.items() if name in kept},
        {name: value for name, value in new.scalars.items() if name in kept},
        {name: value for name, value in new.others.items() if name in kept},
    )


def _bare(metric: Metric) -> Metric:
    return structs.replace(metric, start=None, end=None, interval=None)


def _like(metric: Metric, old: Metric) -> Metric:
    """The curve with what the old block declares, as far as it is still true."""
    if old.start is None and old.end is None and old.interval is None:
        return structs.replace(_bare(metric), precision=old.precision, extra=old.extra)
    steps = metric.steps.tolist()
    if not steps:
        return structs.replace(metric, precision=old.precision, extra=old.extra)
    interval = old.interval or 1
    fits = implied_steps(len(steps), steps[0], interval) == steps
    end = steps[-1]
    if old.end is not None and end <= old.end < end + interval:
        end = old.end  # an end_step of 2000 over every 30th step is still what the test means
    return Metric(
        metric.steps, metric.values, steps[0], end, interval if fits else metric.interval,
        old.precision, old.extra,
    )  # fmt: skip


def up_to(golden: Golden | None, last: int) -> Golden | None:
    """The golden without the steps behind `last`, for those who say that a run ends there."""
    if not isinstance(golden, Series):
        return golden
    return structs.replace(
        golden, metrics={name: _cut(metric, last) for name, metric in golden.metrics.items()}
    )


def _cut(metric: Metric, last: int) -> Metric:
    kept = int(np.searchsorted(metric.steps, last, side="right"))
    end = metric.end if metric.end is None else min(metric.end, last)
    return structs.replace(metric, steps=metric.steps[:kept], values=metric.values[:kept], end=end)


def accepted_incomplete(objections: Sequence[Finding]) -> Finding:
    """The finding that a golden was taken although others object."""
    kinds = ", ".join(sorted({f.kind for f in objections}))
    return Finding(
        kind="accepted-incomplete",
        severity=Severity.WARN,
        message=f"taken although {len(objections)} finding(s) object ({kinds}), because --accept-incomplete says so",
        numbers={"objections": len(objections)},
    )


def shortened(steps: int, last: int) -> Finding:
    """The finding that a golden ends earlier from now on, as its owner said."""
    return Finding(
        kind="lost-steps",
        severity=Severity.INFO,
        message=f"the golden ends at step {steps} from now on, as said; it went to step {last}",
        numbers={"last_step": steps, "old_last_step": last},
    )


def mixed_samples(verdict: str, earlier: int) -> list[Finding]:
    """The finding that a golden moved away from the samples that are kept beside it."""
    if verdict not in {"drift", "break"}:
        return []
    message = (
        f"the values moved, and {earlier} earlier sample(s) are of the curve before: a tolerance made of both"
        " would be as wide as the change; --replace-samples forgets them"
    )
    return [
        Finding(
            kind="superseded",
            severity=Severity.WARN,
            message=message,
            numbers={"samples": earlier},
        )
    ]
