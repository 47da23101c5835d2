"""Every page in a real browser: it opens with its answer, fits a phone, has both themes, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from factories.captured import capture_many
from factories.commands import karat_here
from factories.diffs import make
from factories.evidence import evidence, journal, op_test
from factories.hunt_reports import nightly
from factories.runners import write_module
from karat.diffs.report import html as diff_page
from karat.hunts.report import html as hunt_page
from karat.policy.coverage import coverage, page as coverage_page
from karat.policy.evidence import merge

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("pages")]
PAGES = ("diff", "hunt", "coverage", "changes", "check", "replay", "audit")
TABLE = "name,accuracy,graph_breaks\nresnet50,pass,0\nmobilenet_v2,{},{}\n"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page of each kind, of results that have something to say."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "diff.html").write_text(diff_page.render(make(), command="karat diff"), "utf-8")
    (folder / "hunt.html").write_text(hunt_page.render(nightly()), "utf-8")
    journal(folder / "evidence", [*op_test(evidence()), *op_test(op="relu", test="t.py::relu")])
    (folder / "coverage.html").write_text(coverage_page(coverage(merge([folder]))), "utf-8")
    (folder / "speed.csv").write_text("".join(f"{n},{10 - 2 * (n > 30) + n % 3 / 100}\n" for n in range(60)))
    (folder / "golden.csv").write_text(TABLE.format("pass", 0))
    (folder / "actual.csv").write_text(TABLE.format("fail_accuracy", 3))
    write_module(folder)
    capture_many(folder / "cases", 2)
    for words, code in (
        (("changes", "speed.csv", "--better", "higher"), 1),
        (("check", "actual.csv", "--golden", "golden.csv"), 1),
        (("replay", "cases", "--run", "runner:off"), 1),
        (("audit",), None),
    ):
        done = karat_here(*words, "--html", f"{words[0]}.html", "--quiet", cwd=folder)
        assert code is None or done.code == code, done.err
    return folder


def opened(browser: Browser, file: Path, complaints: list[str], width: int = 390) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.extend([request.url] if not request.url.startswith("file:") else []))
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize("name", PAGES)
def test_it_opens_with_its_answer_and_fits_a_phone_in_both_themes(browser: Browser, pages: Path, name: str) -> None:
    complaints: list[str] = []
    page = opened(browser, pages / f"{name}.html", complaints)
    assert page.title().startswith(page.locator("h1").inner_text())
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for details in page.locator("details").all()[:20]:
        details.evaluate("it => { it.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    grounds = set()
    for _ in ("light", "dark"):
        page.locator("#theme").click()
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    page.close()
    assert complaints == []


@pytest.mark.parametrize(("name", "word", "left"), [("check", "graph", 1), ("replay", "xnnpack", 2)])
def test_a_table_is_filtered_by_words_and_states(
    browser: Browser, pages: Path, name: str, word: str, left: int
) -> None:
    page = opened(browser, pages / f"{name}.html", [], width=1280)
    rows = page.locator("tbody[data-noun] tr:visible")
    every = rows.count()
    page.keyboard.press("/")
    page.keyboard.type(word)
    assert 0 < rows.count() == left < every
    page.keyboard.press("Escape")
    chip = page.locator(".chip").first
    chip.click()
    assert rows.count() == int(chip.locator("b").inner_text())
    page.close()


def test_a_chart_has_a_drawing_for_a_phone(browser: Browser, pages: Path) -> None:
    for width, kind in ((390, "narrow"), (1280, "broad")):
        page = opened(browser, pages / "hunt.html", [], width=width)
        drawn = page.locator("svg:visible").first
        assert drawn.get_attribute("class") == kind
        size = drawn.evaluate(
            "it => parseFloat(getComputedStyle(it.querySelector('.axis')).fontSize) * it.clientWidth / it.viewBox.baseVal.width"
        )
        assert size >= 11
        labels = drawn.locator("text.axis").evaluate_all("all => all.map(t => t.getBoundingClientRect().right)")
        assert max(labels) <= width
        page.close()
