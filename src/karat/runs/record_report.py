"""What recording did: for people as lines, for programs as schema karat.record/1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import isfinite
from typing import Any

import msgspec

from karat.findings import Finding, Severity
from karat.goldens.shapes import Golden, Reading, Series, Table
from karat.report.json import encode, finding_json
from karat.report.words import count
from karat.runs.repeats import Repeat

SCHEMA = "karat.record/1"


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, old golden against new."""

    metric: str
    verdict: str
    because: str
    n_steps: int = 0
    avg_rel_diff: float | None = None
    max_abs_rel_diff: float | None = None
    first_diff_step: int | str | None = None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ACTUAL as it was read."""

    path: str
    format: str | None = None
    shape: str | None = None
    metrics: int = 0
    """Curves of a series, rows of a table."""
    first_step: int | None = None
    last_step: int | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that recording one golden came to."""

    golden: str
    state: str
    """`written`, `unchanged`, `would-write` (--dry-run) or `refused`."""
    verdict: str | None
    """None where nothing could be compared, because nothing could be read."""
    runs: tuple[RunRow, ...]
    metrics: tuple[MetricRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    combine: str | None = None
    accepted_incomplete: bool = False
    lock: bool = False
    """Whether goldens.lock.json has a new line for it."""
    samples: str | None = None
    samples_runs: int = 0
    next: str | None = None


def metric_rows(changes: Iterable[Any]) -> tuple[MetricRow, ...]:
    """The rows of metrics that were compared; `runs` does not know who compares."""
    names = MetricRow.__struct_fields__
    return tuple(MetricRow(**{name: getattr(one, name) for name in names}) for one in changes)


def reported(findings: Iterable[Finding], state: str) -> tuple[Finding, ...]:
    """Each finding once; of a golden that was taken, none objects any more."""
    once = list({(f.kind, f.message, f.path): f for f in findings}.values())
    if state == "refused":
        return tuple(once)
    # What was written in the golden's own style is not written otherwise.
    kept = [f for f in once if state != "unchanged" or f.kind != "format-only"]
    return tuple(
        replace(f, severity=Severity.WARN) if f.severity is Severity.FAIL else f for f in kept
    )


def run_row(repeat: Repeat) -> RunRow:
    """What there is to say about one ACTUAL."""
    reading: Reading = repeat.reading
    first, last = _span(reading.golden)
    return RunRow(
        path=repeat.path,
        format=reading.format,
        shape=reading.golden.shape if reading.golden is not None else None,
        metrics=_size(reading.golden),
        first_step=first,
        last_step=last,
    )


def _size(golden: Golden | None) -> int:
    if isinstance(golden, Series):
        return len(golden.metrics) + len(golden.scalars)
    return len(golden.rows) if isinstance(golden, Table) else int(golden is not None)


def _span(golden: Golden | None) -> tuple[int | None, int | None]:
    if not isinstance(golden, Series):
        return None, None
    steps = [m.steps for m in golden.metrics.values() if len(m.steps)]
    if not steps:
        return None, None
    return min(int(s[0]) for s in steps), max(int(s[-1]) for s in steps)


def document(recorded: Recorded) -> bytes:
    """The JSON text of a report."""
    data: dict[str, Any] = {"schema": SCHEMA, **msgspec.to_builtins(recorded)}
    data["findings"] = [finding_json(finding) for finding in recorded.findings]
    return encode(data)


def lines(recorded: Recorded) -> Iterator[str]:
    """The report for people."""
    for run in recorded.runs:
        yield f"read {run.path}: {_described(run)}"
    if recorded.verdict is not None:
        yield f"{recorded.golden}: {recorded.verdict}"
    width = max((len(row.metric) for row in recorded.metrics), default=0)
    for row in recorded.metrics:
        yield f"  {row.metric:{width}}  {row.verdict:10}  {_moved(row)}".rstrip()
    for finding in sorted(recorded.findings, key=lambda f: f.severity.rank):
        yield f"{finding.severity.value:4}  {finding.kind}: {finding.message}"
    yield _outcome(recorded)
    if recorded.lock:
        yield "noted where it came from in goldens.lock.json"
    if recorded.samples is not None:
        verb = "would keep" if recorded.state == "would-write" else "kept"
        yield f"{verb} the samples of {count(recorded.samples_runs, 'run')} in {recorded.samples}"


def _described(run: RunRow) -> str:
    if run.shape is None:
        return "nothing that could be taken"
    noun = {"series": "metric", "table": "row"}.get(run.shape, "document")
    steps = f", steps {run.first_step}–{run.last_step}" if run.first_step is not None else ""
    return f"{count(run.metrics, noun)}{steps} ({run.format})"


def _moved(row: MetricRow) -> str:
    if row.avg_rel_diff is None or not isfinite(row.avg_rel_diff):
        return row.because
    largest = "" if row.max_abs_rel_diff is None else f", max |·| {row.max_abs_rel_diff:.2e}"
    return f"avg {row.avg_rel_diff:+.2e}{largest} over {count(row.n_steps, 'step')}"


def _outcome(recorded: Recorded) -> str:
    how = f", {recorded.combine} of {len(recorded.runs)} runs" if len(recorded.runs) > 1 else ""
    return {
        "written": f"wrote {recorded.golden}{how}",
        "unchanged": f"{recorded.golden} already holds exactly this; not touched",
        "would-write": f"would write {recorded.golden}{how} (--dry-run)",
        "refused": f"refused: {recorded.golden} was left as it is",
    }[recorded.state]
