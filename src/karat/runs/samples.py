"""Samples: the repeats behind a golden, kept beside it so that its noise is known later.

`golden_values.json` has its samples in `golden_values.samples.json`, schema karat.samples/1. Each run
is one line per metric, so that a diff shows what came in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import numpy as np

from karat.findings import CannotVerify
from karat.goldens.shapes import Metric, Series
from karat.runs.repeats import Repeat, grid, names_of

SCHEMA = "karat.samples/1"
SUFFIX = ".samples.json"


class SampledRun(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat: what it was called, and the checksum of what it was read from."""

    name: str
    sha256: str


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """The repeats of one golden."""

    runs: tuple[SampledRun, ...] = ()
    series: tuple[Series, ...] = ()
    """One per run, curves only."""

    def plus(self, other: Samples) -> Samples:
        """These and those of the others that are not among them, by name and bytes."""
        known = set(self.runs)
        new = [(r, s) for r, s in zip(other.runs, other.series, strict=True) if r not in known]
        return Samples(
            runs=(*self.runs, *(run for run, _ in new)),
            series=(*self.series, *(series for _, series in new)),
        )


class _Block(msgspec.Struct, frozen=True):
    steps: list[int]
    values: list[list[float | str | None]]


class _File(msgspec.Struct, frozen=True, rename={"schema_name": "schema"}):
    schema_name: str
    runs: list[SampledRun]
    metrics: dict[str, _Block]


def samples_of(repeats: Sequence[Repeat]) -> Samples:
    """The curves of repeats, as samples."""
    found = [(r, r.reading.golden) for r in repeats if isinstance(r.reading.golden, Series)]
    return Samples(
        runs=tuple(SampledRun(name=Path(r.path).name, sha256=r.sha256) for r, _ in found),
        series=tuple(Series(series.metrics) for _, series in found),
    )


def samples_path(golden: Path) -> Path:
    """Where the samples of a golden are kept."""
    return golden.with_name(golden.stem + SUFFIX)


def read_samples(path: Path) -> Samples:
    """The samples in a file; none where there is no file."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        if file.schema_name != SCHEMA:
            raise ValueError(f"the schema {file.schema_name}")  # noqa: TRY301 - worded below like the rest
        return _samples(file)
    except FileNotFoundError:
        return Samples()
    except OSError as error:
        raise CannotVerify(
            f"expected to read the samples in {path}, but: {error.strerror}",
            next_command=f"ls -l {quote(str(path))}",
        ) from error
    except (ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise CannotVerify(
            f"expected {SCHEMA} in {path}, found: {error}",
            next_command=f"git checkout -- {quote(str(path))}",
        ) from error


def _samples(file: _File) -> Samples:
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
    blocks = ",\n".join(
        f"    {_json(name)}: {_block([one.metrics.get(name) for one in samples.series])}"
        for name in sorted(names_of(samples.series))
    )
    text = f'{{\n  "schema": "{SCHEMA}",\n  "runs": [\n{runs}\n  ],\n  "metrics": {{\n{blocks}\n  }}\n}}\n'
    return text.encode("utf-8", "backslashreplace")


def _block(metrics: Sequence[Metric | None]) -> str:
    steps, _ = grid(metrics)
    rows = []
    for metric in metrics:
        held: Mapping[int, float] = (
            {}
            if metric is None
            else dict(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))
        )
        rows.append(f"        {_json([_raw(held.get(step)) for step in steps.tolist()])}")
    values = ",\n".join(rows)
    return (
        f'{{\n      "steps": {_json(steps.tolist())},\n      "values": [\n{values}\n      ]\n    }}'
    )


def _raw(value: float | None) -> float | str | None:
    """JSON has no word for NaN and infinities; null is a step that the run did not have."""
    return value if value is None or math.isfinite(value) else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
