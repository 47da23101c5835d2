"""The front door: a journal for a new hunt, and a hunt into it with an engine of its own, until it ends.

In: hunt.toml as settings, a workspace, a listener. Out: the report. Called by `karat hunt run`, `karat hunt resume` and
`karat.hunt`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from karat.engines.open import open_engine
from karat.findings import UsageError
from karat.hunts.driver import run_hunt
from karat.hunts.hunt_toml import Overrides, hunt_name, ignore_in_git, workspace_of
from karat.hunts.journal.database import is_empty
from karat.hunts.journal.journal import Journal, archive, discard
from karat.hunts.journal.records import HuntRow, settings_json
from karat.hunts.model import HuntReport
from karat.hunts.probe.outcomes import search_metrics
from karat.hunts.report.assemble import build_report
from karat.hunts.report.live import Listener
from karat.hunts.settings import HuntSettings, parse_size, split_command
from karat.hunts.timelines.timeline import Workspace
from karat.report.words import count
from karat.system.command import Command


def new_journal(path: Path, file: Path, settings: HuntSettings, *, fresh: bool = False) -> Journal:
    """The journal of a hunt that begins; one that is there is archived (`fresh`) or refused."""
    if path.exists() and fresh:
        archive(path)
    elif path.exists() and not is_empty(path):
        refused = _exists(path)
        if refused is not None:
            raise refused
        discard(path)
    return Journal.create(path, hunt_row(file, settings, workspace_of(file, settings)))


def hunt_row(file: Path, settings: HuntSettings, place: Workspace) -> HuntRow:
    return HuntRow(
        name=hunt_name(file, settings),
        file=str(file.absolute()),
        root=str(place.root),
        hunt=place.hunt,
        settings=settings_json(settings),
        command=split_command(settings.probe.command),
        metrics=search_metrics(settings),
        units={metric.name: metric.unit for metric in settings.probe.metrics if metric.unit},
    )


def _exists(path: Path) -> UsageError | None:
    """Why a journal is not written over; None for one that nobody misses: nothing was run, and nobody is at work."""
    with Journal(path) as journal:
        report, process = build_report(journal), journal.writer()
    if process is not None:
        return UsageError(
            f"expected no other hunt into {path}, found process {process} writing it",
            next_command=Command("karat", "hunt", "status", str(path)),
        )
    if not report.runs:
        return None
    what = "a hunt that is not finished" if report.resume else "a finished hunt"
    return UsageError(
        f"expected no journal at {path}, found {what} with {count(report.runs, 'run')}; --fresh starts over and archives it",
        next_command=report.resume or Command("karat", "hunt", "report", str(path)),
    )


def remember_overrides(journal: Journal, overrides: Overrides) -> None:
    """Keep what was said instead of hunt.toml, for a resume."""
    journal.set_fact("overrides", msgspec.json.encode(overrides).decode())


def remembered_overrides(journal: Journal) -> Overrides:
    """What was said when the hunt was begun."""
    return msgspec.json.decode(journal.facts().get("overrides", "{}"), type=Overrides)


def hunt_into(
    journal: Journal,
    settings: HuntSettings,
    place: Workspace,
    listener: Listener,
    *,
    abandoned: Callable[[], None] = lambda: None,
) -> HuntReport:
    """Hunt until there is nothing left to ask; `abandoned` is called where an engine could not be closed."""
    ignore_in_git(place)
    wanted = settings.engine
    engine = open_engine(
        wanted.kind,
        slots=wanted.slots,
        work=place.work,
        cores=wanted.cores,
        gpus=wanted.gpus,
        address=wanted.address,
        retries=wanted.retries,
        memory=parse_size(wanted.memory),
        custom=wanted.resources,
        notice=listener.said,
    )
    try:
        return run_hunt(settings, place, engine, journal, listener)
    finally:
        engine.close()
        if engine.abandoned:
            abandoned()
