"""Replaying: a bundle and a runner → what became of each case; the front door of this room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from karat.bundles.cases import Case, cases
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.replay.advice import advised, require_beginning
from karat.replay.commands import CommandStation
from karat.replay.environments import differences
from karat.replay.functions import FunctionStation
from karat.replay.options import Function, Options
from karat.replay.outcome import Outcome, Replayed, ReplayReport
from karat.replay.placing import placed
from karat.replay.selecting import chosen, nothing_chosen
from karat.replay.stations import Station, replay_all
from karat.replay.wire import Hello
from karat.replay.workplaces import Workplaces
from karat.store.words import open_word


def replay(bundle: str | Path, options: Options) -> ReplayReport:
    """Every chosen case, run here and held against what was recorded."""
    try:
        opened = open_word(str(bundle), store=options.store)
    except UsageError:
        raise
    except KaratError as error:
        # Whoever reads reports, and nothing else, must not find that of the day before.
        return ReplayReport(
            bundle=str(bundle),
            runner=str(options.runner),
            cases=(),
            findings=(_not_opened(error, str(bundle)),),
        )
    with closing(opened) as place:
        require_beginning(place, options)
        whole = cases(place)
        wanted = [c for c in whole if chosen(c.path, c.manifest.identity, options.choice)]
        sound = [case for case in wanted if not is_damaged(case)]
        done = {case.path: already_damaged(case) for case in wanted if is_damaged(case)}
        done |= {result.path: result for result in _replayed(bundle, sound, options)}
        return ReplayReport(
            bundle=str(bundle),
            runner=str(options.runner),
            cases=tuple(advised(done[case.path], str(bundle), options) for case in wanted),
            findings=(*place.findings(), *_about_all(bundle, whole, wanted, options)),
        )


def _not_opened(error: KaratError, bundle: str) -> Finding:
    said: Finding | None = getattr(error, "finding", None)
    return said or Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=bundle,
        message=str(error),
        next=error.next_command,
    )


def _about_all(
    bundle: str | Path, whole: Sequence[Case], wanted: Sequence[Case], options: Options
) -> Iterator[Finding]:
    if not wanted:
        known = [(case.path, case.manifest.identity) for case in whole]
        yield nothing_chosen(str(bundle), options.choice, known)
    environments = [case.manifest.environment for case in wanted]
    yield from differences(environments, packages=isinstance(options.runner, Function))


def is_damaged(case: Case) -> bool:
    """Whether something is wrong with a case before one of its tensors is read."""
    return any(finding.severity is Severity.FAIL for finding in case.findings)


def already_damaged(case: Case) -> Replayed:
    """A case that is not even run."""
    findings = [replace(f, message=f"{f.message}; the case was not run") for f in case.findings]
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.DAMAGED,
        findings=placed(findings, case.path),
    )


def _replayed(bundle: str | Path, wanted: Sequence[Case], options: Options) -> list[Replayed]:
    if not wanted:
        return []
    with open_stations(bundle, options, len(wanted)) as stations:
        return replay_all(wanted, stations, options.progress)


@contextmanager
def open_stations(bundle: str | Path, options: Options, count: int) -> Iterator[Sequence[Station]]:
    """As many stations as were asked for and have work; the first is known to have its function."""
    with closing(Workplaces(options.keep)) as workplaces:
        stations = [_station(bundle, options, workplaces) for _ in range(min(options.jobs, count))]
        try:
            if isinstance(stations[0], FunctionStation):
                stations[0].prepare()
            yield stations
        finally:
            for station in stations:
                station.close()


def _station(bundle: str | Path, options: Options, workplaces: Workplaces) -> Station:
    runner = options.runner
    if isinstance(runner, Function):
        hello = Hello(
            bundle=str(bundle), store=options.store, function=runner, judging=options.judging
        )
        return FunctionStation(
            hello, workplaces, timeout=options.timeout, isolated=options.isolated
        )
    return CommandStation(runner, options.judging, workplaces, options.timeout)


__all__ = ["already_damaged", "is_damaged", "open_stations", "replay"]
