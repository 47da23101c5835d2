"""The page in a real browser: what a reviewer sees, clicks and types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from factories.diffs import case, make
from factories.html_pages import BROKEN, in_order, ink, open_paths, seen, table_rows, total
from karat.compare.change import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    Open = Callable[..., Page]

pytestmark = pytest.mark.browser
COLUMNS = {
    "n_steps": -1,
    "change": -1,
    "mean_abs_rel_diff": -1,
    "max_abs_rel_diff": -1,
    "max_step": -1,
    "first_diff_step": -1,
    "steps_lost": -1,
    "steps_gained": -1,
    "nan_gained": -1,
    "threshold_ratio": -1,
    "tolerance_ratio": -1,
    "verdict": 1,
    "file": 1,
    "metric": 1,
}


@pytest.mark.slow
def test_the_page_opens_with_all_its_parts(visit: Open) -> None:
    page = visit()
    assert page.title().startswith("20 of 81 goldens need a look; 6 must not be merged: ")
    assert page.locator("h1").inner_text() == make().answer()
    assert page.locator(".sides .what").inner_text() == "Golden values of tests/functional_tests/test_cases"
    heads = page.locator("main h2").all_inner_texts()
    assert [head.split("\n")[0].split(" ")[0] for head in heads] == ["Groups", "Single", "Rows"]
    assert "81 goldens compared" in page.locator(".totals").inner_text()
    assert total(page) == f"{len(table_rows(make()))} rows"
    assert page.locator("#findings-list > .finding").count() == 10
    assert page.locator(".group").count() == 2
    assert page.locator("#curveless").is_hidden()


@pytest.mark.slow
def test_members_of_a_group_are_folded_and_lead_to_their_rows(visit: Open) -> None:
    page = visit()
    box = page.locator(".group-box").nth(1)
    assert box.locator("li").count() == 0
    box.locator("summary").click()
    box.locator("li").first.wait_for()
    assert box.locator("li").count() == 12
    name = box.locator("li button").first.get_attribute("title")
    box.locator("li button").first.click()
    assert open_paths(page) == [name, "iteration-time"]


@pytest.mark.slow
def test_a_loss_that_rises_has_a_plus_and_goes_up(visit: Open) -> None:
    page = visit(anchor=f"#o={BROKEN}&om=lm+loss")
    assert "change +0.05" in " ".join(page.locator(".detail .read").inner_text().split())
    cells = page.locator("tr.row[aria-expanded=true] .c-change").inner_text()
    assert cells.startswith("+")
    assert page.locator("figcaption").inner_text().count("(new − old) / |old|, below") == 1


@pytest.mark.slow
def test_long_lists_of_findings_unfold(visit: Open) -> None:
    page = visit()
    page.get_by_role("button", name="10 more").click()
    assert page.locator("#findings-list > .finding").count() == 20
    page.locator("#findings-info summary").click()
    page.locator("#findings-info .finding").first.wait_for()
    assert page.locator("#findings-info .finding").count() == 8


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_filter_takes_words_in_any_order(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("LOSS bert dgx_h100")
    expected = [
        row[:2] for row in table_rows(make()) if row[1] == "lm loss" and "bert" in row[0] and "dgx_h100" in row[0]
    ]
    assert expected
    assert seen(page) == expected
    assert total(page) == f"{len(expected)} of {len(table_rows(make()))} rows"


@pytest.mark.slow
def test_a_filter_without_a_match_offers_a_way_back(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("no such thing")
    assert seen(page) == []
    page.get_by_role("button", name="Clear the filters").click()
    assert total(page) == f"{len(table_rows(make()))} rows"


@pytest.mark.slow
def test_verdict_chips_add_up(visit: Open) -> None:
    page, rows = visit(), table_rows(make())
    page.locator(".chip[data-v=break]").click()
    assert seen(page) == [row[:2] for row in rows if row[2] is Verdict.BREAK]
    page.locator(".chip[data-v=removed]").click()
    assert seen(page) == [row[:2] for row in rows if row[2] in {Verdict.REMOVED, Verdict.BREAK}]
    page.locator("#clear").click()
    assert page.locator(".chip[aria-pressed=true]").count() == 0


@pytest.mark.slow
def test_the_metric_list_filters(visit: Open) -> None:
    page = visit()
    page.locator("#metric").select_option("graph_breaks")
    assert [metric for _, metric in seen(page)] == ["graph_breaks"]


@pytest.mark.slow
def test_a_group_filters_to_its_members(visit: Open) -> None:
    page, diff = visit(), make()
    page.locator(".group", has_text="iteration-time slower").click()
    assert set(seen(page)) == set(diff.groups[0].members)
    page.locator(".group", has_text="stopped early").click()  # members without a metric: all rows
    assert {path for path, _ in seen(page)} == {path for path, _ in diff.groups[1].members}
    assert len(seen(page)) == 6


@pytest.mark.slow
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
    assert f"first difference: step {row.first_diff_step}" in page.locator("figcaption").inner_text()
    assert row.because in page.locator(".because").inner_text()
    assert open_paths(page)[0] == BROKEN
    blank = ink(page, "canvas.plot")
    page.locator("button.log").click()
    assert page.locator("button.log").get_attribute("aria-pressed") == "true"
    assert ink(page, "canvas.plot") != blank


@pytest.mark.slow
def test_a_truncated_run_shows_where_it_ends(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("_900_ loss")
    page.locator("tr.row").click()
    assert "38 NaN" in page.locator("figcaption").inner_text()
    assert page.locator(".read").inner_text().startswith("step 13")
    assert "new NaN" in page.locator(".read").inner_text()


@pytest.mark.slow
def test_lost_and_gained_steps_are_told_apart(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("_902_")
    page.locator("tr.row").click()
    caption = page.locator("figcaption").inner_text()
    assert "11 lost" in caption
    assert "2 gained" in caption
    page.keyboard.press("End")
    assert "old none" in page.locator(".read").inner_text()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_table_golden_names_its_worst_row(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("graph_breaks")
    page.locator("tr.row").click()
    assert "worst: row hf_T5" in page.locator("figcaption").inner_text()


@pytest.mark.slow
def test_files_without_values_say_why(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("gpt3_conflicted")
    page.locator("tr.row").click()
    assert "<<<<<<< HEAD" in page.locator(".because").inner_text()
    assert page.locator(".detail canvas").count() == 0


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_link_brings_everything_back(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("1node")
    page.locator(".chip[data-v=drift]").click()
    page.locator("#metric").select_option("iteration-time")
    page.locator("th[data-key=change] button").click()
    page.locator("tr.row").nth(3).click()
    page.wait_for_url(re.compile(r"#.*\bo="))
    anchor = page.evaluate("location.hash")
    again = visit(anchor=anchor)
    assert again.locator("#filter").input_value() == "1node"
    assert again.locator("#metric").input_value() == "iteration-time"
    assert again.locator("th[data-key=change]").get_attribute("aria-sort") == "descending"
    assert seen(again) == seen(page)
    assert open_paths(again) == open_paths(page) != []
    again.locator("canvas.plot[data-drawn]").wait_for()


@pytest.mark.slow
def test_a_spoilt_link_opens_the_page_as_it_is(visit: Open) -> None:
    page = visit(anchor="#q=&v=nonsense&g=99&s=-nothing&o=gone&om=gone&view=what")
    assert total(page) == f"{len(table_rows(make()))} rows"


@pytest.mark.slow
def test_a_finding_leads_to_its_row(visit: Open) -> None:
    page = visit()
    page.locator("#filter").fill("something else")
    page.locator(".finding", has_text="left its course").locator("button.link").click()
    assert open_paths(page)[0] == BROKEN
    page.locator(".finding", has_text="the run stopped").first.locator("button.link").click()
    assert {path for path, _ in seen(page)} == {case(900)}


@pytest.mark.slow
def test_a_command_can_be_copied(visit: Open) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#command + .copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "karat diff"


@pytest.mark.slow
def test_an_elided_path_is_copied_whole(visit: Open) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#filter").fill("_903_")
    page.evaluate(
        "() => { const s = getSelection(); s.selectAllChildren(document.querySelector('tr.row .path'));"
        " document.execCommand('copy'); }"
    )
    assert page.evaluate("navigator.clipboard.readText()") == BROKEN
