"""Pages: what a page of a diff should show, worked out the plain way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from factories.diffs import case
from karat.compare.change import MetricChange, Verdict
from karat.diffs.result import Diff

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

BROKEN = case(903)


def table_rows(diff: Diff) -> list[tuple[str, str | None, Verdict, MetricChange | None]]:
    made = [
        (change.path, m.metric if m else None, m.verdict if m else change.verdict, m)
        for change in diff.changes
        for m in change.metrics or (None,)
    ]

    def gravity(row: tuple[str, str | None, Verdict, MetricChange | None]) -> tuple[int, float, float]:
        beyond, size = (row[3].threshold_ratio, row[3].max_abs_rel_diff or 0.0) if row[3] else (None, float("inf"))
        return row[2].rank, -(float("inf") if beyond is None else beyond), -size

    return sorted(made, key=gravity)


def natural(text: str) -> str:
    return re.sub(r"\d+", lambda digits: digits[0].zfill(12), text)


def in_order(diff: Diff, column: str, direction: int) -> list[tuple[str, str | None]]:
    def value(row: tuple[str, str | None, Verdict, MetricChange | None]) -> Any:
        path, metric, verdict, numbers = row
        named = {"verdict": verdict.rank, "file": natural(path), "metric": metric and natural(metric)}
        return named[column] if column in named else numbers and getattr(numbers, column)

    rows = table_rows(diff)
    filled = [row for row in rows if isinstance(value(row), (int, float))]
    names = [row for row in rows if isinstance(value(row), str)]
    empty = [row for row in rows if value(row) is None]
    for part in (filled, names):  # stable both ways: ties stay in the order of gravity
        part.sort(key=value) if direction > 0 else _sort_down(part, value)
    return [row[:2] for row in (*filled, *names, *empty)]


def _sort_down(rows: list[Any], value: Callable[[Any], Any]) -> None:
    rows.reverse()
    rows.sort(key=value)
    rows.reverse()


def seen(page: Page) -> list[tuple[str, str | None]]:
    """(file, metric) of the rows that exist in the page now, top to bottom."""
    found = page.eval_on_selector_all(
        "tr.row", "rows => rows.map(r => [r.querySelector('.path').title, r.querySelector('.c-metric').textContent])"
    )
    return [(path, metric or None) for path, metric in found]


def total(page: Page) -> str:
    return page.locator("#shown").inner_text()


def open_paths(page: Page) -> list[str]:
    return page.locator(".detail .full bdi").all_inner_texts()


def ink(page: Page, selector: str) -> int:
    """How many pixels of a canvas are not blank."""
    count = page.eval_on_selector(
        selector,
        "c => { const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });"
        " copy.drawImage(c, 0, 0); const d = copy.getImageData(0, 0, c.width, c.height).data;"
        " let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; }",
    )
    assert isinstance(count, int)
    return count
