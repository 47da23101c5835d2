"""Reports: what was said of each series that was read, and what a person should know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from time import perf_counter

import msgspec

from karat.changes.change import Analysis, Newest
from karat.changes.detecting import FEWEST, analyse
from karat.changes.online import newest
from karat.changes.options import DetectOptions
from karat.changes.reading import Collected
from karat.changes.report_findings import change_findings, newest_findings, too_short
from karat.changes.series import Outcome, Series
from karat.findings import CannotVerify, ExitCode, Finding, exit_code

_TOGETHER = 3


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """One series, with what the detector said of it."""

    series: Series
    analysis: Analysis
    newest: Newest | None = None
    """Online only."""

    @property
    def outcomes(self) -> Counter[Outcome]:
        """Outcome → how many points."""
        return Counter(point.outcome for point in self.series.observations)


class ChangesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `karat changes` says."""

    entries: tuple[Examined, ...]
    findings: tuple[Finding, ...]
    """Gravest first."""
    notes: tuple[str, ...]
    options: DetectOptions
    online: bool = False
    seconds: float = 0.0
    fail_on: tuple[str, ...] = ("fail",)

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings, fail_on=self.fail_on)


def examine(
    collected: Collected,
    options: DetectOptions,
    *,
    online: bool = False,
    fail_on: tuple[str, ...] = ("fail",),
) -> ChangesReport:
    """The report of all series; without a single value there is none."""
    started = perf_counter()
    _something(collected)
    entries = tuple(_examined(series, options, online=online) for series in collected.series)
    findings = [*collected.findings]
    for entry in entries:
        if entry.outcomes[Outcome.OK] < FEWEST:
            findings.append(too_short(entry.series, FEWEST))
        if entry.newest is not None:
            findings += newest_findings(entry.series, entry.newest)
        else:
            findings += change_findings(entry.series, entry.analysis)
    findings.sort(key=lambda finding: finding.severity.rank)
    return ChangesReport(
        entries=entries, findings=tuple(findings), notes=_notes(collected, entries), options=options,
        online=online, seconds=perf_counter() - started, fail_on=fail_on,
    )  # fmt: skip


def _examined(series: Series, options: DetectOptions, *, online: bool) -> Examined:
    analysis = analyse(series, options)
    return Examined(
        series=series,
        analysis=analysis,
        newest=newest(series, options) if online else None,
    )


def _something(collected: Collected) -> None:
    """No values at all is no series without changes."""
    points = [point for one in collected.series for point in one.observations]
    if any(point.outcome is Outcome.OK for point in points):
        return
    names = ", ".join(repr(one.metric) for one in collected.series[:5])
    outcomes = Counter(point.outcome.value for point in points)
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()) or "no points"
    crash = next((f"; the first crash: {p.signature}" for p in points if p.signature), "")
    odd = next((f"; {finding.message}" for finding in collected.findings), "")
    raise CannotVerify(
        f"nothing was compared: expected values{f' of {names}' if names else ''}, found none"
        f" ({told}{crash or odd})",
        next_command=next((f.next for f in collected.findings if f.next), "karat changes --help"),
    )


def _notes(collected: Collected, entries: Sequence[Examined]) -> tuple[str, ...]:
    notes = list(collected.notes)
    undecided = [e for e in entries if e.series.better is None and e.analysis.steps]
    if undecided:
        names = ", ".join(dict.fromkeys(e.series.metric for e in undecided[:3]))
        more = " …" if len(undecided) > 3 else ""
        notes.append(
            f"nobody said whether higher or lower is better for {names}{more}: --better makes a regression fail"
        )
    return (*notes, *_together(entries))


def _together(entries: Sequence[Examined]) -> Iterator[str]:
    """Series that changed between the same two points: one cause is likelier than many."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        label = [point.label for point in entry.series.observations]
        for step in entry.analysis.steps:
            place = (entry.series.source, label[step.last_good], label[step.first_bad])
            places.setdefault(place, []).append(entry.series.metric)
    shared = sorted(
        ((p, m) for p, m in places.items() if len(m) > 1), key=lambda item: -len(item[1])
    )
    for (_, good, bad), metrics in shared[:_TOGETHER]:
        names = ", ".join(metrics[:4]) + (" …" if len(metrics) > 4 else "")
        yield f"{len(metrics):,} series changed between {good} and {bad}: {names}"
