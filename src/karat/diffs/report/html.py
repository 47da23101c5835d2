"""A diff as one self-contained page, for a reviewer with a browser and no network.

The body is `page/body.html`; rows, findings and curves travel as JSON beside it, and the script draws them.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.origins import place, runs
from karat.diffs.report.data import counts, gravity
from karat.diffs.result import Diff, labels
from karat.findings import KINDS, Severity
from karat.report.html import Markup, asset, fill, findings as findings_list, head, page, script_json, text
from karat.report.words import few
from karat.tensors.comparison import within
from karat.tensors.report import facts

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_OF_TENSORS: Final = ("max_abs", "max_ulp", "sqnr_db", "cosine")
FIELDS: Final = ("file", "metric", "verdict", "because", *_NUMBERS, "curve", "tensor")

_WITHOUT_ROWS: Final = {
    Verdict.UNREADABLE: KINDS["unreadable"].meaning,
    Verdict.INCOMPLETE: KINDS["truncated"].meaning,
    Verdict.REMOVED: KINDS["removed-golden"].meaning,
    Verdict.NEW: KINDS["new-golden"].meaning,
    Verdict.SAME: "no value differs",
}

_EXACT_INT: Final = 2**53
_KEYS: Final = '<button type="button" id="help" title="Keyboard (?)">Keys</button>'
_WITHOUT_SCRIPT: Final = "<p>The table and the plots need JavaScript. These findings failed:</p>"
_SCRIPTS: Final = ("words.js", "plot.js", "page.js")


def render(diff: Diff, *, title: str | None = None, command: str | None = None) -> str:
    """One self-contained HTML file; the same Diff always gives the same bytes."""
    about = title or (f"Golden values of {diff.root}" if diff.root else "Golden values")
    heading = diff.answer()
    names = labels(diff.changes, diff.root)
    # One line of the page's table each: a (file, metric), or a file that has no metrics to show.
    rows = [(file, change, row) for file, change in enumerate(diff.changes) for row in change.metrics or (None,)]
    rows.sort(key=lambda row: gravity(row[2]) if row[2] else (row[1].verdict.rank, -np.inf, -np.inf))
    curves, places = embed([numbers for _, _, numbers in rows], MAX_POINTS)
    findings = sorted(diff.all_findings(), key=lambda finding: finding.severity.rank)
    files = {change.path: file for file, change in enumerate(diff.changes)}
    # What is compared, what the colours of both sides are, and from which runs the values of either came.
    sides = (
        f'<span class="swatch {side}" aria-hidden="true"></span>{side} <bdi>{text(name)}</bdi>'
        for side, name in (("old", diff.old), ("new", diff.new))
    )
    compared = '<span class="versus" aria-hidden="true">↔</span>'.join(sides)
    compared = f'<span class="sides"><bdi class="what">{text(about)}</bdi> {compared}</span>'
    for side, word in enumerate(("old", "new")):
        if said := list(runs(diff, side)):
            compared += f'<span class="origin"><b>{word}</b> from {text(few(said, _RUNS_SHOWN, "; "))}</span>'
    # The page names the metric itself, in front of its sentence.
    metrics = [f.metric or "" for f in findings]
    messages = [
        f.message.removeprefix(f"{m}: ").removeprefix(within(m)) for f, m in zip(findings, metrics, strict=True)
    ]
    body = fill(
        _asset("body.html"),
        {
            "top": head(heading, about=Markup(compared), lines=[text(counts(diff))], command=command, tools=_KEYS),
            "noscript": _WITHOUT_SCRIPT + findings_list(f for f in findings if f.severity is Severity.FAIL),
            "data": script_json(
                {
                    "fields": FIELDS,
                    "verdicts": [verdict.value for verdict in Verdict],
                    "root": diff.root,
                    "limit": MAX_POINTS,
                    "files": [
                        [c.path, c.shape, {**c.identity, **provenance_of(diff, c.path)}, names[c.path]]
                        for c in diff.changes
                    ],
                    "rows": [row_of(*row, place) for row, place in zip(rows, places, strict=True)],
                    "findings": [
                        [f.severity.value, f.kind, f.path, f.metric, f.where, message, f.next]
                        for f, message in zip(findings, messages, strict=True)
                    ],
                    "kinds": {f.kind: KINDS[f.kind].meaning for f in findings if f.kind in KINDS},
                    "groups": [
                        [
                            group.severity.value,
                            group.title,
                            [[files.get(path, -1), metric] for path, metric in group.members],
                            plain(group.low),
                            plain(group.high),
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


def plain(value: Any) -> Any:
    """A value that JSON and JavaScript hold exactly; as text where they cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and abs(value) > _EXACT_INT:
        return str(value)
    return value


def provenance_of(diff: Diff, path: str) -> dict[str, str]:
    """Where a golden's values came from, among the facts of its rows."""
    sides = zip(("old", "new"), diff.provenance.get(path, ()), strict=False)
    told = {
        f"{word} values": line
        and ", ".join(filter(None, (place(line.source, line.run), line.job, line.image, line.date)))
        for word, line in sides
    }
    return {word: said for word, said in told.items() if said}


def row_of(file: int, change: Change, numbers: MetricChange | None, place: int) -> list[Any]:
    if numbers is None:
        gravest = min(change.findings, key=lambda f: f.severity.rank, default=None)
        because = gravest.message if gravest else _WITHOUT_ROWS.get(change.verdict, "")
        return [file, None, change.verdict.rank, because, *[None] * len(_NUMBERS), place, None]
    values = [plain(getattr(numbers, name)) for name in _NUMBERS]
    tensor = None
    if numbers.tensor:
        n = numbers.tensor.numbers
        told = {"outside": n.mismatches, **{name: plain(getattr(n, name)) for name in _OF_TENSORS}} if n else {}
        tensor = {"facts": list(facts(numbers.tensor)), "numbers": told}
        for name in ("n_steps", "steps_lost", "steps_gained"):  # a tensor has elements, and no steps
            values[_NUMBERS.index(name)] = None
    because = numbers.because if numbers.history is None else f"{numbers.because}; {numbers.history.sentence}"
    return [file, numbers.metric, numbers.verdict.rank, because, *values, place, tensor]


def embed(rows: Iterable[MetricChange | None], limit: int) -> tuple[list[Any], list[int]]:
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
    return 0 if metric is None else [_steps(metric.steps), _packed(metric.values)]


def _steps(steps: NDArray[np.int64]) -> Any:
    """[first, interval, count] where regular, else the packed steps."""
    gaps = np.diff(steps)
    if steps.size and (gaps == gaps[:1]).all() and np.abs(steps).max() <= _EXACT_INT:
        return [int(steps[0]), int(gaps[0]) if gaps.size else 1, int(steps.size)]
    return _packed(steps)


def _packed(values: NDArray[Any]) -> str:
    """Values as the script has them, exact: floats of eight bytes, in base64."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")
