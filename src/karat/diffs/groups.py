"""Changes that belong together: a golden that moved is one event, and 72 red tests with one cause are one decision.

Findings are grouped by platform, kind, metric family, direction and severity. That is a heuristic: the same family
moving the same way on the same machines usually has one cause, and where it has not, the members are listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from karat.compare.change import Change
from karat.compare.rules import RuleBook
from karat.diffs.result import Group
from karat.findings import Severity, info
from karat.report.words import count


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
    return [_moved(change, *partner[change.path]) if change.path in partner else change for change in changes]


def _moved(change: Change, other: str, way: str) -> Change:
    note = info("moved-golden", f"moved {way} {other}: the same bytes stand there", path=change.path)
    kept = tuple(f for f in change.findings if f.kind not in {"removed-golden", "new-golden"})
    return replace(change, findings=(*kept, note))


_Key = tuple[str, str, str, str, Severity]
_Member = tuple[float, str, str | None]

# Each is its own decision, or none at all.
_UNGROUPED = frozenset({"format-only", "dropped-placeholders"})


def groups_of(changes: Iterable[Change], rules: RuleBook) -> tuple[Group, ...]:
    """The groups of all findings, gravest first, then largest."""
    found: defaultdict[_Key, list[_Member]] = defaultdict(list)
    for change in changes:
        for key, size, metric in _entries(change, rules):
            found[key].append((size, change.path, metric))
    groups = [_group(key, members) for key, members in found.items()]
    return tuple(sorted(groups, key=lambda g: (g.severity.rank, -len(g.members), g.title)))


def _entries(change: Change, rules: RuleBook) -> Iterator[tuple[_Key, float, str | None]]:
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
        yield (platform, finding.kind, family, direction, finding.severity), size, finding.metric


def _group(key: _Key, members: Sequence[_Member]) -> Group:
    platform, kind, family, direction, severity = key
    items = sorted(members, key=lambda item: (-item[0], item[1], item[2] or ""))
    sizes = [size for size, _, _ in items if size]
    drift = kind == "value-drift"
    what = " ".join(part for part in (family, direction if drift else kind) if part) or kind
    where = f" on {platform}" if platform else ""
    return Group(
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
