"""The result of a diff: every change between two sides, the answer in one sentence, and what belongs together.

A golden that moved is one event, and 72 red tests with one likely cause are one decision. Findings are grouped by
platform, kind, metric family, direction and severity. That is a heuristic: the same family moving the same way on the
same machines usually has one cause, and where it has not, the members are listed. A group says what its members have
in common and the other goldens of the platform have not: a model, or a word of the case's name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from karat.compare.change import Change, MetricChange, Verdict
from karat.compare.rules import RuleBook
from karat.findings import UNVERIFIED, Finding, Severity, info
from karat.report.result import Result
from karat.report.words import count, short_path

if TYPE_CHECKING:
    from karat.goldens.provenance import LockEntry
else:
    LockEntry = Any

_UNUSUAL_SHOWN = 8
_NAMED = 3


class FindingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Changes with one likely cause: a metric family that moved one way across files of a platform."""

    title: str
    kind: str
    severity: Severity
    platform: str
    family: str
    direction: str
    members: tuple[tuple[str, str | None], ...]  # (path, metric) of each member, largest movement first.
    low: float | None = None
    high: float | None = None  # Range of the members' deciding relative differences, in size, where they have one.

    @property
    def paths(self) -> list[str]:
        """The goldens among the members, once each."""
        return list(dict.fromkeys(path for path, _ in self.members))

    def names(self, labels: Mapping[str, str]) -> list[str]:
        """Their labels; the platform is told already."""
        return [labels[path].removesuffix(f" on {self.platform}") for path in self.paths]


class Diff(Result, msgspec.Struct, frozen=True, kw_only=True):
    """All changes between two sides, gravest first, and what was not even read."""

    old: str
    new: str
    changes: tuple[Change, ...]
    groups: tuple[FindingGroup, ...] = ()
    findings: tuple[Finding, ...] = ()  # About the whole comparison rather than one file.
    unchanged: int = 0  # Goldens whose bytes are the same on both sides and were therefore not read.
    root: str = ""  # The folder the goldens have in common, for titles.
    provenance: Mapping[str, tuple[LockEntry | None, LockEntry | None]] = {}
    """Golden → where its old and its new values came from, where a lock knows and it was asked for."""
    history: str = ""  # Which history the moves were held against, and what it lacks; empty if none was asked.

    def history_lines(self) -> Iterator[str]:
        """Which moves earlier refreshes hardly ever made, for people; nothing if no history was asked."""
        if not self.history:
            return
        from karat.compare.history import ENOUGH

        held = [(one.path, row.metric, row.history) for one in self.changes for row in one.metrics if row.history]
        known = [found for _, _, found in held if found.compared_with]
        unusual = sorted((one for one in held if one[2].unusual), key=lambda one: -(one[2].deviation or 0))
        said = [f"{len(unusual):,} of {count(len(held), 'move')} larger than earlier refreshes made"] if held else []
        if usual := len(known) - len(unusual):
            said.append(f"{usual:,} as usual")
        if unknown := len(held) - len(known):
            said.append(f"{unknown:,} with too few earlier ones to tell ({ENOUGH} needed)")
        yield "; ".join([", ".join(said), self.history] if said else [self.history])
        for path, metric, found in unusual[:_UNUSUAL_SHOWN]:
            yield f"{short_path(path, self.root)} {metric}: {found.size:.1e}, {found.sentence}"
        if len(unusual) > _UNUSUAL_SHOWN:
            yield f"… and {len(unusual) - _UNUSUAL_SHOWN:,} more"

    def all_findings(self) -> Iterator[Finding]:
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

    def answer(self, name: Callable[[str], str] = str, text: Callable[[str], str] = str) -> str:
        """The whole in one sentence: how many need a look, which must not be merged, whether a loss moved.

        `name` and `text` say how names and sentences are written where the answer goes.
        """
        parts = [f"{f.kind}: {text(f.message)}" for f in self.findings if f.severity is Severity.FAIL][:1]
        if self.changes:
            parts += [*_to_look_at(self.changes, labels(self.changes, self.root), name), *losses(self.changes)]
        elif not parts or self.unchanged:
            parts.append(f"no golden changed; {self.unchanged:,} unchanged" if self.unchanged else "no golden changed")
        said = "; ".join(parts)
        return said[:1].upper() + said[1:]

    def headline(self) -> str:
        return f"{self.old} → {self.new}: {self.answer()}"


def gravest_first(change: Change) -> tuple[int, int, float, str]:
    """The order of changes: by severity, verdict, and how far beyond the threshold."""
    return (change.severity.rank if change.severity else 3, change.verdict.rank, -change.beyond, change.path)


def verdict_counts(changes: Iterable[Change]) -> str:
    """`2 incomplete, 27 drift`, gravest first."""
    tally = Counter(change.verdict for change in changes)
    return ", ".join(f"{tally[v]:,} {v.value}" for v in Verdict if tally[v])


def labels(changes: Sequence[Change], root: str) -> dict[str, str]:
    """Path → the shortest name that is still one golden's alone: model/case where it is known, or with its platform."""
    names: dict[str, tuple[str, str]] = {}
    for change in changes:
        if case := change.identity.get("case"):
            model, again = change.identity.get("model"), change.identity.get("again", "")
            names[change.path] = (f"{model}/{case}" if model else case) + again, change.identity.get("platform", "")
    alone, there = Counter(name for name, _ in names.values()), Counter(names.values())
    found = {change.path: short_path(change.path, root) for change in changes}
    for path, (name, platform) in names.items():
        if there[name, platform] == 1:
            found[path] = name if alone[name] == 1 else f"{name} on {platform}"
    return found


def _to_look_at(changes: Sequence[Change], names: Mapping[str, str], name: Callable[[str], str]) -> Iterator[str]:
    severities = Counter(change.severity for change in changes)
    goldens, look = count(len(changes), "golden"), severities[Severity.FAIL] + severities[Severity.WARN]
    if look:
        yield f"{look:,} of {goldens} {'needs' if look == 1 else 'need'} a look"
    elif all(change.verdict is Verdict.SAME for change in changes):
        yield f"{goldens}, the same on both sides"
    else:
        yield f"none of {goldens} needs a look" if len(changes) > 1 else "1 golden, no need to look"
    kinds = {c.path: [f.kind for f in c.findings if f.severity is Severity.FAIL] for c in changes}
    for what, unverified in (("must not be merged", False), ("could not be compared", True)):
        paths = [path for path, found in kinds.items() if found and UNVERIFIED.issuperset(found) is unverified]
        if paths:
            yield f"{len(paths):,} {what}: {named([(name(names[path]), kinds[path][0]) for path in paths])}"


def named(found: Sequence[tuple[str, str]]) -> str:
    """A few goldens by name, each with the kind of its finding; of more, how many there are of each kind."""
    if len(found) <= _NAMED:
        return ", ".join(f"{name} ({kind})" for name, kind in found)
    return ", ".join(f"{n:,} {kind}" for kind, n in Counter(kind for _, kind in found).most_common())


def losses(changes: Iterable[Change]) -> Iterator[str]:
    """Whether a loss moved, where there is one: `no loss moved`, or in how many goldens it did."""
    seen: Counter[str] = Counter()
    for change in changes:
        told = {f.metric for f in change.findings if f.severity is not Severity.INFO}
        mine = [row for row in change.metrics if change.has_baseline and row.metric.endswith("loss")]
        ways = {
            row.direction or "changed" for row in mine if row.metric in told and row.verdict is not Verdict.INCOMPLETE
        }
        ways |= {"cut" for row in mine if row.verdict is Verdict.INCOMPLETE}
        seen.update(ways | {"" for row in mine if row.verdict is not Verdict.INCOMPLETE and row.metric not in told})
        seen["slightly"] += any(row.metric not in told and row.verdict is Verdict.DRIFT for row in mine)
    moved = [f"{way} in {seen[way]:,}" for way in ("up", "down", "changed") if seen[way]]
    cut = [f"not judged in {seen['cut']:,}"] if seen["cut"] else []
    if moved or (cut and not seen[""]):  # where none was judged, nobody knows that none moved
        yield f"loss {', '.join(moved + cut)}"
    elif seen[""]:
        yield ", ".join([f"no loss moved{' beyond its threshold' if seen['slightly'] else ''}", *cut])


def told(groups: Iterable[FindingGroup]) -> set[tuple[str, str, str | None]]:
    """(kind, path, metric) of what a group of several goldens tells of."""
    return {(g.kind, path, metric) for g in groups if len(g.paths) > 1 for path, metric in g.members}


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


def groups_of(changes: Sequence[Change], rules: RuleBook, *, unchanged: int = 0) -> tuple[FindingGroup, ...]:
    """The groups of all findings, gravest first, of these the loss, then largest; `unchanged` goldens were not read."""
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
    by_path = {change.path: change for change in changes}
    reach: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for change in changes if found else ():
        # The empty word is every golden's.
        reach[change.identity.get("platform", "")].update(("", *_words(change)))
    names, other = labels(changes, ""), "changed " if unchanged else ""
    groups = []
    for (platform, kind, family, direction, severity), members in found.items():
        paths = {path for _, path, _ in members}
        where = f" on {platform}" if platform else ""
        common = f"{names[min(paths)].removesuffix(where)}{where}"
        if len(paths) > 1:
            common = _common([by_path[path] for path in paths], reach[platform], other, where)
        drift, items = kind == "value-drift", sorted(members, key=lambda item: (-item[0], item[1], item[2] or ""))
        sizes = [size for size, _, _ in items if size] if drift else []
        what = " ".join(filter(None, (family, direction if drift else kind))) or kind
        group = FindingGroup(
            title=f"{what}: {common}",
            kind=kind,
            severity=severity,
            platform=platform,
            family=family,
            direction=direction,
            members=tuple((path, metric) for _, path, metric in items),
            low=min(sizes, default=None),
            high=max(sizes, default=None),
        )
        groups.append(group)
    return tuple(sorted(groups, key=lambda g: (g.severity.rank, g.family != "loss", -len(g.members), g.title)))


def _words(change: Change) -> dict[str, int]:
    """What a golden may have in common with others, and which to prefer: its model, its case's words, or its folders."""
    named = {key: value for key, value in change.identity.items() if key != "platform"}
    case = named.pop("case", None)
    if case is None and not named:
        return dict.fromkeys((f"under {folder}" for folder in change.path.split("/")[:-1]), 2)
    words = {f"with {word}": 2 for word in (case or "").split("_") if word}
    return words | {f"{value} cases": int(key != "model") for key, value in named.items()}


def _common(members: Sequence[Change], reach: Mapping[str, int], other: str, where: str) -> str:
    """`all 17 moe cases on gb200`: which of their words the others on the platform lack; `reach` counts all that have one."""
    rank, n, of, noun = _words(members[0]), len(members), reach[""], "goldens"
    shared = set(rank)
    for member in members:
        shared = shared & _words(member).keys() if shared else shared
    # The narrowest word says most; of equals, the model rather than a word of the name.
    word = min(shared, key=lambda w: (reach[w], rank[w], w), default="")
    # What most of the others have, too, says nothing.
    if word and (2 * reach[word] <= of or (reach[word] == n and (rank[word] < 2 or n < of))):
        noun = f"cases {word}" if rank[word] == 2 else word
        if 2 * n < reach[word]:
            return f"{n:,} of {of:,} {other}goldens{where}, all {noun}"
        of = reach[word]
    return f"{'all' if n == of else f'{n:,} of'} {of:,} {other}{noun}{where}"
