"""The result of a diff: every change between two sides, groups of them, and what was not even read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from karat.compare.change import Change, MetricChange, Verdict
from karat.findings import Finding, Severity
from karat.report.result import Result


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Changes with one likely cause: a metric family that moved one way across files of a platform."""

    title: str
    kind: str
    severity: Severity
    platform: str
    family: str
    direction: str
    members: tuple[tuple[str, str | None], ...]
    """(path, metric) of each member, largest movement first."""
    low: float | None = None
    high: float | None = None
    """Range of the members' deciding relative differences, in size, where they have one."""


class Diff(Result, msgspec.Struct, frozen=True, kw_only=True):
    """All changes between two sides, gravest first, and what was not even read."""

    old: str
    new: str
    changes: tuple[Change, ...]
    groups: tuple[Group, ...] = ()
    findings: tuple[Finding, ...] = ()
    """About the whole comparison rather than one file."""
    unchanged: int = 0
    """Goldens whose bytes are the same on both sides and were therefore not read."""
    root: str = ""
    """The folder the goldens have in common, for titles."""

    def all_findings(self) -> Iterator[Finding]:
        """Every finding, the whole comparison's first, then by file."""
        yield from self.findings
        for change in self.changes:
            yield from change.findings

    def to_json(self) -> bytes:
        """Schema karat.diff/1."""
        from karat.diffs.report.data import render_json

        return render_json(self)

    def rows(self) -> list[dict[str, Any]]:
        """One row per golden and metric; a golden without metrics has one row."""
        nothing = MetricChange(metric="", verdict=Verdict.SAME, because="")
        return [
            {
                "golden": change.path,
                "verdict": change.verdict.value,
                "metric": row.metric,
                "steps": row.n_steps,
                "mean_rel_diff": row.avg_rel_diff,
                "mean_abs_rel_diff": row.mean_abs_rel_diff,
                "max_abs_rel_diff": row.max_abs_rel_diff,
                "at": row.max_step,
                "because": row.because or "; ".join(f.message for f in change.findings),
            }
            for change in self.changes
            for row in change.metrics or (nothing,)
        ]

    def headline(self) -> str:
        """How many goldens, by verdict."""
        verdicts = Counter(change.verdict for change in self.changes)
        counted = ", ".join(f"{verdicts[v]:,} {v.value}" for v in Verdict if verdicts[v])
        return f"{self.old} → {self.new}: {counted or 'no goldens compared'}; {self.unchanged:,} unchanged"
