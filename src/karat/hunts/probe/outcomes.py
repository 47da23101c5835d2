"""Outcomes: from what a job left to an attempt.

In: a `JobResult`. Out: an `Attempt`: values, a crash with its signature, a hang, or broken: neither good nor bad.

| what happened | outcome |
|---|---|
| the worker was lost; prepare, build, setup or identify failed; a skip exit code; the program could not be started | broken |
| a measured run did not end in time | hang |
| it failed | crash, unless a metric reads failures: exit_code, junit |
| it ran, and a metric has no value, or one that is not finite | crash: `no value for MLUPS`, `MLUPS is nan` |
| `identify` says that another commit was under test than the point's | broken |
| the result could not be compared with its golden | broken |
| a crash is hunted, and this is another | broken |
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path, PurePosixPath

import msgspec

from karat.changepoints.series import Outcome
from karat.changepoints.signatures import signature as signature_of
from karat.engines.files import combined_hash
from karat.engines.job import JobResult, Ran
from karat.findings import ExitCode, KaratError
from karat.hunts.model import CRASH, Attempt, Metric, Point
from karat.hunts.probe.jobs import run_folder
from karat.hunts.probe.metrics import NoValue, RunOutput, Unverified, counts, file_of, matches, output_lines, value_of
from karat.hunts.settings import COMMIT, CrashSettings, HuntSettings, MetricSettings, ProbeSettings
from karat.hunts.timelines.container_engine import engine_failure
from karat.hunts.timelines.timeline import Workspace
from karat.report.words import printable

_UNKNOWN = {"cannot-verify", "missing-actual", "missing-golden", "nothing-compared"}
_GRAVEST = (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN, Outcome.OK)
_DID = {Outcome.CRASH: "crashed", Outcome.HANG: "hung", Outcome.BROKEN: "could not be tried"}
_SHELL_SIGNALS = range(129, 193)  # A shell, and a container, say 128 + N for what signal N killed.
_SIGNAL_NAME = re.compile(r"(?:.*died with <Signals\.)?(SIG[A-Z0-9]+)\b")
"""Of a grandchild Python says `died with <Signals.SIGSEGV: 11>`."""


class RunReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one measured command says."""

    outcome: Outcome
    values: Mapping[str, float] = msgspec.field(default_factory=dict)
    signature: str = ""
    note: str = ""
    hunted: bool | None = None


def search_metrics(settings: HuntSettings) -> tuple[Metric, ...]:
    """What the search looks at: the metrics, and a hunted crash as one of its own, 1 where it happened."""
    listed = [
        Metric(
            name=m.name, better=m.direction, threshold=m.threshold, binary=m.is_binary, lowest=m.is_lowest, unit=m.unit
        )
        for m in settings.probe.metrics
    ]
    if settings.probe.crash is not None:
        listed.append(Metric(name=CRASH, better="lower", binary=True))
    return tuple(listed)


def read_attempt(
    result: JobResult, settings: HuntSettings, *, stage: str, point: Point, number: int, place: Workspace
) -> Attempt:
    # Built files of a repository are those in its folder.
    own, hashes = dict(result.identity), result.hashes
    for one in settings.repositories:
        if files := {path: digest for path, digest in hashes.items() if path.startswith(f"{one.name}/")}:
            own[f"files.{one.name}"] = combined_hash(files)
    attempt = Attempt(
        stage=stage,
        point=point.id,
        number=number,
        outcome=Outcome.BROKEN,
        identity=own,
        identity_key=result.identity_key,
        seconds=result.seconds,
        started=result.started,
        where=result.where,
    )
    if result.lost:
        return msgspec.structs.replace(attempt, note=f"the worker was lost: {_printable_text(result.lost)}")
    if not any(ran.role in {"warmup", "measure"} for ran in result.ran):
        # The command before measuring that failed; after one that may fail, others were run.
        before = [ran for ran in result.ran if ran.role in {"prepare", "build", "identify"} and not ran.skipped]
        if failed := next((ran for ran in reversed(before) if _failed(ran)), None):
            said, note = _failure_before(failed)
            return msgspec.structs.replace(attempt, signature=said, note=note)
    if other := _wrong_commit(point, result.identity):
        return msgspec.structs.replace(attempt, signature="another commit under test", note=other)
    runs = _runs(result, settings.probe)
    if not runs:
        return msgspec.structs.replace(attempt, note="" if result.shared else "nothing was run")
    # Inside containers, an exit code may be the container engine's.
    built = (settings.checkouts, settings.commits)
    contained = "image" in point.parts or any(table and table.container for table in built)
    readings = [read_run(run, settings.probe, place.root, contained=contained) for run in runs]
    return _combine(attempt, readings, result.notes)


def _failed(ran: Ran) -> bool:
    return bool(ran.error) or ran.timed_out or (ran.exit_code != 0 and not ran.skipped)


def _failure_before(failed: Ran) -> tuple[str, str]:
    """Signature and sentence of a command that kept the point from being tried."""
    name = _printable_text(failed.name or failed.role)
    if failed.error:
        return f"{name}: could not be started", f"{name} could not be started: {_printable_text(failed.error)}"
    said = _signature(failed)
    lines = failed.output[-8192:].decode(errors="replace").strip().splitlines()
    if failed.role == "prepare" and lines and said == f"exit code {failed.exit_code}":
        # What a client such as docker's says last is its error, even if it does not call it so.
        said = signature_of(f"error: {lines[-1]}")
    return f"{name}: {said}", f"{name} failed: {_printable_text(said)}"


def _signature(ran: Ran) -> str:
    return signature_of(ran.output, exit_code=ran.exit_code, signal=ran.signal, timed_out=ran.timed_out)


def _wrong_commit(point: Point, identity: Mapping[str, str]) -> str:
    """A sentence, if a repository was under test at another commit than the point's; else nothing.

    The trap: a checkout moves, a build does nothing, and every point measures the same old binary. Whoever lets `identify`
    print `commit.NAME` (or hashes the built files) learns of it. Either commit may be shortened.
    """
    for name, asked in point.parts.items():
        found = identity.get(f"commit.{name}", asked)
        are_commits = COMMIT.fullmatch(asked) and COMMIT.fullmatch(found)
        if are_commits and not asked.startswith(found) and not found.startswith(asked):
            return f"expected {name} {asked[:10]} under test, found {name} {found[:10]}: nothing was rebuilt"
    return ""


def _runs(result: JobResult, probe: ProbeSettings) -> list[RunOutput]:
    """Every measured run with its files; a warm-up that failed stands for the run that never was."""
    measured = [ran for ran in result.ran if ran.role == "measure" and not ran.skipped]
    if not measured:
        warm = [ran for ran in result.ran if ran.role == "warmup" and _failed(ran)]
        return [RunOutput(ran=ran, files={}) for ran in warm[-1:]]
    runs = []
    for number, ran in enumerate(measured):
        files = result.files
        if folder := run_folder(probe, number):
            # Those in its own folder; what lies in the command's is of the last run.
            rest = {n: d for n, d in files.items() if not n.startswith("run-") and ran is measured[-1]}
            own = {n.removeprefix(f"{folder}/"): d for n, d in files.items() if n.startswith(f"{folder}/")}
            files = {**rest, **own}
        runs.append(RunOutput(ran=ran, files=files))
    return runs


def _combine(attempt: Attempt, readings: Sequence[RunReading], notes: Sequence[str]) -> Attempt:
    """One outcome of several runs: the gravest counts, and that they disagree is said."""
    chosen = min(readings, key=lambda reading: _GRAVEST.index(reading.outcome))
    good = [reading for reading in readings if reading.outcome is Outcome.OK]
    if chosen.outcome is Outcome.BROKEN and good:
        chosen = good[0]
    names = dict.fromkeys(name for reading in readings for name in reading.values)
    samples = {name: tuple(r.values[name] for r in readings if name in r.values) for name in names}
    note = _printable_text(chosen.note or "; ".join(notes))
    others = [reading for reading in readings if reading.outcome is not Outcome.OK]
    if others and good:
        said = _printable_text(others[0].signature or others[0].note)
        disagree = f"{len(others)} of {len(readings)} runs {_DID[others[0].outcome]}: {said}"
        note = (disagree if said else chosen.note) or note
    said, outcome = _printable_text(chosen.signature), chosen.outcome
    found, hunted = msgspec.structs.replace(attempt, outcome=outcome, samples=samples), chosen.hunted
    return msgspec.structs.replace(found, signature=said, hunted=hunted, note=note)


def _printable_text(text: str) -> str:
    """What a program said, as a terminal may show it."""
    return printable(text)[:500]


def read_run(run: RunOutput, probe: ProbeSettings, root: Path, *, contained: bool = False) -> RunReading:
    """What one measured command says; a golden's path is relative to `root`."""
    ran = run.ran
    if contained and (own := engine_failure(ran.exit_code, ran.output)):
        return _broken("container engine", f"the container engine failed: {own}")
    if ran.error:
        first = repr((probe.command.split() if isinstance(probe.command, str) else probe.command)[0])
        return _broken(f"{first} could not be started", f"the command {first} could not be started: {ran.error}")
    if ran.exit_code in probe.skip_exit_codes:
        code = f"exit code {ran.exit_code}"
        return _broken(code, f"{code} means that it cannot be tested here")
    failed = ran.exit_code != 0
    if failed and not ran.timed_out and any(m.instructions for m in probe.metrics) and not counts(run):
        return _broken("nothing was counted", f"the tool that counts instructions failed: {_signature(ran)}")
    # Of a run that failed, those values that can be read all the same.
    metrics = [metric for metric in probe.metrics if metric.reads_failures or not failed]
    values: dict[str, float] = {}
    try:
        if failed and (ran.timed_out or probe.crash is not None or not metrics):
            return _failure(ran, probe)
        for metric in metrics:
            try:
                if metric.golden is None:
                    values[metric.name] = value_of(metric, run)
                else:
                    values[metric.name] = golden_value(metric, run, root)
            except NoValue as error:
                if failed or probe.crash is not None:
                    return _failure(ran, probe, "" if failed else str(error))
                return RunReading(outcome=Outcome.CRASH, signature=str(error), values=values)
    except Unverified as error:
        return _broken(str(error), str(error))
    hunted = None
    if probe.crash is not None:
        values[CRASH], hunted = 0.0, False
    return RunReading(outcome=Outcome.OK, values=values, hunted=hunted)


def golden_value(metric: MetricSettings, run: RunOutput, root: Path) -> float:
    """1 outside the golden's tolerances, 0 within, as `karat check` has it; what could not be verified is neither."""
    # Whoever has no golden needs none of this.
    import datetime as dt
    import tempfile

    from karat.checks.check import CheckOptions, check
    from karat.checks.lookup import Where
    from karat.config import load

    data = file_of(metric, run)
    if data is None:
        raise NoValue(f"no value for {metric.name}: the run left no {metric.file}")
    with tempfile.TemporaryDirectory(prefix="karat-hunt-") as folder:
        result = Path(folder) / PurePosixPath(metric.file.replace("*", "result")).name
        result.write_bytes(data)
        try:
            # What karat.toml says where hunt.toml lies.
            config = load(root)
            where = Where(cwd=root, settings=config.check, **config.places())
            options = CheckOptions(where=where, today=dt.datetime.now(dt.UTC).date(), **config.checking())
            report = check([str(result)], str(root / (metric.golden or "")), options)
        except KaratError as error:
            raise Unverified(f"{metric.name}: {error}") from error
    unknown = next((c for c in report.checks if c.outcome.value in _UNKNOWN), None)
    if unknown is not None or not report.checks:
        said = next((f.message for f in report.all_findings()), "nothing was compared")
        raise Unverified(f"{metric.name}: {said}")
    return 1.0 if report.exit_code is ExitCode.FAIL else 0.0


def _broken(signature: str, note: str, *, hunted: bool | None = None) -> RunReading:
    return RunReading(outcome=Outcome.BROKEN, signature=signature, note=note, hunted=hunted)


def _failure(ran: Ran, probe: ProbeSettings, why: str = "") -> RunReading:
    """A run that failed, or that ended without a value, which `why` says."""
    outcome = Outcome.HANG if ran.timed_out and not why else Outcome.CRASH
    said = why or _signature(ran)
    if probe.crash is None:
        return RunReading(outcome=outcome, signature=said)
    if is_hunted_crash(probe.crash, ran, said):
        return RunReading(outcome=outcome, signature=said, hunted=True, values={CRASH: 1.0})
    # Another error says nothing of the one that is hunted.
    return _broken(said, f"another error: {said}", hunted=False)


def is_hunted_crash(crash: CrashSettings, ran: Ran, signature: str) -> bool:
    """Whether this failure is the one; any other is another error, not good and not bad."""
    if crash.kind == "hang" and not ran.timed_out:
        return False
    if crash.kind in {"signal", "exception"} and ran.timed_out:
        return False
    if crash.kind == "signal":
        # Seen by the runner, told by a shell's exit code, or named by the signature.
        number = ran.signal
        if number is None and ran.exit_code is not None and ran.exit_code in _SHELL_SIGNALS:
            number = ran.exit_code - 128
        said = _SIGNAL_NAME.match(signature)
        named = said is not None and crash.signal in {"", said[1]}
        if not named and (number is None or (crash.signal and number != signal.Signals[crash.signal])):
            return False
    if not crash.pattern or crash.pattern == signature:
        return True
    with closing(matches(crash.pattern, chain([signature], output_lines(ran.output)))) as found:
        return next(found, None) is not None
