from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from factories.hunt_reports import change, nightly, nothing
from karat.hunts.model import HuntReport
from karat.hunts.report.html import chart, render


class Seen(HTMLParser):
    """Every tag and id of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        assert not [name for name in given if name.startswith("on")]


def long(count: int) -> HuntReport:
    """A stage of many points."""
    report = nightly()
    stage = report.stages[0]
    points = tuple(stage.points[i % 2] for i in range(count))
    return msgspec.structs.replace(
        report, stages=(msgspec.structs.replace(stage, points=points, changes=()),), culprits=()
    )


def test_nothing_is_loaded() -> None:
    page = render(nightly())
    seen = Seen(page)
    assert not {"img", "iframe", "object", "b onerror"} & set(seen.tags)
    assert seen.tags.count("link") == page.count('<link rel="icon" href="data:,">') == 1
    assert "default-src 'none'" in page
    assert "http" not in re.sub(r'href="https://github.com/openxla[^"]+"', "", page).replace("http-equiv", "")


def test_titles_names_and_logs_are_text() -> None:
    page = render(nightly())
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page


def test_every_failed_point_leads_to_its_log() -> None:
    seen = Seen(render(nightly()))
    logs = [i for i in seen.ids if i.startswith("log-")]
    assert len(logs) == 2
    assert {f"#{i}" for i in logs} <= set(seen.links)


def test_levels_are_drawn_in_order_across_failures() -> None:
    stage = nightly().stages[0]
    points = list(stage.points)
    # 577 up to 7, failures at 8, 536 from 9 on: three changes that overlap.
    changes = (change(points, 7, 8, "crash"), change(points, 7, 9, "regression"), change(points, 8, 9, "improvement"))
    drawn, _ = chart(msgspec.structs.replace(stage, changes=changes), "MLUPS").split("</svg>\n")
    lines = re.findall(r'class="level" x1="([\d.]+)" x2="([\d.]+)"', drawn)
    assert len(lines) == 2
    assert all(float(first) < float(last) for first, last in lines)


def test_a_quiet_hunt_has_a_page() -> None:
    assert "no change found so far" in render(nothing())


def test_values_at_the_ends_of_what_a_double_holds_are_drawn() -> None:
    report = nightly()
    stage = report.stages[0]
    odd = (1.7e308, -1.7e308, 0.0, 5e-324)
    points = tuple(
        msgspec.structs.replace(p, values={"MLUPS": (value,)}) for p, value in zip(stage.points, odd, strict=False)
    )
    stages = (msgspec.structs.replace(stage, points=points, changes=()),)
    page = render(msgspec.structs.replace(report, stages=stages, culprits=()))
    assert "nan" not in re.findall(r'c[xy]="([^"]+)"', page)
    assert "inf" not in re.findall(r'c[xy]="([^"]+)"', page)


def test_a_long_timeline_stays_light() -> None:
    assert len(render(long(4096))) < 4_000_000


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_browser_it_fits_and_a_mark_leads_to_the_log(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "hunt.html"
    file.write_text(render(nightly()), encoding="utf-8")
    page = browser.new_page(viewport={"width": 400, "height": 800})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    page.locator("svg.narrow a[aria-label*='2023-08-09']").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector(':target h3').textContent").startswith("2023-08-09: crash")
    assert said == []


def test_why_points_cannot_be_had_is_said() -> None:
    assert "1 point not available (2023-08-07): the registry has no such tag</p>" in render(nightly())


def test_which_end_of_a_dip_it_is_and_how_flaky_the_runs_are_is_said() -> None:
    page = render(nightly())
    assert page.index(">dip (there)</span>") < page.index(">dip (and back)</span>")
    assert "flaky: about 10% of the runs fail" in page


def test_a_unit_is_told_once() -> None:
    report = nightly()
    assert "<figcaption>MLUPS (MLUPS/s)</figcaption>" in render(report)
    same = msgspec.structs.replace(report, units={"MLUPS": "MLUPS"})
    assert "<figcaption>MLUPS</figcaption>" in render(same)


def test_the_chart_comes_first_then_cards_with_dates_and_subjects() -> None:
    page = render(nightly())
    assert page.index("<svg") < page.index('class="culprit') < page.index('class="stage"')
    card = page[page.index('<section class="culprit regression') :]
    assert "<dt>last good</dt><dd><code>xla@bbbbbbbb</code> Tidy &lt;i&gt;b&lt;/i&gt;" in card
    assert "<dt>first bad</dt><dd><code>xla@cccccccc</code> Tidy" in card
    assert "2023-08-01 02:00 UTC" in card
    assert "<title>xla@bbbbbbbb Tidy &lt;i&gt;b&lt;/i&gt;: 577.3</title>" in page


def test_several_suspects_have_a_page_together() -> None:
    report = nightly()
    last = report.culprits[-1]
    page = "https://github.com/openxla/xla/compare/b...c"
    lot = tuple(msgspec.structs.replace(last.suspects[0], id=f"{n:040x}", compare=page) for n in range(3))
    several = msgspec.structs.replace(report, culprits=(msgspec.structs.replace(last, suspects=lot),))
    assert f'<a href="{page}" rel="noreferrer noopener">all of them together</a>' in render(several)


def test_what_was_not_looked_for_is_said_before_the_answers() -> None:
    page = render(nightly())
    assert page.index("Not looked for everywhere: a dip of one night could hide") < page.index('class="culprit')
