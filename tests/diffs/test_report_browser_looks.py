"""The page in a real browser, on small screens, in the dark, on paper, with odd names, and very long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from factories.diffs import HOSTILE, make
from factories.html_pages import BROKEN, in_order, ink, open_paths, seen, table_rows, total
from karat.diffs.report import html
from karat.diffs.result import FindingGroup
from karat.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    Open = Callable[..., Page]

pytestmark = pytest.mark.browser


def milliseconds(page: Page, act: str) -> float:
    """How long the page needs for something, until after the next frame."""
    settled = "await new Promise(r => requestAnimationFrame(() => setTimeout(r)))"
    script = f"async () => {{ const t = performance.now(); {act}; {settled}; return performance.now() - t; }}"
    return float(page.evaluate(script))


@pytest.mark.slow
def test_the_gallery_draws_what_is_in_view(visit: Open) -> None:
    page = visit(anchor="#view=gallery")
    page.locator("#gallery").scroll_into_view_if_needed()
    page.locator("#bar").evaluate("bar => bar.scrollIntoView()")
    page.locator("canvas.mini[data-drawn]").first.wait_for()
    drawn, cards = page.locator("canvas.mini[data-drawn]").count(), page.locator(".card").count()
    assert 0 < drawn < cards < len(table_rows(make()))
    assert ink(page, "canvas.mini[data-drawn]") > 500
    page.locator(".card", has_text="_903_").or_(page.locator("[aria-label*='_903_']")).first.click()
    page.locator("canvas.plot[data-drawn]").wait_for()
    assert open_paths(page)[0] == BROKEN
    page.keyboard.press("g")
    assert page.locator("tr.row[aria-expanded=true]").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 375])
def test_a_phone_needs_no_sideways_scrolling(visit: Open, width: int) -> None:
    page = visit(viewport={"width": width, "height": 800})
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == width
    page.locator("tr.row").nth(3).click()
    page.locator("canvas.plot[data-drawn]").wait_for()
    assert page.evaluate(wide) == width
    page.locator("#as-gallery").click()
    assert page.evaluate(wide) == width


@pytest.mark.slow
def test_rows_have_the_height_the_script_counts_with(visit: Open) -> None:
    for width, height in ((1440, 30), (375, 78)):
        page = visit(viewport={"width": width, "height": 800})
        heights = page.eval_on_selector_all("tr.row", "rows => rows.map(r => r.offsetHeight)")
        assert set(heights) == {height}


@pytest.mark.slow
def test_dark_follows_the_system_and_the_button(visit: Open) -> None:
    page = visit(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(16, 19, 23)"
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "◐ Light"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.evaluate("location.reload()")
    page.locator("#shown").get_by_text("rows").wait_for()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_print_shows_every_row_on_white(visit: Open) -> None:
    page = visit(color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(seen(page)) == len(table_rows(make()))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"


@pytest.mark.slow
def test_hostile_names_do_not_execute(visit: Open) -> None:
    page = visit("hostile.html")
    assert len(seen(page)) == len(HOSTILE)
    for number in range(len(HOSTILE)):
        page.locator("tr.row").nth(number).click()
        page.locator("canvas.plot[data-drawn]").wait_for()
    page.keyboard.press("g")
    page.locator(".card").first.wait_for()
    page.locator(".group").first.click()
    assert page.evaluate("window.__pwned") is None
    assert page.locator("main img, main svg, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 1440


@pytest.mark.slow
def test_direction_marks_are_spelt_out(visit: Open) -> None:
    page = visit("hostile.html")
    text = page.locator("main").inner_text()
    assert "\u202e" not in text
    assert "a⟨202e⟩gnp.exe" in text


@pytest.mark.slow
def test_without_scripts_the_failures_are_there(browser: Browser, pages: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{pages / 'usual.html'}")
    assert page.locator(".totals").is_visible()
    assert page.locator("noscript li").count() == 6
    assert page.locator("noscript li", has_text="left its course").is_visible()
    assert page.locator("button:visible, input:visible").count() == 0
    context.close()


@pytest.mark.slow
def test_a_limit_on_points_is_told(visit: Open, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_POINTS", 1000)
    (pages / "limited.html").write_text(html.render(make(files=3)), "utf-8")
    page = visit("limited.html")
    note = page.locator("#curveless").inner_text()
    assert "over the page's limit of 1,000 points" in note
    page.locator("th[data-key=verdict] button").click()  # least grave first: these have none
    page.locator("tr.row").first.click()
    assert "limit of 1,000 points" in page.locator(".detail .nothing").inner_text()


@pytest.mark.slow
def test_thousands_of_rows(visit: Open, pages: Path) -> None:
    """4,200 rows of 262 points: every step is asserted, the times are for the reader."""
    diff = make(files=836, steps=262)
    began = time.perf_counter()
    text = html.render(diff)
    print(f"\nrender {time.perf_counter() - began:.2f} s, {len(text) / 1e6:.1f} MB")
    (pages / "large.html").write_text(text, "utf-8")
    rows = table_rows(diff)
    assert len(rows) >= 4200
    began = time.perf_counter()
    page = visit("large.html")
    assert total(page) == f"{len(rows):,} rows"
    print(f"open {time.perf_counter() - began:.2f} s")
    sort = "document.querySelector('th[data-key=file] button').click()"
    print(f"sort {milliseconds(page, sort):.0f} ms")
    assert seen(page)[0] == in_order(diff, "file", 1)[0]
    fill = (
        "const f = document.getElementById('filter'); f.value = 'iteration bert'; f.dispatchEvent(new Event('input'))"
    )
    print(f"filter {milliseconds(page, fill):.0f} ms")
    expected = [row for row in rows if row[1] == "iteration-time" and "bert" in row[0]]
    assert total(page) == f"{len(expected):,} of {len(rows):,} rows"
    page.locator("tr.row").first.click()
    page.locator("canvas.plot[data-drawn]").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    assert page.locator("tr.row:focus").count() == 1
    assert page.locator("tr.row").count() < 200


def members(rows: list[tuple[str, str | None]], n: int) -> tuple[tuple[str, str | None], ...]:
    """The members of a group, of four sorts by turns."""
    sorts: list[list[tuple[str, str | None]]] = [
        [rows[n], ("gone.json", None)],
        [rows[n], rows[-1 - n], rows[n], ("gone.json", None)],  # one of them twice
        [(rows[n][0], None), ("gone.json", None)],  # all rows of a file
        [(rows[n][0], None), rows[n], ("gone.json", None), (rows[n][0], "gone")],
    ]
    return tuple(sorts[n % len(sorts)])


@pytest.mark.slow
def test_thousands_of_groups(visit: Open, pages: Path) -> None:
    """1,500 groups over as many rows: what each one filters to, the time is for the reader."""
    plain = make(files=300)
    rows = [(path, metric) for path, metric, _, numbers in table_rows(plain) if numbers]
    groups = tuple(
        FindingGroup(
            title=f"group {n}",
            kind="value-drift",
            severity=Severity.WARN,
            platform="",
            family="",
            direction="",
            members=members(rows, n),
        )
        for n in range(1500)
    )
    diff = structs.replace(plain, groups=groups)
    (pages / "groups.html").write_text(html.render(diff), "utf-8")
    began = time.perf_counter()
    page = visit("groups.html")
    print(f"\nopen {time.perf_counter() - began:.2f} s")
    page.locator("#groups .fold button").click()
    assert page.locator(".group").count() == len(groups)
    for number in (*range(0, len(groups), 37), len(groups) - 1):
        page.locator(f".group[data-g='{number}']").evaluate("button => button.click()")
        held = groups[number].members
        wanted = [row for row in rows if row in held or (row[0], None) in held]
        assert seen(page) == wanted
        assert total(page) == f"{len(wanted)} of {len(table_rows(diff)):,} rows"
