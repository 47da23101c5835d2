"""Repeats: several runs of one test, and what they disagree about.

They are kept beside the golden, so that its noise is known later: `golden_values.json` has its samples in
`golden_values.samples.json`, schema karat.samples/1. Each run is one line per metric, so that a diff shows
what came in.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from karat.findings import CannotVerify, Finding, UsageError, fail, warn
from karat.goldens.paths import SAMPLES
from karat.goldens.shapes import Metric, Reading, Series, Steps, Values
from karat.report.words import count
from karat.system.command import Command
from karat.system.files import expecting
from karat.system.foreign.limits import GOLDEN, read_plain

SCHEMA = "karat.samples/1"


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One run that was read."""

    path: str
    reading: Reading
    sha256: str = ""  # Of the bytes it was read from, so that one run is never counted as two.


def distinct(names: Sequence[str]) -> list[Path]:
    """The paths of runs; one that is named twice would be counted as two."""
    seen: dict[Path, str] = {}
    for name in names:
        place = Path(name).resolve()
        if place in seen:
            said = f"expected different runs, found {seen[place]} and {name}, which are the same"
            raise UsageError(said, next_command="karat record --help")
        seen[place] = name
    return [Path(name) for name in names]


def fingerprint(path: Path) -> str:
    """The sha256 of a file, or of all files of a folder with their names; an OSError is the caller's."""
    whole = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if len(files) > 1:
            name = f"{file.relative_to(path).as_posix()}\0"
            whole.update(name.encode("utf-8", "surrogateescape"))
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: whole)
    return whole.hexdigest()


def copies(repeats: Sequence[Repeat]) -> Iterator[Finding]:
    """Repeats with equal bytes: most likely one run under two names, which says nothing of noise."""
    seen: dict[str, str] = {}
    for repeat in repeats:
        if repeat.sha256 in seen:
            yield warn(
                "claimed-twice",
                f"expected different runs, found the same bytes in {seen[repeat.sha256]} and {repeat.path};"
                " a copy says nothing of noise",
                path=repeat.path,
            )
        elif repeat.sha256:
            seen[repeat.sha256] = repeat.path


def grid(metrics: Sequence[Metric | None]) -> tuple[Steps, Values]:
    """The steps that any of the curves has, and a row of values per curve; NaN where it has none."""
    steps = np.unique(np.concatenate([m.steps for m in metrics if m is not None] or [np.empty(0, np.int64)]))
    values = np.full((len(metrics), len(steps)), np.nan)
    for row, metric in zip(values, metrics, strict=True):
        if metric is not None:
            row[np.searchsorted(steps, metric.steps)] = metric.values
    return steps.astype(np.int64), values


def names_of(series: Sequence[Series]) -> list[str]:
    """Every metric of any of the series, in the order of their appearance."""
    return list(dict.fromkeys(name for one in series for name in one.metrics))


def disagreements(paths: Sequence[str], series: Sequence[Series]) -> Iterator[Finding]:
    """Metrics and steps that one repeat has and another has not."""
    for name in names_of(series):
        metrics = [one.metrics.get(name) for one in series]
        steps, values = grid(metrics)
        finite = np.isfinite(values)
        some = finite.any(axis=0)
        for path, metric, row in zip(paths, metrics, finite, strict=True):
            lost = steps[some & ~row]
            if metric is None:
                message = f'expected "{name}" in every repeat, found none in {path}'
                yield fail("lost-metric", message, path=path, metric=name)
            elif lost.size:
                first = int(lost[0])
                kind, what = "lost-steps", "nothing"
                if np.isin(lost, metric.steps).any():
                    kind, what = "new-nan", "NaN, an infinity or nothing"
                yield fail(
                    kind,
                    f"{name}: expected a finite value at every step that another repeat has one at, found {what} at"
                    f" {count(len(lost), 'step')} of {path}, first at step {first}",
                    path=path,
                    metric=name,
                    where=f"step {first}",
                    numbers={"steps": len(lost), "first_step": first},
                )


class SampledRun(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat: what it was called, and the checksum of what it was read from."""

    name: str
    sha256: str


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """The repeats of one golden."""

    runs: tuple[SampledRun, ...] = ()
    series: tuple[Series, ...] = ()  # One per run, curves only.

    def plus(self, other: Samples) -> Samples:
        """These and those of the others that are not among them, by name and bytes."""
        known = set(self.runs)
        new = [(r, s) for r, s in zip(other.runs, other.series, strict=True) if r not in known]
        return Samples(
            runs=(*self.runs, *(run for run, _ in new)), series=(*self.series, *(series for _, series in new))
        )


class _SampledMetric(msgspec.Struct, frozen=True):
    steps: list[int]
    values: list[list[float | str | None]]


class _SamplesFile(msgspec.Struct, frozen=True, rename={"schema_name": "schema"}):
    schema_name: str
    runs: list[SampledRun]
    metrics: dict[str, _SampledMetric]


def samples_of(repeats: Sequence[Repeat]) -> Samples:
    """The curves of repeats, as samples."""
    found = [(r, r.reading.golden) for r in repeats if isinstance(r.reading.golden, Series)]
    return Samples(
        runs=tuple(SampledRun(name=Path(r.path).name, sha256=r.sha256) for r, _ in found),
        series=tuple(Series(series.metrics) for _, series in found),
    )


def samples_path(golden: Path) -> Path:
    return golden.with_name(golden.stem + SAMPLES)


def read_samples(path: Path) -> Samples:
    """The samples in a file; none where there is no file."""
    data = None
    with expecting(f"read the samples in {path}", path), suppress(FileNotFoundError):
        data = read_plain(path, GOLDEN)
    try:
        return Samples() if data is None else _samples(msgspec.json.decode(data, type=_SamplesFile))
    except (ValueError, OverflowError, RecursionError) as error:
        said = f"expected {SCHEMA} in {path}, found: {error}"
        raise CannotVerify(said, next_command=Command("git", "checkout", "--", str(path))) from error


def _samples(file: _SamplesFile) -> Samples:
    if file.schema_name != SCHEMA:
        raise ValueError(f"the schema {file.schema_name}")
    series: list[dict[str, Metric]] = [{} for _ in file.runs]
    for name, block in file.metrics.items():
        if len(block.values) != len(file.runs):
            raise ValueError(f"{len(block.values)} samples of {name} for {len(file.runs)} runs")
        steps = np.array(block.steps, np.int64)
        if (steps[1:] <= steps[:-1]).any():
            raise ValueError(f"steps of {name} that do not ascend")
        for one, raws in zip(series, block.values, strict=True):
            if len(raws) != len(steps):
                raise ValueError(f"{len(raws)} values of {name} for {len(steps)} steps")
            there = np.array([raw is not None for raw in raws], bool)
            values = np.array([float(raw) for raw in raws if raw is not None], np.float64)
            if there.any():
                one[name] = Metric(steps[there], values)
    return Samples(runs=tuple(file.runs), series=tuple(Series(metrics) for metrics in series))


def render_samples(samples: Samples) -> bytes:
    """The bytes of a samples file: one line per run and metric."""
    runs = ",\n".join(f"    {_json({'name': r.name, 'sha256': r.sha256})}" for r in samples.runs)
    blocks = []
    for name in sorted(names_of(samples.series)):
        metrics = [one.metrics.get(name) for one in samples.series]
        steps = grid(metrics)[0].tolist()
        rows = []
        for metric in metrics:
            pairs = zip(metric.steps.tolist(), metric.values.tolist(), strict=True) if metric else ()
            # JSON has no word for NaN and infinities; null is a step that the run did not have.
            held = {step: value if math.isfinite(value) else str(value) for step, value in pairs}
            rows.append(f"        {_json([held.get(step) for step in steps])}")
        values = ",\n".join(rows)
        blocks.append(
            f'    {_json(name)}: {{\n      "steps": {_json(steps)},\n      "values": [\n{values}\n      ]\n    }}'
        )
    held_by = ",\n".join(blocks)
    text = f'{{\n  "schema": "{SCHEMA}",\n  "runs": [\n{runs}\n  ],\n  "metrics": {{\n{held_by}\n  }}\n}}\n'
    return text.encode("utf-8", "backslashreplace")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
