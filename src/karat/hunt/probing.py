"""Probing: from what a job left to an attempt.

In: a `JobResult`. Out: an `Attempt`: values, a crash with its signature, a hang, or broken: neither good nor bad.

| what happened | outcome |
|---|---|
| the worker was lost; prepare, build, setup or identify failed; a skip exit code; the program could not be started | broken |
| a measured run did not end in time | hang |
| it failed | crash, unless a metric reads failures: exit_code, junit |
| it ran, and a metric has no value, or one that is not finite | crash: `no value for MLUPS`, `MLUPS is nan` |
| `identify` says that another commit was under test than the point's | broken |
| a golden could not be held against it | broken |
| a crash is hunted, and this is another | broken |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from karat.changes.series import Outcome
from karat.changes.signatures import signature as signature_of
from karat.engines.job import JobResult, Ran
from karat.hunt import run_reading
from karat.hunt.attempt import Attempt
from karat.hunt.identities import another_than_asked
from karat.hunt.jobs import out_folder
from karat.hunt.metric_agreement import CRASH, better, binary
from karat.hunt.metric_values import Run
from karat.hunt.point import Point
from karat.hunt.run_reading import RunReading
from karat.hunt.searching import Metric
from karat.hunt.settings import HuntSettings, ProbeSettings
from karat.hunt.timeline import Place
from karat.report.words import printable

_GRAVEST = (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN, Outcome.OK)
_LAST_BYTES = 8192


def metrics_of(settings: HuntSettings) -> tuple[Metric, ...]:
    """What the search looks at: the metrics, and a hunted crash as one of its own, 1 where it happened."""
    listed = [
        Metric(
            name=metric.name,
            better=better(metric),
            threshold=metric.threshold,
            binary=binary(metric),
        )
        for metric in settings.probe.metrics
    ]
    if settings.probe.crash is not None:
        listed.append(Metric(name=CRASH, better="lower", binary=True))
    return tuple(listed)


def read(
    result: JobResult,
    settings: HuntSettings,
    *,
    stage: str,
    point: Point,
    number: int,
    place: Place,
) -> Attempt:
    """The attempt that a job was."""
    attempt = Attempt(
        stage=stage,
        point=point.id,
        number=number,
        outcome=Outcome.BROKEN,
        identity=result.identity,
        identity_key=result.identity_key,
        seconds=result.seconds,
        started=result.started,
        where=result.where,
    )
    if result.lost:
        return msgspec.structs.replace(attempt, note=f"the worker was lost: {_plain(result.lost)}")
    failed = _failed_before(result.ran)
    if failed is not None:
        said, note = _why(failed)
        return msgspec.structs.replace(attempt, signature=said, note=note)
    other = another_than_asked(point, result.identity)
    if other:
        return msgspec.structs.replace(attempt, signature="another commit under test", note=other)
    runs = _runs(result, settings.probe)
    if not runs:
        note = "" if result.shared else "nothing was run"
        return msgspec.structs.replace(attempt, note=note)
    contained = _is_contained(settings, point)
    readings = [run_reading.read(r, settings.probe, place.root, contained=contained) for r in runs]
    return _combined(attempt, readings, result.notes)


def _is_contained(settings: HuntSettings, point: Point) -> bool:
    """Whether commands run inside containers, so that an exit code may be the container engine's."""
    built = (settings.checkouts, settings.commits)
    return "image" in point.parts or any(table and table.container for table in built)


def _failed_before(ran: Sequence[Ran]) -> Ran | None:
    """The command before measuring that failed; after one that may fail, others were run."""
    before = [r for r in ran if r.role in {"prepare", "build", "identify"} and not r.skipped]
    if any(r.role in {"warmup", "measure"} for r in ran):
        return None
    return next((r for r in reversed(before) if _failed(r)), None)


def _failed(ran: Ran) -> bool:
    return bool(ran.error) or ran.timed_out or (ran.exit_code != 0 and not ran.skipped)


def _why(failed: Ran) -> tuple[str, str]:
    """Signature and sentence of a command that kept the point from being tried."""
    name = _plain(failed.name or failed.role)
    if failed.error:
        return (
            f"{name}: could not be started",
            f"{name} could not be started: {_plain(failed.error)}",
        )
    said = signature_of(failed.output, exit_code=failed.exit_code, signal=failed.signal, timed_out=failed.timed_out)  # fmt: skip
    lines = failed.output[-_LAST_BYTES:].decode(errors="replace").strip().splitlines()
    if failed.role == "prepare" and lines and said == f"exit code {failed.exit_code}":
        # What a client such as docker's says last is its error, even if it does not call it so.
        said = signature_of(f"error: {lines[-1]}")
    return f"{name}: {said}", f"{name} failed: {_plain(said)}"


def _runs(result: JobResult, probe: ProbeSettings) -> list[Run]:
    """Every measured run with its files; a warm-up that failed stands for the run that never was."""
    measured = [ran for ran in result.ran if ran.role == "measure" and not ran.skipped]
    if not measured:
        warm = [ran for ran in result.ran if ran.role == "warmup" and _failed(ran)]
        return [Run(ran=ran, files={}) for ran in warm[-1:]]
    last = len(measured) - 1
    return [
        Run(ran=ran, files=_files(result.files, out_folder(probe, number), last=number == last))
        for number, ran in enumerate(measured)
    ]


def _files(files: Mapping[str, bytes], folder: str, *, last: bool) -> dict[str, bytes]:
    """The files of one run: those in its own folder, and of the last run what lies in the command's."""
    if not folder:
        return dict(files)
    own = {
        name.removeprefix(f"{folder}/"): d
        for name, d in files.items()
        if name.startswith(f"{folder}/")
    }
    rest = {name: data for name, data in files.items() if not name.startswith("run-")}
    return {**rest, **own} if last else own


def _combined(attempt: Attempt, readings: Sequence[RunReading], notes: Sequence[str]) -> Attempt:
    """One outcome of several runs: the gravest counts, and that they disagree is said."""
    graver = [r for outcome in _GRAVEST for r in readings if r.outcome is outcome]
    chosen = graver[0]
    if chosen.outcome is Outcome.BROKEN and any(r.outcome is Outcome.OK for r in readings):
        chosen = next(r for r in readings if r.outcome is Outcome.OK)
    samples: dict[str, tuple[float, ...]] = {}
    for reading in readings:
        for name, value in reading.values.items():
            samples[name] = (*samples.get(name, ()), value)
    return msgspec.structs.replace(
        attempt,
        outcome=chosen.outcome,
        samples=samples,
        signature=_plain(chosen.signature),
        hunted=chosen.hunted,
        note=_disagreement(readings, chosen) or _plain(chosen.note or "; ".join(notes)),
    )


def _disagreement(readings: Sequence[RunReading], chosen: RunReading) -> str:
    others = [reading for reading in readings if reading.outcome is not Outcome.OK]
    if not others or len(others) == len(readings):
        return ""
    said = _plain(others[0].signature or others[0].note)
    return (
        f"{len(others)} of {len(readings)} runs {_DID[others[0].outcome]}: {said}"
        if said
        else chosen.note
    )


_DID = {
    Outcome.CRASH: "crashed",
    Outcome.HANG: "hung",
    Outcome.BROKEN: "could not be tried",
    Outcome.MISSING: "were missing",
}


def _plain(text: str) -> str:
    """What a program said, as a terminal may show it."""
    return printable(text)[:500]
