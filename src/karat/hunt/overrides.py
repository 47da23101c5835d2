"""Overrides: what the command line says instead of hunt.toml. Kept in the journal, so that a resume knows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from karat.findings import UsageError, suggest
from karat.hunt.settings import HuntSettings

_S = TypeVar("_S", bound=msgspec.Struct)


class Overrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the command line says instead of hunt.toml; None and empty: nothing."""

    strategy: str | None = None
    confidence: float | None = None
    max_runs: int | None = None
    engine: str | None = None
    jobs: int | None = None
    metrics: tuple[str, ...] = ()
    stage: str | None = None

    def over(self, others: Overrides) -> Overrides:
        """These, and where they say nothing the others."""
        said = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) not in (None, ())
        }
        return structs.replace(others, **said)


def overridden(settings: HuntSettings, said: Overrides) -> HuntSettings:
    """The settings as the command line wants them."""
    search = _with(
        settings.search, strategy=said.strategy, confidence=said.confidence, max_runs=said.max_runs
    )
    engine = _with(settings.engine, kind=said.engine, slots=said.jobs)
    changed = structs.replace(settings, search=search, engine=engine)
    if said.metrics:
        changed = _only_metrics(changed, said.metrics)
    if said.stage is not None:
        changed = structs.replace(changed, stages=_from_stage(settings.stages, said.stage))
    return changed


def _with(struct: _S, **values: object) -> _S:
    return structs.replace(struct, **{k: v for k, v in values.items() if v is not None})


def _only_metrics(settings: HuntSettings, wanted: Sequence[str]) -> HuntSettings:
    known = [metric.name for metric in settings.probe.metrics]
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"--metric: expected one of {', '.join(known) or '(none)'}, found {name!r}{suggest(name, known)}",
                next_command="karat hunt run --help",
            )
    chosen = tuple(m for m in settings.probe.metrics if m.name in wanted)
    return structs.replace(settings, probe=structs.replace(settings.probe, metrics=chosen))


def _from_stage(stages: Sequence[str], wanted: str) -> tuple[str, ...]:
    """The stages from the one that is called so, or whose number it is, on."""
    for number, text in enumerate(stages):
        if wanted in {text, text.split()[0], str(number)}:
            return tuple(stages[number:])
    raise UsageError(
        f"--stage: expected one of {', '.join(map(repr, stages))}, found {wanted!r}{suggest(wanted, stages)}",
        next_command="karat hunt run --help",
    )
