"""Run reading: what one measured command says: its values, or how it failed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from karat.changes.series import Outcome
from karat.changes.signatures import signature as signature_of
from karat.engines.job import Ran
from karat.hunt.container_engine import own_failure
from karat.hunt.crash_kinds import is_hunted
from karat.hunt.jobs import reads_failures
from karat.hunt.metric_agreement import CRASH
from karat.hunt.metric_values import NoValue, Run, Unverified, value_of
from karat.hunt.patterns import Endless
from karat.hunt.settings import MetricSettings, ProbeSettings


class RunReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one measured command says."""

    outcome: Outcome
    values: Mapping[str, float] = msgspec.field(default_factory=dict)
    signature: str = ""
    note: str = ""
    hunted: bool | None = None


def read(run: Run, probe: ProbeSettings, root: Path, *, contained: bool = False) -> RunReading:
    """The reading of one run; `root` is what a golden's path is seen from."""
    try:
        return _read(run, probe, root, contained=contained)
    except (Endless, Unverified) as error:
        return RunReading(outcome=Outcome.BROKEN, signature="cannot verify", note=str(error))


def _read(run: Run, probe: ProbeSettings, root: Path, *, contained: bool) -> RunReading:
    ran = run.ran
    own = own_failure(ran.exit_code, ran.output) if contained else ""
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
    if probe.crash is not None and is_hunted(probe.crash, ran, said):
        return RunReading(outcome=outcome, signature=said, hunted=True, values={CRASH: 1.0})
    return RunReading(
        outcome=Outcome.BROKEN, signature=said, hunted=False, note=f"another error: {said}"
    )


def _measured(run: Run, probe: ProbeSettings, root: Path, *, failed: bool) -> RunReading:
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


def _value(metric: MetricSettings, run: Run, root: Path, notes: list[str]) -> float:
    if metric.golden is None:
        return value_of(metric, run)
    from karat.hunt.golden_probe import outside  # noqa: PLC0415 - few probes hold goldens

    value, note = outside(metric, run, root)
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
