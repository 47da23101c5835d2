"""A diff as one self-contained page, for a reviewer with a browser and no network.

The body is `page/body.html`; rows, findings and curves travel as JSON beside it, and the script draws them.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.origins import place, runs
from karat.diffs.report.data import gravity
from karat.diffs.result import Diff, labels, verdict_counts
from karat.findings import KINDS, Finding, Severity
from karat.report.html import asset, fill, page, script_json, text
from karat.report.words import count, few, severity_counts
from karat.tensors.comparison import within
from karat.tensors.report import facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from karat.goldens.shapes import Metric

MAX_POINTS: Final = 3_000_000
"""Points of all embedded curves together, old and new; what is over it is named on the page."""

NO_CURVE: Final = -1
OVER_LIMIT: Final = -2
_RUNS_SHOWN: Final = 4

# What a row carries besides file, metric, verdict and reason; the script uses the same names.
# fmt: off
_NUMBERS: Final = (
    "n_steps", "change", "mean_abs_rel_diff", "max_abs_rel_diff", "max_step", "max_old", "max_new",
    "first_diff_step", "bit_equal", "n_shared", "steps_lost", "steps_gained", "nan_gained", "nan_lost",
    "threshold_ratio", "tolerance_ratio", "steady_rel_diff", "rule",
)
# fmt: on
_FIELDS: Final = ("file", "metric", "verdict", "because", *_NUMBERS, "curve", "tensor")

_WITHOUT_ROWS: Final = {
    Verdict.UNREADABLE: KINDS["unreadable"].meaning,
    Verdict.INCOMPLETE: KINDS["truncated"].meaning,
    Verdict.REMOVED: KINDS["removed-golden"].meaning,
    Verdict.NEW: KINDS["new-golden"].meaning,
    Verdict.SAME: "no value differs",
}

_EXACT_INT: Final = 2**53
_INT32: Final = 2**31 - 1
_SCRIPTS: Final = ("words.js", "plot.js", "page.js")


def render(diff: Diff, *, title: str | None = None, command: str | None = None) -> str:
    """One self-contained HTML file; the same Diff always gives the same bytes."""
    about = title or (f"Golden values of {diff.root}" if diff.root else "Golden values")
    heading = diff.answer()
    names = labels(diff.changes, diff.root)
    # One line of the page's table each: a (file, metric), or a file that has no metrics to show.
    rows = [(file, change, row) for file, change in enumerate(diff.changes) for row in change.metrics or (None,)]
    rows.sort(key=lambda row: gravity(row[2]) if row[2] else (row[1].verdict.rank, -np.inf, -np.inf))
    curves, places = _embed([numbers for _, _, numbers in rows], MAX_POINTS)
    findings = sorted(diff.all_findings(), key=lambda finding: finding.severity.rank)
    files = {change.path: file for file, change in enumerate(diff.changes)}
    body = fill(
        _asset("body.html"),
        {
            "title": text(heading),
            "about": text(about),
            "old": text(diff.old),
            "new": text(diff.new),
            "origins": "".join(_origins(diff)),
            "totals": " ".join(_totals(diff)),
            "command": f'<p class="command"><code id="command">{text(command)}</code></p>' if command else "",
            "noscript": _noscript(findings),
            "data": script_json(
                {
                    "fields": _FIELDS,
                    "verdicts": [verdict.value for verdict in Verdict],
                    "root": diff.root,
                    "limit": MAX_POINTS,
                    "files": [
                        [c.path, c.shape, {**c.identity, **_provenance(diff, c.path)}, names[c.path]]
                        for c in diff.changes
                    ],
                    "rows": [_row(*row, place) for row, place in zip(rows, places, strict=True)],
                    "findings": [
                        [f.severity.value, f.kind, f.path, f.metric, f.where, _without_metric(f), f.next]
                        for f in findings
                    ],
                    "kinds": {f.kind: KINDS[f.kind].meaning for f in findings if f.kind in KINDS},
                    "groups": [
                        [
                            group.severity.value,
                            group.title,
                            [[files.get(path, -1), metric] for path, metric in group.members],
                            _plain(group.low),
                            _plain(group.high),
                        ]
                        for group in sorted(diff.groups, key=lambda group: group.severity.rank)
                        if len(group.paths) > 1  # what stands alone is among the findings
                    ],
                }
            ),
            "curves": script_json(curves),
        },
    )
    return page(
        title=f"{heading} · {about}", body=body, style=_asset("page.css"), script="\n".join(map(_asset, _SCRIPTS))
    )


def _asset(name: str) -> str:
    return asset("karat.diffs.report", f"page/{name}")


def _plain(value: Any) -> Any:
    """A value that JSON and JavaScript hold exactly; as text where they cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and abs(value) > _EXACT_INT:
        return str(value)
    return value


def _origins(diff: Diff) -> Iterator[str]:
    """From which runs the values of either side came, as markup."""
    for side, word in enumerate(("old", "new")):
        if said := list(runs(diff, side)):
            yield f'<p class="origin"><b>{word}</b> from {text(few(said, _RUNS_SHOWN, "; "))}</p>'


def _provenance(diff: Diff, path: str) -> dict[str, str]:
    """Where a golden's values came from, among the facts of its rows."""
    sides = zip(("old", "new"), diff.provenance.get(path, ()), strict=False)
    told = {
        f"{word} values": line
        and ", ".join(filter(None, (place(line.source, line.run), line.job, line.image, line.date)))
        for word, line in sides
    }
    return {word: said for word, said in told.items() if said}


def _without_metric(finding: Finding) -> str:
    """The sentence; the page names the metric itself, in front of it."""
    metric = finding.metric or ""
    return finding.message.removeprefix(f"{metric}: ").removeprefix(within(metric))


def _row(file: int, change: Change, numbers: MetricChange | None, place: int) -> list[Any]:
    if numbers is None:
        gravest = min(change.findings, key=lambda f: f.severity.rank, default=None)
        because = gravest.message if gravest else _WITHOUT_ROWS.get(change.verdict, "")
        return [file, None, change.verdict.rank, because, *[None] * len(_NUMBERS), place, None]
    values = [_plain(getattr(numbers, name)) for name in _NUMBERS]
    tensor = list(facts(numbers.tensor)) if numbers.tensor else None
    if tensor is not None:
        values[_NUMBERS.index("n_steps")] = None  # a tensor has elements, and no steps
    because = numbers.because if numbers.history is None else f"{numbers.because}; {numbers.history.sentence}"
    return [file, numbers.metric, numbers.verdict.rank, because, *values, place, tensor]


def _embed(rows: Iterable[MetricChange | None], limit: int) -> tuple[list[Any], list[int]]:
    """The curves that fit, and for each row which one is its own; rows come gravest first."""
    curves: list[Any] = []
    places: list[int] = []
    for row in rows:
        sides = [side for side in (row.old, row.new) if side is not None] if row else []
        points = sum(side.steps.size for side in sides)
        if row is None or not points:
            places.append(NO_CURVE)
        elif points > limit:
            places.append(OVER_LIMIT)
        else:
            limit -= points
            places.append(len(curves))
            curves.append(_curve(row.old, row.new))
    return curves, places


def _curve(old: Metric | None, new: Metric | None) -> list[Any]:
    """Steps and values of both sides; 0 for a side that is absent, 1 for "as the old side's"."""
    if old is None or new is None:
        return [_side(old), _side(new)]
    fresh = _side(new)
    if np.array_equal(old.steps, new.steps):
        fresh[0] = 1
        if np.array_equal(old.values, new.values, equal_nan=True):
            fresh[1] = 1
    return [_side(old), fresh]


def _side(metric: Metric | None) -> Any:
    return 0 if metric is None else [_steps(metric.steps), _values(metric.values)]


def _steps(steps: NDArray[np.int64]) -> Any:
    """[first, interval, count] where regular, else the packed steps."""
    gaps = np.diff(steps)
    if steps.size and (gaps == gaps[:1]).all() and np.abs(steps).max() <= _EXACT_INT:
        return [int(steps[0]), int(gaps[0]) if gaps.size else 1, int(steps.size)]
    return _values(steps.astype(np.float64))


def _values(values: NDArray[np.float64]) -> list[Any]:
    """Packed values, exact: int32 over a power of ten where that gives them back, else floats.

    Goldens are written with a few decimals, so 4 bytes nearly always do. The smallest int32 is NaN.
    """
    missing = np.isnan(values)
    known = values[~missing]
    top = float(np.abs(known).max(initial=0))
    for digits in range(10):
        if top * 10**digits > _INT32:
            break
        whole = np.round(known * 10**digits)
        if np.array_equal(whole / 10**digits, known) and not np.signbit(known[whole == 0]).any():
            packed = np.full(values.shape, -_INT32 - 1, "<i4")
            packed[~missing] = whole.astype("<i4")
            return [digits, _base64(packed)]
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype("<f4")
    if np.array_equal(single, values, equal_nan=True):
        return ["f", _base64(single)]
    return ["d", _base64(values.astype("<f8"))]


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _totals(diff: Diff) -> Iterator[str]:
    """Sentences of totals, as markup; they hold numbers and karat's own words only."""
    if diff.changes:
        yield f"<strong>{count(len(diff.changes), 'golden')} compared</strong>: {verdict_counts(diff.changes)};"
        yield f"{count(sum(len(change.metrics) for change in diff.changes), 'row')} compared."
    else:
        yield "<strong>No golden changed.</strong>"
    yield f"Findings: {severity_counts(diff.all_findings()) or 'none'}."
    if diff.unchanged:
        yield f"{count(diff.unchanged, 'golden')} unchanged, byte for byte."


def _noscript(findings: Iterable[Finding]) -> str:
    """What a browser without scripts shows below the totals: what failed."""
    items = []
    for finding in findings:
        if finding.severity is Severity.FAIL:
            where = " › ".join(part for part in (finding.path, finding.metric, finding.where) if part)  # noqa: RUF001 - a separator, not a bracket
            after = f"<br><code>{text(finding.next)}</code>" if finding.next else ""
            said = f"<b>{text(finding.kind)}</b> <code>{text(where)}</code><br>{text(finding.message)}{after}"
            items.append(f"<li>{said}</li>")
    return (
        "<p>The table and the plots need JavaScript. These findings failed:</p>"
        f"<h2>{count(len(items), 'failing finding')}</h2><ul>{''.join(items)}</ul>"
    )
