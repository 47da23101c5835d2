"""Judging: may what came in take the place of what stands?

The job's conclusion condemns nothing: a moved golden is why it failed. What condemns is content that
is not all there. Values that moved far are taken with a warning; `karat diff` and `karat stage`
object to them, which is where a person decides. Pure: readings in, verdicts out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import msgspec
from msgspec import structs

from karat.compare.change import Change
from karat.compare.pairs import Pair, compare_many
from karat.compare.rules import RuleBook
from karat.findings import Finding, Severity
from karat.goldens.shapes import Golden, Reading, RowKey, Series, Table
from karat.refreshes.jobs import UNFINISHED

Asked = Callable[[str], bool]

CONDEMNED = frozenset({
    "claimed-twice", "conflict-markers", "duplicate-key", "duplicate-row", "empty", "lost-metric",
    "lost-rows", "lost-steps", "missing-shard", "new-nan", "no-usable-steps", "nothing-compared",
    "ragged-row", "structure-changed", "truncated", "type-changed", "unreadable",
})  # fmt: skip
"""Kinds of `fail` finding that say a file is not all there, or cannot be trusted."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """What wants to become a golden, read and put together."""

    path: str
    reading: Reading
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    conclusion: str | None = None
    findings: tuple[Finding, ...] = ()
    """What was noticed on the way here."""
    base: Reading | None = None
    """What lies in the work tree, where only some metrics go into it."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the user allows."""

    accept_incomplete: bool = False
    prune: bool = False
    metrics: tuple[str, ...] = ()


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict: the golden to write, or None where it is refused."""

    golden: Golden | None
    change: Change
    findings: tuple[Finding, ...]
    accepted: bool = False
    """Taken only because the user said so."""
    metrics: tuple[str, ...] = ()
    verbatim: bool = True
    """The incoming file as it stands is the golden; nothing was merged into it."""


def judge_many(
    incoming: Sequence[tuple[Incoming, Reading | None]],
    policy: Policy,
    rules: RuleBook,
    status: Sequence[str],
) -> list[Judged]:
    """The verdict on each, against the golden that stands (None: there is none)."""
    merged = [_merged(new, old, policy) for new, old in incoming]
    pairs = [
        Pair(path=new.path, old=old, new=reading, identity=new.identity)
        for (new, old), (reading, _, _) in zip(incoming, merged, strict=True)
    ]
    changes = compare_many(pairs, rules, status=status)
    return [
        _verdict(new, reading, change, policy, names, verbatim=whole)
        for (new, _), (reading, names, whole), change in zip(incoming, merged, changes, strict=True)
    ]


def _merged(
    new: Incoming, old: Reading | None, policy: Policy
) -> tuple[Reading, tuple[str, ...], bool]:
    """What would stand in the tree: the new values, or the old file with some of them."""
    golden, before = new.reading.golden, old.golden if old else None
    if golden is None:
        return new.reading, (), True
    if policy.metrics:
        # The rest of the file stays as it is, not as HEAD has it: it may be an earlier refresh's.
        lying = new.base.golden if new.base is not None else None
        return _only_metrics(new, golden, before if lying is None else lying, policy.metrics)
    keep = policy.accept_incomplete and not policy.prune
    if keep and isinstance(golden, Table) and isinstance(before, Table):
        return _with_old_rows(new.reading, golden, before)
    return new.reading, (), True


def _with_old_rows(
    reading: Reading, new: Table, old: Table
) -> tuple[Reading, tuple[str, ...], bool]:
    """Rows that did not come in stay as they were: they are removed by --prune alone."""
    lost = {key: cells for key, cells in old.rows.items() if key not in new.rows}
    if not lost or old.key != new.key:
        return reading, (), True
    if not set(old.columns) <= set(new.columns):
        return reading, (), True  # the old rows would lose cells; it is the columns that are lost
    places = [old.columns.index(c) if c in old.columns else None for c in new.columns]
    lost = {
        key: tuple("" if i is None else cells[i] for i in places) for key, cells in lost.items()
    }
    names = ", ".join(" / ".join(key) for key in list(lost)[:5])
    found = _refusal(
        "lost-rows", f"{len(lost)} rows did not come in and stay as they were: {names}"
    )
    whole = structs.replace(new, rows={**new.rows, **lost})
    kept = structs.replace(reading, golden=whole, findings=(*reading.findings, found))
    return kept, (), False


def is_asked_for(name: str, globs: Sequence[str]) -> bool:
    """Whether a metric is one of those that --metric means."""
    return any(name == glob or fnmatchcase(name, glob) for glob in globs)


def _only_metrics(
    new: Incoming, golden: Golden, before: Golden | None, globs: Sequence[str]
) -> tuple[Reading, tuple[str, ...], bool]:
    def asked(name: str) -> bool:
        return is_asked_for(name, globs)

    if isinstance(golden, Series) and isinstance(before, Series | None):
        return _only_curves(new, golden, before or Series({}), asked)
    if isinstance(golden, Table) and isinstance(before, Table) and before.key == golden.key:
        return _only_columns(new, golden, before, asked)
    found = _refusal("type-changed", f"--metric knows curves and columns; this is a {golden.shape}")
    return structs.replace(new.reading, golden=None, findings=(found,)), (), False


def _only_curves(
    new: Incoming, golden: Series, before: Series, asked: Asked
) -> tuple[Reading, tuple[str, ...], bool]:
    curves = {name: m for name, m in golden.metrics.items() if asked(name)}
    scalars = {name: v for name, v in golden.scalars.items() if asked(name)}
    lost = [
        n for n in (*before.metrics, *before.scalars) if asked(n) and n not in {**curves, **scalars}
    ]
    if lost or not (curves or scalars):
        found = _untaken(lost, (*golden.metrics, *golden.scalars), "metric")
        return structs.replace(new.reading, golden=None, findings=(found,)), (), False
    whole = structs.replace(
        before,
        metrics={**before.metrics, **curves},
        scalars={**before.scalars, **scalars},
    )
    return structs.replace(new.reading, golden=whole), (*curves, *scalars), False


def _only_columns(
    new: Incoming, golden: Table, before: Table, asked: Asked
) -> tuple[Reading, tuple[str, ...], bool]:
    names = tuple(c for c in before.columns if asked(c) and c not in before.key)
    lost = [name for name in names if name not in golden.columns]
    absent = [" / ".join(key) for key in before.rows if key not in golden.rows]
    found = None
    if lost or not names:
        found = _untaken(lost, before.columns, "column")
    elif absent:
        rows = f"{len(absent)} rows did not come in: {', '.join(absent[:5])}"
        found = _refusal("lost-rows", f"--metric: {rows}")
    if found is not None:
        return structs.replace(new.reading, golden=None, findings=(found,)), (), False
    merged = structs.replace(before, rows=_with_columns(before, golden, names))
    findings = (*new.reading.findings, *_rows_left(before, golden))
    return structs.replace(new.reading, golden=merged, findings=findings), names, False


def _with_columns(
    before: Table, golden: Table, names: Sequence[str]
) -> dict[RowKey, tuple[str, ...]]:
    at = [(before.columns.index(name), golden.columns.index(name)) for name in names]
    rows = {}
    for key, cells in before.rows.items():
        changed = list(cells)
        for i, j in at:
            changed[i] = golden.rows[key][j]
        rows[key] = tuple(changed)
    return rows


def _rows_left(before: Table, golden: Table) -> list[Finding]:
    """Rows that came in and have no place: some columns alone make no row."""
    more = [" / ".join(key) for key in golden.rows if key not in before.rows]
    if not more:
        return []
    message = (
        f"--metric adds no rows, so {len(more)} that came in are left out: {', '.join(more[:5])}"
    )
    return [Finding(kind="gained-rows", severity=Severity.WARN, message=message)]


def _refusal(kind: str, message: str) -> Finding:
    return Finding(kind=kind, severity=Severity.FAIL, message=message)


def _untaken(lost: Sequence[str], there: Sequence[str], what: str) -> Finding:
    """What --metric means did not come in; or it means nothing, which another run would not mend."""
    if lost:
        return _refusal("lost-metric", f"--metric: {', '.join(lost)} did not come in")
    names = ", ".join(there[:8]) + (", …" if len(there) > 8 else "")
    message = f"--metric: it has no such {what}, only {names or 'none'}"
    return replace(_refusal("lost-metric", message), next="karat refresh --help")


def _verdict(
    new: Incoming,
    reading: Reading,
    change: Change,
    policy: Policy,
    names: tuple[str, ...],
    *,
    verbatim: bool,
) -> Judged:
    findings = [*new.findings, *change.findings]
    if policy.prune:
        findings = [_pruned(f) for f in findings]
    condemned = [f for f in findings if f.severity is Severity.FAIL and f.kind in CONDEMNED]
    accepted = bool(condemned) and policy.accept_incomplete and reading.golden is not None
    taken = reading.golden if accepted or not condemned else None
    # Of a file that is refused, only the reasons matter; how far its remains moved does not.
    worth = condemned if taken is None else findings
    told = [_told(f, new.path, refused=taken is None) for f in worth]
    if accepted:
        told = [
            replace(f, severity=Severity.WARN) if f.severity is Severity.FAIL else f for f in told
        ]
        told.append(_accepted(new.path, condemned))
    if taken is not None and new.conclusion in UNFINISHED:
        told.append(_unfinished(new))
    return Judged(
        golden=taken,
        change=change,
        findings=tuple(sorted(told, key=lambda f: f.severity.rank)),
        accepted=accepted,
        metrics=names,
        verbatim=verbatim and not names,
    )


def _told(finding: Finding, path: str, *, refused: bool) -> Finding:
    """The finding as a refresh tells it: with the golden's path, and graver only where it condemns."""
    placed = finding if finding.path else replace(finding, path=path)
    if placed.severity is not Severity.FAIL:
        return placed
    if placed.kind not in CONDEMNED:
        return replace(placed, severity=Severity.WARN)
    if not refused:
        return placed
    way_out = "; if that is meant, --prune" if placed.kind == "lost-rows" else ""
    return replace(placed, message=f"refused, the old golden is kept: {placed.message}{way_out}")


def _pruned(finding: Finding) -> Finding:
    if finding.kind != "lost-rows":
        return finding
    return replace(finding, severity=Severity.INFO, message=f"pruned: {finding.message}")


def _accepted(path: str, condemned: Sequence[Finding]) -> Finding:
    kinds = ", ".join(sorted({f.kind for f in condemned}))
    return Finding(
        kind="accepted-incomplete",
        severity=Severity.WARN,
        path=path,
        message=f"taken although karat objects ({kinds}), because --accept-incomplete was given",
    )


def _unfinished(new: Incoming) -> Finding:
    how = "was cancelled" if new.conclusion == "cancelled" else "timed out"
    return Finding(
        kind="from-unfinished-job",
        severity=Severity.WARN,
        path=new.path,
        message=f"taken from a job that {how}; the file itself is complete",
    )
