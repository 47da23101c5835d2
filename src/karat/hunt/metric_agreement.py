"""Agreement on metrics: each has one source, a name of its own, and a pattern that can be used."""

from __future__ import annotations

import re

from karat.changes.series import Better
from karat.findings import UsageError
from karat.hunt import json_paths
from karat.hunt.settings import CrashSettings, MetricSettings, ProbeSettings
from karat.hunt.words import EDIT

CRASH = "crash"
"""The metric of a crash that is hunted: 1 where it happened."""
_RESERVED = (CRASH, "outcome", "signature")
_SOURCES = ("regex", "json", "junit", "exit_code", "seconds", "golden")


def check_metrics(probe: ProbeSettings) -> None:
    """Raises for the first metric that cannot be read."""
    if not probe.metrics and probe.crash is None:
        raise _mistake(
            "probe: expected [[probe.metrics]] or [probe.crash] to say what is looked at, found neither"
        )
    seen: set[str] = set()
    for number, metric in enumerate(probe.metrics, 1):
        where = f"probe.metrics number {number}"
        _name(metric.name, seen, where)
        seen.add(metric.name)
        _metric(metric, f"{where} ({metric.name})")
    if probe.crash is not None:
        _crash(probe.crash)


def source(metric: MetricSettings) -> str:
    """Which of the keys says where its value is."""
    return next(key for key in _SOURCES if _is_set(metric, key))


def _is_set(metric: MetricSettings, key: str) -> bool:
    return getattr(metric, key) not in {None, False}


def _name(name: str, seen: set[str], where: str) -> None:
    if not name.strip() or not name.isprintable():
        raise _mistake(f"{where}: expected a name, found {name!r}")
    if name in _RESERVED:
        raise _mistake(
            f"{where}: expected a name of its own, found {name!r}, which karat uses itself"
        )
    if name in seen:
        raise _mistake(f"{where}: expected each name once, found {name!r} twice")


def _metric(metric: MetricSettings, where: str) -> None:
    sources = [key for key in _SOURCES if _is_set(metric, key)]
    if len(sources) != 1:
        found = " and ".join(sources) or "none of them"
        raise _mistake(f"{where}: expected exactly one of {', '.join(_SOURCES)}, found {found}")
    if metric.regex is not None:
        _pattern(metric.regex, f"{where}: regex", group=True)
    if metric.json is not None:
        try:
            json_paths.parse(metric.json)
        except UsageError as error:
            raise _mistake(f"{where}: json: {error}") from error
    for key in ("golden", "junit"):
        if sources == [key] and not metric.file:
            raise _mistake(f"{where}: expected file (what the run leaves) beside {key}, found none")
    if metric.better == "equal" and metric.threshold is not None:
        raise _mistake(
            f'{where}: expected no threshold beside better = "equal", which has no worse side'
        )
    if metric.threshold is not None and better(metric) is None:
        raise _mistake(
            f'{where}: expected better = "higher" or "lower" beside threshold, found nothing'
        )
    if metric.threshold is not None and metric.threshold - metric.threshold != 0:
        raise _mistake(f"{where}: threshold must be a finite number, found {metric.threshold}")


def binary(metric: MetricSettings) -> bool:
    """Whether it can only be 0 or 1."""
    return metric.exit_code or metric.golden is not None


def better(metric: MetricSettings) -> Better | None:
    """Which direction is better: as hunt.toml says, or as nobody could doubt; else None."""
    if metric.better is not None:
        return metric.better
    if metric.junit is not None and metric.value == "passed":
        return "higher"
    plain = binary(metric) or metric.seconds or metric.junit is not None
    return "lower" if plain else None


def _crash(crash: CrashSettings) -> None:
    if crash.pattern:
        _pattern(crash.pattern, "probe.crash.pattern", group=False)
    if crash.kind == "exception" and not crash.pattern:
        raise _mistake('probe.crash: expected pattern beside kind = "exception", found none')
    if crash.signal and crash.kind != "signal":
        raise _mistake(
            f'probe.crash: expected kind = "signal" beside signal, found kind = "{crash.kind}"'
        )
    if crash.signal and _signal(crash.signal) is None:
        raise _mistake(
            f"probe.crash.signal: expected a signal such as 'SIGSEGV', found {crash.signal!r}"
        )


def _signal(name: str) -> int | None:
    from signal import Signals  # noqa: PLC0415 - only for hunted signals

    return Signals.__members__.get(name)


def _pattern(pattern: str, where: str, *, group: bool) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise _mistake(
            f"{where}: expected a regular expression, found {pattern!r}: {error}"
        ) from error
    if group and not compiled.groups:
        raise _mistake(
            f"{where}: expected a group (…) around the number, found none in {pattern!r}"
        )


def _mistake(message: str) -> UsageError:
    return UsageError(message, next_command=EDIT)
