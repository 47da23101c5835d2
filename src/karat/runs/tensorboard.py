"""TensorBoard event files → curves by tag.

Read by hand, frames and messages both. The tensorboard package needs grpc, protobuf and werkzeug,
takes half a second to import and twenty times as long to read, and stops without a word at the first
record that is cut or corrupt; but a cut event file *is* the evidence of a crash, and this is where it
must be noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from karat.findings import Finding, Severity
from karat.goldens.hazards import Few
from karat.goldens.shapes import Metric, Steps, Values
from karat.runs.event_records import records
from karat.runs.event_scalars import Scalars


class EventFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one event file holds."""

    name: str
    first: float
    last: float
    """Wall times of its earliest and latest event."""
    curves: dict[str, tuple[Steps, Values]]
    """Tag → steps and values, sorted by step; the last value of a step."""
    again: int = 0
    """Values that a later one of the same tag and step replaced."""


def read_events(paths: Sequence[Path]) -> tuple[dict[str, Metric], tuple[Finding, ...]]:
    """The curves of one run, by tag, from all of its event files; an OSError is the caller's."""
    odd = Few()
    files = [read_file(path, odd) for path in paths]
    files.sort(key=lambda file: (file.first, file.name))
    curves: dict[str, tuple[Steps, Values]] = {}
    replaced = sum(file.again for file in files)
    for file in files:
        for tag, (steps, values) in file.curves.items():
            before = curves.get(tag)
            if before is not None:
                kept = before[0] < steps[0]
                replaced += int(len(kept) - kept.sum())
                steps = np.concatenate([before[0][kept], steps])  # noqa: PLW2901
                values = np.concatenate([before[1][kept], values])  # noqa: PLW2901
            curves[tag] = steps, values
    if replaced:
        odd.add(_restarted(replaced, len(files)))
    for overlap in _overlaps(files):
        odd.add(overlap)
    return {tag: Metric(*curve) for tag, curve in curves.items()}, odd.findings()


def read_file(path: Path, odd: Few) -> EventFile:
    """The scalars of one file; `odd` hears what is wrong with it."""
    found = Scalars()

    def note(finding: Finding) -> None:
        odd.add(replace(finding, path=str(path)))

    with path.open("rb") as stream:
        for batch in records(stream, note):
            found.add(batch)
    for number in found.malformed:
        note(_malformed(number))
    curves = {}
    again = 0
    for tag, curve in found.curves.items():
        if len(curve.steps):
            steps, values, doubled = _last_of_each(
                np.array(curve.steps, np.int64), np.array(curve.values, np.float64)
            )
            curves[tag.decode("utf-8", "replace")] = steps, values
            again += doubled
    return EventFile(name=path.name, first=found.first, last=found.last, curves=curves, again=again)


def _last_of_each(steps: Steps, values: Values) -> tuple[Steps, Values, int]:
    """Sorted by step, with the last value of each; what a restart left behind it is gone.

    Steps that come out of order are only sorted. A step that comes again is a restart from there:
    later steps that stood before it are of the attempt that was given up, as in another file.
    """
    if bool((steps[1:] > steps[:-1]).all()):
        return steps, values, 0
    again = np.ones(len(steps), bool)
    again[np.unique(steps, return_index=True)[1]] = False
    largest = np.iinfo(np.int64).max
    restarts = np.append(np.where(again, steps, largest)[1:], largest)
    # Of all restarts behind a sample, the one that went back furthest.
    back = np.minimum.accumulate(restarts[::-1])[::-1]
    kept = (steps < back) | (back == largest)
    replaced = int(len(kept) - kept.sum())
    steps, values = steps[kept], values[kept]
    order = np.argsort(steps, kind="stable")
    return steps[order], values[order], replaced


def _overlaps(files: Sequence[EventFile]) -> list[Finding]:
    """A restart begins when the run before it has ended; two writers at once are something else."""
    found = []
    for before, after in pairwise(files):
        shared = before.curves.keys() & after.curves.keys()
        if shared and after.first < before.last:
            tag = min(shared)
            found.append(
                Finding(
                    kind="duplicate-key",
                    severity=Severity.WARN,
                    message=f'expected one writer at a time, found "{tag}" in {before.name} and {after.name},'
                    " which overlap in time; the one that began later was read",
                    metric=tag,
                )
            )
    return found


def _restarted(count: int, files: int) -> Finding:
    several = f" over {files} event files" if files > 1 else ""
    return Finding(
        kind="superseded",
        severity=Severity.INFO,
        message=f"{count} value(s) of steps that were gone through again{several}, as after a restart, gave way to"
        " the later ones",
        numbers={"replaced": count},
    )


def _malformed(number: int) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected an event in record {number:,}, found bytes that are no protobuf message",
        where=f"record {number}",
    )
