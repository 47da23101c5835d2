"""The page in a real browser: what a reviewer sees, clicks and types."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from factories.diffs import HOSTILE, case, hostile, make
from karat.compare.change import Diff, Group, MetricChange, Verdict
from karat.findings import Severity
from karat.report import html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    Open = Callable[..., Page]

pytestmark = pytest.mark.browser

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
COLUMNS = {
    "n_steps": -1,
    "avg_rel_diff": -1,
    "mean_abs_rel_diff": -1,
    "max_abs_rel_diff": -1,
    "max_step": -1,
    "first_diff_step": -1,
    "steps_lost": -1,
    "steps_gained": -1,
    "nan_gained": -1,
    "tolerance_ratio": -1,
    "verdict": 1,
    "file": 1,
    "metric": 1,
}
BROKEN = case(903)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may not be installed

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=ARGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "usual.html").write_text(html.render(make(), command="karat diff"), "utf-8")
    (folder / "hostile.html").write_text(
        html.render(hostile(), title=HOSTILE[0], command=HOSTILE[1]), "utf-8"
    )
    return folder


@pytest.fixture
def visit(browser: Browser, pages: Path) -> Iterator[Open]:
    """Opens a page; at the end, nothing may have been asked of the network or gone wrong."""
    contexts, trouble, asked = [], [], []

    def go(name: str = "usual.html", anchor: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{pages / name}{anchor}")
        page.locator("#shown").get_by_text("rows").wait_for()
        return page

    yield go
    for context in contexts:
        context.close()
    assert trouble == []
    assert [url for url in asked if not url.startswith("file://") or ".html" not in url] == []


# --- helpers: what the page should show, worked out the plain way


def table_rows(diff: Diff) -> list[tuple[str, str | None, Verdict, MetricChange | None]]:
    made = [
        (change.path, m.metric if m else None, m.verdict if m else change.verdict, m)
        for change in diff.changes
        for m in change.metrics or (None,)
    ]

    def gravity(row: tuple[str, str | None, Verdict, MetricChange | None]) -> tuple[int, float]:
        size = row[3].max_abs_rel_diff if row[3] else None
        return row[2].rank, -(float("inf") if size is None else size)

    return sorted(made, key=gravity)


def natural(text: str) -> str:
    return re.sub(r"\d+", lambda digits: digits[0].zfill(12), text)


def in_order(diff: Diff, column: str, direction: int) -> list[tuple[str, str | None]]:
    def value(row: tuple[str, str | None, Verdict, MetricChange | None]) -> Any:
        path, metric, verdict, numbers = row
        named = {
            "verdict": verdict.rank,
            "file": natural(path),
            "metric": metric and natural(metric),
        }
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
        "tr.row",
        "rows => rows.map(r => [r.querySelector('.path').title, r.querySelector('.c-metric').textContent])",
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


def milliseconds(page: Page, act: str) -> float:
    """How long the page needs for something, until after the next frame."""
    settled = "await new Promise(r => requestAnimationFrame(() => setTimeout(r)))"
    script = f"async () => {{ const t = performance.now(); {act}; {settled}; return performance.now() - t; }}"
    return float(page.evaluate(script))


# --- tests


def test_the_page_opens_with_all_its_parts(visit: Open) -> None:
    page = visit()
    assert page.title() == "Golden values of tests/functional_tests/test_cases"
    assert "81 goldens compared" in page.locator(".totals").inner_text()
    assert total(page) == f"{len(table_rows(make()))} rows"
    assert page.locator("#findings-list > .finding").count() == 10
    assert page.locator(".group").count() == 2
    assert page.locator("#curveless").is_hidden()


def test_long_lists_of_findings_unfold(visit: Open) -> None:
    page = visit()
    page.get_by_role("button", name="10 more").click()
    assert page.locator("#findings-list > .finding").count() == 20
    page.locator("#findings-info summary").click()
    page.locator("#findings-info .finding").first.wait_for()
    assert page.locator("#findings-info .finding").count() == 8


@pytest.mark.parametrize("column", COLUMNS)
def test_sorting_by(visit: Open, column: str) -> None:
    page, diff = visit(), make()
    first = COLUMNS[column]
    button = page.locator(f"th[data-key={column}] button")
    if column != "verdict":  # which the page is sorted by already
        button.click()
    expected = in_order(diff, column, first)
    shown = seen(page)
    assert len(shown) >= 25
    assert shown == expected[: len(shown)]
    said = {1: "ascending", -1: "descending"}
    assert page.locator(f"th[data-key={column}]").get_attribute("aria-sort") == said[first]
    button.press("Enter")
    shown = seen(page)
    assert shown == in_order(diff, column, -first)[: len(shown)]
    assert page.locator(f"th[data-key={column}]").get_attribute("aria-sort") == said[-first]
    assert page.locator("th[aria-sort]:not([aria-sort=none])").count() == 1


def test_the_filter_takes_words_in_any_order(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("LOSS bert dgx_h100")
    expected = [
        row[:2]
        for row in table_rows(make())
        if row[1] == "lm loss" and "bert" in row[0] and "dgx_h100" in row[0]
    ]
    assert expected
    assert seen(page) == expected
    assert total(page) == f"{len(expected)} of {len(table_rows(make()))} rows"


def test_a_filter_without_a_match_offers_a_way_back(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("no such thing")
    assert seen(page) == []
    page.get_by_role("button", name="Clear the filters").click()
    assert total(page) == f"{len(table_rows(make()))} rows"


def test_verdict_chips_add_up(visit: Open) -> None:
    page, rows = visit(), table_rows(make())
    page.locator(".chip[data-v=break]").click()
    assert seen(page) == [row[:2] for row in rows if row[2] is Verdict.BREAK]
    page.locator(".chip[data-v=removed]").click()
    assert seen(page) == [row[:2] for row in rows if row[2] in {Verdict.REMOVED, Verdict.BREAK}]
    page.locator("#clear").click()
    assert page.locator(".chip[aria-pressed=true]").count() == 0


def test_the_metric_list_filters(visit: Open) -> None:
    page = visit()
    page.locator("#metric").select_option("graph_breaks")
    assert [metric for _, metric in seen(page)] == ["graph_breaks"]


def test_a_group_filters_to_its_members(visit: Open) -> None:
    page, diff = visit(), make()
    page.locator(".group", has_text="iteration-time slower").click()
    assert set(seen(page)) == set(diff.groups[0].members)
    page.locator(".group", has_text="stopped early").click()  # members without a metric: all rows
    assert {path for path, _ in seen(page)} == {path for path, _ in diff.groups[1].members}
    assert len(seen(page)) == 6


def test_an_opened_row_draws_its_curves_and_marks_the_worst_step(visit: Open) -> None:
    page = visit(device_scale_factor=2)
    page.locator("#filter").fill("_903_")
    page.locator("tr.row").click()
    page.locator("canvas.plot[data-drawn]").wait_for()
    assert ink(page, "canvas.plot") > 5000
    assert page.eval_on_selector("canvas.plot", "c => c.width === c.clientWidth * 2")
    row = next(row[3] for row in table_rows(make()) if row[0] == BROKEN)
    assert row
    assert f"worst: step {row.max_step}" in page.locator("figcaption").inner_text()
    assert (
        f"first difference: step {row.first_diff_step}" in page.locator("figcaption").inner_text()
    )
    assert row.because in page.locator(".because").inner_text()
    assert open_paths(page)[0] == BROKEN
    blank = ink(page, "canvas.plot")
    page.locator("button.log").click()
    assert page.locator("button.log").get_attribute("aria-pressed") == "true"
    assert ink(page, "canvas.plot") != blank


def test_a_truncated_run_shows_where_it_ends(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("_900_ loss")
    page.locator("tr.row").click()
    assert "38 NaN" in page.locator("figcaption").inner_text()
    assert page.locator(".read").inner_text().startswith("step 13")
    assert "new NaN" in page.locator(".read").inner_text()


def test_lost_and_gained_steps_are_told_apart(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("_902_")
    page.locator("tr.row").click()
    caption = page.locator("figcaption").inner_text()
    assert "11 lost" in caption
    assert "2 gained" in caption
    page.keyboard.press("End")
    assert "old none" in page.locator(".read").inner_text()


def test_the_crosshair_reads_exact_values(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("_903_")
    page.locator("tr.row").click()
    page.locator("canvas.plot[data-drawn]").wait_for()
    row = next(row[3] for row in table_rows(make()) if row[0] == BROKEN)
    assert row
    assert row.old is not None
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(".read").inner_text().startswith(f"step 2  old {row.old.values[1]:.9g}")
    box = page.locator("canvas.plot").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 60)
    assert page.locator(".read").inner_text().startswith("step 50")
    assert page.locator(".cross").is_visible()


def test_a_table_golden_names_its_worst_row(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("graph_breaks")
    page.locator("tr.row").click()
    assert "worst: row hf_T5" in page.locator("figcaption").inner_text()


def test_files_without_values_say_why(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("gpt3_conflicted")
    page.locator("tr.row").click()
    assert "<<<<<<< HEAD" in page.locator(".because").inner_text()
    assert page.locator(".detail canvas").count() == 0


def test_the_keyboard_is_enough(visit: Open) -> None:
    page = visit()
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#keys").is_hidden()
    page.keyboard.press("/")
    page.keyboard.type("loss")
    page.keyboard.press("Enter")  # into the table, first row
    rows = [row[:2] for row in table_rows(make()) if "loss" in (row[1] or "")]
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    assert open_paths(page)[0] == rows[1][0]
    page.keyboard.press("j")  # with a row open, j opens the next
    assert open_paths(page)[0] == rows[2][0]
    assert page.locator("tr.row[aria-expanded=true]").evaluate("r => r === document.activeElement")
    page.keyboard.press("Escape")
    assert open_paths(page) == []
    assert page.locator("tr.row:focus .path").get_attribute("title") == rows[2][0]
    page.keyboard.press("End")
    assert page.locator("tr.row:focus .path").get_attribute("title") == rows[-1][0]


def test_a_link_brings_everything_back(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("1node")
    page.locator(".chip[data-v=drift]").click()
    page.locator("#metric").select_option("iteration-time")
    page.locator("th[data-key=avg_rel_diff] button").click()
    page.locator("tr.row").nth(3).click()
    page.wait_for_url(re.compile(r"#.*\bo="))
    anchor = page.evaluate("location.hash")
    again = visit(anchor=anchor)
    assert again.locator("#filter").input_value() == "1node"
    assert again.locator("#metric").input_value() == "iteration-time"
    assert again.locator("th[data-key=avg_rel_diff]").get_attribute("aria-sort") == "descending"
    assert seen(again) == seen(page)
    assert open_paths(again) == open_paths(page) != []
    again.locator("canvas.plot[data-drawn]").wait_for()


def test_a_spoilt_link_opens_the_page_as_it_is(visit: Open) -> None:
    page = visit(anchor="#q=&v=nonsense&g=99&s=-nothing&o=gone&om=gone&view=what")
    assert total(page) == f"{len(table_rows(make()))} rows"


def test_a_finding_leads_to_its_row(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("something else")
    page.locator(".finding", has_text="left its course").locator("button.link").click()
    assert open_paths(page)[0] == BROKEN
    page.locator(".finding", has_text="the run stopped").first.locator("button.link").click()
    assert {path for path, _ in seen(page)} == {case(900)}


def test_a_command_can_be_copied(visit: Open) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#command + .copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "karat diff"


def test_an_elided_path_is_copied_whole(visit: Open) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#filter").fill("_903_")
    page.evaluate(
        "() => { const s = getSelection(); s.selectAllChildren(document.querySelector('tr.row .path'));"
        " document.execCommand('copy'); }"
    )
    assert page.evaluate("navigator.clipboard.readText()") == BROKEN


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


def test_rows_have_the_height_the_script_counts_with(visit: Open) -> None:
    for width, height in ((1440, 30), (375, 78)):
        page = visit(viewport={"width": width, "height": 800})
        heights = page.eval_on_selector_all("tr.row", "rows => rows.map(r => r.offsetHeight)")
        assert set(heights) == {height}


def test_dark_follows_the_system_and_the_button(visit: Open) -> None:
    page = visit(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(16, 19, 23)"
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Light"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.evaluate("location.reload()")
    page.locator("#shown").get_by_text("rows").wait_for()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_print_shows_every_row_on_white(visit: Open) -> None:
    page = visit(color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(seen(page)) == len(table_rows(make()))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"


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


def test_direction_marks_are_spelt_out(visit: Open) -> None:
    page = visit("hostile.html")
    text = page.locator("main").inner_text()
    assert "\u202e" not in text
    assert "a⟨202e⟩gnp.exe" in text


def test_without_scripts_the_failures_are_there(browser: Browser, pages: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{pages / 'usual.html'}")
    assert page.locator(".totals").is_visible()
    assert page.locator("noscript h2").inner_text() == "6 failing findings"
    assert page.locator("noscript li", has_text="left its course").is_visible()
    assert page.locator("button:visible, input:visible").count() == 0
    context.close()


def test_a_limit_on_points_is_told(
    visit: Open, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "MAX_POINTS", 1000)
    (pages / "limited.html").write_text(html.render(make(files=3)), "utf-8")
    page = visit("limited.html")
    note = page.locator("#curveless").inner_text()
    assert "over the page's limit of 1,000 points" in note
    page.locator("th[data-key=verdict] button").click()  # least grave first: these have none
    page.locator("tr.row").first.click()
    assert "limit of 1,000 points" in page.locator(".detail .nothing").inner_text()


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
    fill = "const f = document.getElementById('filter'); f.value = 'iteration bert'; f.dispatchEvent(new Event('input'))"
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
        [rows[n]],
        [rows[n], rows[-1 - n], rows[n]],  # one of them twice
        [(rows[n][0], None)],  # all rows of a file
        [(rows[n][0], None), rows[n], ("gone.json", None), (rows[n][0], "gone")],
    ]
    return tuple(sorts[n % len(sorts)])


def test_thousands_of_groups(visit: Open, pages: Path) -> None:
    """1,500 groups over as many rows: what each one filters to, the time is for the reader."""
    plain = make(files=300)
    rows = [(path, metric) for path, metric, _, numbers in table_rows(plain) if numbers]
    groups = tuple(
        Group(
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
