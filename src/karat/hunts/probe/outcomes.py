"""Crash kinds: whether a run that failed is the crash that is hunted. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import msgspec

from karat.changepoints.series import Outcome
from karat.changepoints.signatures import signature as signature_of
from karat.engines.job import JobResult, Ran
from karat.hunts.model import Attempt, Metric, Point
from karat.hunts.probe.jobs import reads_failures, run_folder
from karat.hunts.probe.metrics import (
    CRASH,
    NoValue,
    PatternTimeout,
    RunOutput,
    Unverified,
    better,
    binary,
    matches,
    output_lines,
    value_of,
)
from karat.hunts.settings import CrashSettings, HuntSettings, MetricSettings, ProbeSettings
from karat.hunts.timelines.container_engine import engine_failure
from karat.hunts.timelines.timeline import Workspace
from karat.report.words import printable

_SHELL_SIGNALS = range(129, 193)
"""A shell, and a container, say 128 + N for what signal N killed."""
_NAMED = re.compile(r"(?:.*died with <Signals\.)?(SIG[A-Z0-9]+)\b")
"""Of a grandchild Python says `died with <Signals.SIGSEGV: 11>`."""


def is_hunted_crash(crash: CrashSettings, ran: Ran, signature: str) -> bool:
    """Whether this failure is the one; any other is another error, not good and not bad."""
    if crash.kind == "hang":
        return ran.timed_out and _says(crash.pattern, ran, signature)
    if crash.kind == "signal" and not _killed(crash.signal, ran, signature):
        return False
    if crash.kind == "exception" and ran.timed_out:
        return False
    return _says(crash.pattern, ran, signature)


def _killed(name: str, ran: Ran, signature: str) -> bool:
    """Whether a signal ended it: seen by the runner, told by a shell's exit code, or named by the signature."""
    import signal  # noqa: PLC0415 - only for hunted signals

    if ran.timed_out:
        return False
    number = ran.signal
    if number is None and ran.exit_code is not None and ran.exit_code in _SHELL_SIGNALS:
        number = ran.exit_code - 128
    said = _NAMED.match(signature)
    if not name:
        return number is not None or said is not None
    return number == signal.Signals[name] or (said is not None and said[1] == name)


def _says(pattern: str, ran: Ran, signature: str) -> bool:
    """Whether the signature is the pattern itself, or it or a line of the output matches."""
    if not pattern or pattern == signature:
        return True
    with closing(matches(pattern, chain([signature], output_lines(ran.output)))) as found:
        return next(found, None) is not None


# DOC-HERE identities: Identities: whether what was under test is what was asked for. Pure.
#
# The trap: a checkout moves, a build does nothing, and every point measures the same old binary. Whoever lets `identify`
# print `commit.NAME` (or hashes the built files; see `hunts.report.sentences`) learns of it.

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHORT = 10


def another_than_asked(point: Point, identity: Mapping[str, str]) -> str:
    """A sentence, if a repository was under test at another commit than the point's; else nothing."""
    for name, asked in point.parts.items():
        found = identity.get(f"commit.{name}", asked)
        if _COMMIT.fullmatch(asked) and _COMMIT.fullmatch(found) and not _same(asked, found):
            return f"asked for {name} {asked[:_SHORT]}, and {name} {found[:_SHORT]} was under test: nothing was rebuilt"
    return ""


def _same(one: str, other: str) -> bool:
    """Whether two commit ids are one, of which either may be shortened."""
    return one.startswith(other) or other.startswith(one)


# DOC-HERE run_reading: Run reading: what one measured command says: its values, or how it failed.


class RunReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one measured command says."""

    outcome: Outcome
    values: Mapping[str, float] = msgspec.field(default_factory=dict)
    signature: str = ""
    note: str = ""
    hunted: bool | None = None


def read_run(
    run: RunOutput, probe: ProbeSettings, root: Path, *, contained: bool = False
) -> RunReading:
    """The reading of one run; `root` is what a golden's path is seen from."""
    try:
        return _read(run, probe, root, contained=contained)
    except (PatternTimeout, Unverified) as error:
        return RunReading(outcome=Outcome.BROKEN, signature="cannot verify", note=str(error))


def _read(run: RunOutput, probe: ProbeSettings, root: Path, *, contained: bool) -> RunReading:
    ran = run.ran
    own = engine_failure(ran.exit_code, ran.output) if contained else ""
    if own:
        note = f"the container engine failed: {own}"
        return RunReading(outcome=Outcome.BROKEN, signature="container engine", note=note)
    if ran.error:
        return RunReading(
            outcome=Outcome.BROKEN,
            signature="could not be started",
            note=f"the command could not be started: {ran.error}",
        )
    if ran.exit_code in probe.skip_exit_codes:
        note = f"exit code {ran.exit_code} says that it cannot be tested here"
        return RunReading(outcome=Outcome.BROKEN, signature=f"exit code {ran.exit_code}", note=note)
    failed = ran.exit_code != 0
    if failed and (ran.timed_out or probe.crash is not None or not reads_failures(probe)):
        return _failure(ran, probe)
    return _measured(run, probe, root, failed=failed)


def _failure(ran: Ran, probe: ProbeSettings) -> RunReading:
    said = signature_of(ran.output, exit_code=ran.exit_code, signal=ran.signal, timed_out=ran.timed_out)  # fmt: skip
    outcome = Outcome.HANG if ran.timed_out else Outcome.CRASH
    if probe.crash is None:
        return RunReading(outcome=outcome, signature=said)
    return _judged(probe, ran, outcome, said)


def _judged(probe: ProbeSettings, ran: Ran, outcome: Outcome, said: str) -> RunReading:
    """A failure where a crash is hunted: it, or another error, which says nothing of the one hunted."""
    if probe.crash is not None and is_hunted_crash(probe.crash, ran, said):
        return RunReading(outcome=outcome, signature=said, hunted=True, values={CRASH: 1.0})
    return RunReading(
        outcome=Outcome.BROKEN, signature=said, hunted=False, note=f"another error: {said}"
    )


def _measured(run: RunOutput, probe: ProbeSettings, root: Path, *, failed: bool) -> RunReading:
    """The values of a run that ended; of one that failed, those that can be read all the same."""
    values: dict[str, float] = {}
    notes: list[str] = []
    for metric in probe.metrics:
        if failed and not _reads_failure(metric):
            continue
        try:
            values[metric.name] = _value(metric, run, root, notes)
        except NoValue as error:
            return _without_value(run.ran, probe, str(error), values, failed=failed)
    if probe.crash is not None:
        values[CRASH] = 0.0
    return RunReading(
        outcome=Outcome.OK,
        values=values,
        note="; ".join(notes),
        hunted=False if probe.crash is not None else None,
    )


def _reads_failure(metric: MetricSettings) -> bool:
    return metric.exit_code or metric.junit is not None


def _value(metric: MetricSettings, run: RunOutput, root: Path, notes: list[str]) -> float:
    if metric.golden is None:
        return value_of(metric, run)
    from karat.hunts.probe.golden import compare_with_golden  # noqa: PLC0415 - few probes hold goldens

    value, note = compare_with_golden(metric, run, root)
    if note:
        notes.append(note)
    return value


def _without_value(
    ran: Ran, probe: ProbeSettings, why: str, values: Mapping[str, float], *, failed: bool
) -> RunReading:
    """A run that ended and left no value: a crash of its own name, or of the run's where it failed."""
    if failed:
        return _failure(ran, probe)
    if probe.crash is not None:
        return _judged(probe, ran, Outcome.CRASH, why)
    return RunReading(outcome=Outcome.CRASH, signature=why, values=values)


# DOC-HERE probing: Probing: from what a job left to an attempt.
#
# In: a `JobResult`. Out: an `Attempt`: values, a crash with its signature, a hang, or broken: neither good nor bad.
#
# | what happened | outcome |
# |---|---|
# | the worker was lost; prepare, build, setup or identify failed; a skip exit code; the program could not be started | broken |
# | a measured run did not end in time | hang |
# | it failed | crash, unless a metric reads failures: exit_code, junit |
# | it ran, and a metric has no value, or one that is not finite | crash: `no value for MLUPS`, `MLUPS is nan` |
# | `identify` says that another commit was under test than the point's | broken |
# | a golden could not be held against it | broken |
# | a crash is hunted, and this is another | broken |

_GRAVEST = (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN, Outcome.OK)
_LAST_BYTES = 8192


def search_metrics(settings: HuntSettings) -> tuple[Metric, ...]:
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


def read_attempt(
    result: JobResult,
    settings: HuntSettings,
    *,
    stage: str,
    point: Point,
    number: int,
    place: Workspace,
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
    readings = [read_run(r, settings.probe, place.root, contained=contained) for r in runs]
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


def _runs(result: JobResult, probe: ProbeSettings) -> list[RunOutput]:
    """Every measured run with its files; a warm-up that failed stands for the run that never was."""
    measured = [ran for ran in result.ran if ran.role == "measure" and not ran.skipped]
    if not measured:
        warm = [ran for ran in result.ran if ran.role == "warmup" and _failed(ran)]
        return [RunOutput(ran=ran, files={}) for ran in warm[-1:]]
    last = len(measured) - 1
    return [
        RunOutput(
            ran=ran, files=_files(result.files, run_folder(probe, number), last=number == last)
        )
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
