"""The result of a diff: every change between two sides, and what belongs together.

A golden that moved is one event, and 72 red tests with one likely cause are one decision. Findings are grouped by
platform, kind, metric family, direction and severity. That is a heuristic: the same family moving the same way on the
same machines usually has one cause, and where it has not, the members are listed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from karat.compare.change import Change, MetricChange, Verdict
from karat.compare.rules import RuleBook
from karat.findings import Finding, Severity, info
from karat.report.result import Result
from karat.report.words import count, short_path

_UNUSUAL_SHOWN = 8


class FindingGroup(msgspec.Struct, frozen=True, kw_only=True):
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
    groups: tuple[FindingGroup, ...] = ()
    findings: tuple[Finding, ...] = ()
    """About the whole comparison rather than one file."""
    unchanged: int = 0
    """Goldens whose bytes are the same on both sides and were therefore not read."""
    root: str = ""
    """The folder the goldens have in common, for titles."""
    history: str = ""
    """Which history the moves were held against, and what it lacks; empty if none was asked."""

    def history_lines(self) -> Iterator[str]:
        """Which moves earlier refreshes hardly ever made, for people; nothing if no history was asked."""
        if not self.history:
            return
        held = [
            (change.path, row.metric, row.history) for change in self.changes for row in change.metrics if row.history
        ]
        known = [found for _, _, found in held if found.compared_with]
        unusual = sorted((one for one in held if one[2].unusual), key=lambda one: -(one[2].deviation or 0))
        said = [f"{len(unusual):,} of {count(len(held), 'move')} larger than earlier refreshes made"] if held else []
        if usual := len(known) - len(unusual):
            said.append(f"{usual:,} as usual")
        if unknown := len(held) - len(known):
            said.append(f"{unknown:,} with too few to tell")
        yield "; ".join([", ".join(said), self.history] if said else [self.history])
        for path, metric, found in unusual[:_UNUSUAL_SHOWN]:
            yield f"{short_path(path, self.root)} {metric}: {found.size:.1e}, {found.sentence}"
        if len(unusual) > _UNUSUAL_SHOWN:
            yield f"… and {len(unusual) - _UNUSUAL_SHOWN:,} more"

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
                "metric_verdict": row.verdict.value if row.metric else "",
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
        counted = verdict_counts(self.changes) or "no goldens compared"
        unchanged = f"; {self.unchanged:,} unchanged" if self.unchanged else ""
        return f"{self.old} → {self.new}: {counted}{unchanged}"


def verdict_counts(changes: Iterable[Change]) -> str:
    """`2 incomplete, 27 drift`, gravest first."""
    tally = Counter(change.verdict for change in changes)
    return ", ".join(f"{tally[v]:,} {v.value}" for v in Verdict if tally[v])


def mark_moves(changes: Sequence[Change], digests: Mapping[str, tuple[bytes | None, bytes | None]]) -> list[Change]:
    """The changes, with removed and new goldens of equal bytes naming one another."""
    gone, came = defaultdict(list), defaultdict(list)
    for path, (old, new) in sorted(digests.items()):
        if old is not None and new is None:
            gone[old].append(path)
        elif new is not None and old is None:
            came[new].append(path)
    partner = {}
    for digest, before in gone.items():
        # Goldens with equal bytes are not told apart; which became which does not matter then.
        for one, other in zip(before, came[digest], strict=False):
            partner[one] = (other, "to")
            partner[other] = (one, "from")
    marked = []
    for change in changes:
        if change.path in partner:
            other, way = partner[change.path]
            note = info("moved-golden", f"moved {way} {other}: the bytes there are the same", path=change.path)
            kept = (f for f in change.findings if f.kind not in {"removed-golden", "new-golden"})
            change = replace(change, findings=(*kept, note))  # noqa: PLW2901 - the same change, marked
        marked.append(change)
    return marked


_Key = tuple[str, str, str, str, Severity]
_Member = tuple[float, str, str | None]
# Each is its own decision, or none at all.
_UNGROUPED = frozenset({"format-only", "dropped-placeholders"})


def groups_of(changes: Iterable[Change], rules: RuleBook) -> tuple[FindingGroup, ...]:
    """The groups of all findings, gravest first, then largest."""
    found: defaultdict[_Key, list[_Member]] = defaultdict(list)
    for change in changes:
        platform = change.identity.get("platform", "")
        rows = {m.metric: m for m in change.metrics}
        for finding in change.findings:
            if finding.kind in _UNGROUPED:
                continue
            row = rows.get(finding.metric or "")
            direction = row.direction if row and finding.kind == "value-drift" else ""
            size = abs((row.movement if row else None) or 0.0)
            family = ""
            if finding.metric is not None:
                rule = rules.rule_for(finding.metric, change.path)
                family = rule.family or finding.metric.rsplit(".", 1)[-1]
            key = (platform, finding.kind, family, direction, finding.severity)
            found[key].append((size, change.path, finding.metric))
    groups = [_group(key, members) for key, members in found.items()]
    return tuple(sorted(groups, key=lambda g: (g.severity.rank, -len(g.members), g.title)))


def _group(key: _Key, members: Sequence[_Member]) -> FindingGroup:
    platform, kind, family, direction, severity = key
    items = sorted(members, key=lambda item: (-item[0], item[1], item[2] or ""))
    sizes = [size for size, _, _ in items if size]
    drift = kind == "value-drift"
    what = " ".join(part for part in (family, direction if drift else kind) if part) or kind
    where = f" on {platform}" if platform else ""
    return FindingGroup(
        title=f"{what}{where}: {count(len({path for _, path, _ in items}), 'file')}",
        kind=kind,
        severity=severity,
        platform=platform,
        family=family,
        direction=direction,
        members=tuple((path, metric) for _, path, metric in items),
        low=min(sizes) if drift and sizes else None,
        high=max(sizes) if drift and sizes else None,
    )
