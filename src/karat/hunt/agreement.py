"""Agreement: what hunt.toml says must fit together, beyond the type of each key.

Each mistake is a `UsageError` whose message begins with the key. Nothing is asked of a network or a disk here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TypeVar

from karat.findings import UsageError, suggest
from karat.hunt import durations, sizes, words
from karat.hunt.metric_agreement import check_metrics
from karat.hunt.repository_names import check_names
from karat.hunt.settings import CheckoutSettings, HuntSettings, ProbeSettings, Stage
from karat.hunt.stages import stages
from karat.hunt.words import EDIT

T = TypeVar("T")
_MOST = 10_000
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ALONE = ("packages", "values")
_ORDER = ("containers", "checkouts", "commits")


def check(settings: HuntSettings) -> None:
    """Raises for the first thing that does not fit."""
    _probe(settings.probe)
    check_metrics(settings.probe)
    found = stages(settings)
    _chain(found)
    _tables(settings, {stage.timeline for stage in found})
    _repositories(settings)
    _first(settings, found[0])
    _search(settings)
    _engine(settings)
    _skip(settings.skip)


def expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    """A mistake, unless."""
    if not condition:
        raise UsageError(message, next_command=EDIT)


def _understood(key: str, reader: Callable[[T], object], value: T) -> None:
    try:
        reader(value)
    except UsageError as error:
        raise UsageError(f"{key}: {error}", next_command=EDIT) from error


def _probe(probe: ProbeSettings) -> None:
    for key, command in (
        ("command", probe.command),
        ("setup", probe.setup),
        ("identify", probe.identify),
    ):
        _understood(f"probe.{key}", words.split, command)
    expect(bool(words.split(probe.command)), "probe.command: expected a command, found no words")
    _understood("probe.timeout", durations.seconds, probe.timeout)
    expect(durations.seconds(probe.timeout) > 0, "probe.timeout must be more than 0")
    for key, least in (("repeats", 1), ("warmups", 0)):
        number = getattr(probe, key)
        expect(
            least <= number <= _MOST,
            f"probe.{key} must be at least {least} and at most {_MOST:,}, found {number}",
        )
    expect(
        0 not in probe.skip_exit_codes,
        "probe.skip_exit_codes: expected codes of runs that say nothing, found 0, which is success",
    )
    for name in probe.env:
        expect(
            bool(name) and "=" not in name,
            f"probe.env: expected a name without '=', found {name!r}",
        )


def _tables(settings: HuntSettings, timelines: set[str]) -> None:
    """A stage without the table that says what it is about."""
    for name in ("containers", "packages", "values"):
        expect(
            name not in timelines or getattr(settings, name) is not None,
            f"stages names {name}: expected a table [{name}], found none",
        )
    for name in sorted(timelines & {"checkouts", "commits"}):
        expect(
            bool(settings.repositories),
            f"stages names {name}: expected [[repositories]], found none",
        )
    if settings.packages is not None:
        expect(
            _PROJECT.fullmatch(settings.packages.name) is not None,
            f"packages.name: expected the name of a project, found {settings.packages.name!r}; extras belong into requires",
        )
    if settings.values is not None:
        both = (bool(settings.values.list), bool(settings.values.file))
        expect(
            sum(both) == 1,
            "values: expected either list or file to be set, found "
            + ("both" if all(both) else "neither"),
        )
    for name in ("containers", "checkouts", "commits"):
        table = getattr(settings, name)
        if table is None:
            continue
        _understood(f"{name}.step", durations.seconds, table.step)
        expect(durations.seconds(table.step) > 0, f"{name}.step must be more than 0")
        expect(
            table.start is None or table.end is None or table.start <= table.end,
            f"{name}: expected start up to end, found {table.start} and {table.end}",
        )
    if settings.containers is not None:
        ahead = settings.containers.ahead
        expect(
            0 <= ahead <= _MOST,
            f"containers.ahead must be at least 0 and at most {_MOST:,}, found {ahead}",
        )
        _understood("containers.cache", sizes.size, settings.containers.cache)
        expect(
            "{date" in settings.containers.image,
            f"containers.image: expected a template with {{date:%Y-%m-%d}}, found {settings.containers.image!r}",
        )


def _chain(found: Iterable[Stage]) -> None:
    """Coarse to fine: a stage must be able to look between two points of the one before it."""
    listed = list(found)
    for stage in listed:
        expect(
            stage.timeline not in _ALONE or len(listed) == 1,
            f"stages: expected {stage.timeline} alone, found it among {len(listed)} stages; nothing is finer or coarser than it",
        )
    for coarse, fine in pairwise(listed):
        if coarse.timeline not in _ORDER or fine.timeline not in _ORDER:
            continue
        steps = _ORDER.index(fine.timeline) - _ORDER.index(coarse.timeline)
        closer = coarse.step is not None and fine.step is not None and fine.step < coarse.step
        expect(
            steps > 0 or (steps == 0 and closer),
            f"stages: expected coarse to fine, found {coarse.text!r} before {fine.text!r}",
        )


def _repositories(settings: HuntSettings) -> None:
    check_names(settings.repositories)
    names = [repository.name for repository in settings.repositories]
    for table, checkouts in (("checkouts", settings.checkouts), ("commits", settings.commits)):
        if checkouts is not None:
            _revisions(table, checkouts, names)


def _revisions(table: str, checkouts: CheckoutSettings, names: list[str]) -> None:
    _understood(f"{table}.build", words.split, checkouts.build)
    _understood(f"{table}.build_timeout", durations.seconds, checkouts.build_timeout)
    _understood(f"{table}.margin", durations.seconds, checkouts.margin)
    for key, revisions in (("good", checkouts.good), ("bad", checkouts.bad)):
        for name in revisions:
            expect(
                name in names,
                f"{table}.{key}: no repository is called {name!r}{suggest(name, names)} (known: {', '.join(names)})",
            )


def _first(settings: HuntSettings, stage: Stage) -> None:
    """The first stage has no coarser one that says where to look."""
    if stage.timeline == "containers" and settings.containers is not None:
        for key, which in (("start", "first"), ("end", "last")):
            expect(
                getattr(settings.containers, key) is not None,
                f"containers.{key}: expected the {which} day, such as 2023-08-24, found nothing",
            )
    if stage.timeline == "checkouts":
        expect(
            settings.checkouts.start is not None,
            "checkouts.start: expected a day or a time to start at, found nothing",
        )
    if stage.timeline == "commits":
        table = settings.commits or settings.checkouts
        name = "commits" if settings.commits else "checkouts"
        expect(
            bool(table.good) or table.start is not None,
            f"{name}: expected good (repository = revision), or start, found neither",
        )


def _search(settings: HuntSettings) -> None:
    search = settings.search
    expect(
        0.5 < search.confidence < 1,
        f"search.confidence must be above 0.5 and below 1, found {search.confidence}",
    )
    expect(
        0 <= search.smallest < 1,
        f"search.smallest must be at least 0 and below 1, found {search.smallest}",
    )
    for key in ("grid", "max_runs", "confirmations"):
        value = getattr(search, key)
        expect(value >= 0, f"search.{key} must be at least 0, found {value}")


def _engine(settings: HuntSettings) -> None:
    engine = settings.engine
    expect(
        0 <= engine.slots <= _MOST,
        f"engine.slots must be at least 0 and at most {_MOST:,}, found {engine.slots}",
    )
    for key in ("cores", "gpus", "retries"):
        value = getattr(engine, key)
        expect(
            0 <= value <= _MOST,
            f"engine.{key} must be at least 0 and at most {_MOST:,}, found {value}",
        )
    for name, number in engine.resources.items():
        expect(
            0 <= number <= _MOST,
            f"engine.resources.{name} must be at least 0 and at most {_MOST:,}, found {number}",
        )
    _understood("engine.memory", sizes.size, engine.memory)


def _skip(skip: Iterable[str]) -> None:
    for text in skip:
        old, dots, new = text.partition("..")
        good = bool(text.strip()) and (not dots or (bool(old.strip()) and bool(new.strip())))
        expect(good, f"skip: expected a point or a range OLD..NEW, found {text!r}")
