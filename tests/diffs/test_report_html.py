"""The page as text: self-contained, safe, bounded, always the same."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from factories.diffs import HOSTILE, hostile, make
from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.report import html
from karat.diffs.result import Diff
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric

CSP = (
    r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/]{43}='; img-src data:;"
    r" base-uri 'none'; form-action 'none'"
)


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the text of each script by id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def data_of(page: str, name: str = "data") -> Any:
    return json.loads(Tags(page).scripts[name])


def rows_of(page: str) -> list[dict[str, Any]]:
    data = data_of(page)
    return [dict(zip(data["fields"], row, strict=True)) for row in data["rows"]]


def curve_diff(*sizes: int) -> Diff:
    rows = [
        MetricChange(
            metric=f"m{i}",
            verdict=Verdict.BREAK,
            because="",
            max_abs_rel_diff=1.0 / (i + 1),
            new=Metric(np.arange(size), np.arange(size) / 7),
        )
        for i, size in enumerate(sizes)
    ]
    change = Change(path="a.json", verdict=Verdict.BREAK, metrics=tuple(rows))
    return Diff(old="a", new="b", changes=(change,))


def test_the_same_diff_gives_the_same_bytes() -> None:
    assert html.render(make()) == html.render(make())


def test_the_policy_forbids_every_request() -> None:
    metas = [attrs for tag, attrs in Tags(html.render(make())).tags if tag == "meta"]
    (policy,) = [m["content"] or "" for m in metas if m.get("http-equiv") == "Content-Security-Policy"]
    assert re.fullmatch(CSP, policy)


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = html.render(make())
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert "url(" not in page
    links = [attrs.get(name) for _, attrs in Tags(page).tags for name in ("src", "href") if name in attrs]
    assert links == ["data:,", "#rows"]


def test_the_script_never_writes_markup() -> None:
    script = Tags(html.render(make())).scripts[""]
    assert len(script) > 10_000
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script


def test_hostile_names_add_no_element() -> None:
    calm = Tags(html.render(curve_diff(3), title="t", command="c"))
    wild = Tags(html.render(hostile(), title=HOSTILE[0], command=HOSTILE[1]))
    kinds = {"script", "img", "svg", "style", "iframe", "object", "link", "meta", "form"}

    def harmful(page: Tags) -> list[str]:
        return [tag for tag, _ in page.tags if tag in kinds]

    assert harmful(wild) == harmful(calm)
    assert not [a for _, attrs in wild.tags for a in attrs if a.startswith("on")]


def test_hostile_names_arrive_unchanged() -> None:
    data = data_of(html.render(hostile()))
    assert [path for path, *_ in data["files"]] == [f"dir/{name}/{name}.json" for name in HOSTILE]
    assert {row[1] for row in data["rows"]} == set(HOSTILE)


def test_a_page_with_hostile_names_is_valid_utf8() -> None:
    page = html.render(hostile(), title="\udc80", command="\udcff")
    assert "\\udc80" in page.encode("utf-8").decode("utf-8")


def test_embedded_data_holds_no_markup_and_no_line_separator() -> None:
    scripts = Tags(html.render(hostile())).scripts
    for name in ("data", "curves"):
        assert not re.search("[<>&\u2028\u2029]", scripts[name])


def test_text_that_looks_like_a_slot_is_not_filled() -> None:
    page = html.render(make(files=1), title="<!--karat:data--> /*karat:js*/")
    assert '<bdi class="what">&lt;!--karat:data--&gt; /*karat:js*/</bdi>' in page


def test_points_are_bounded_and_the_gravest_rows_keep_their_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_POINTS", 100)
    page = html.render(curve_diff(60, 50, 30))
    assert [row["curve"] for row in rows_of(page)] == [0, html.OVER_LIMIT, 1]
    assert data_of(page)["limit"] == 100
    assert len(data_of(page, "curves")) == 2


def test_a_row_without_curves_says_so() -> None:
    row = MetricChange(metric="m", verdict=Verdict.NOISE, because="")
    change = Change(path="a.json", verdict=Verdict.NOISE, metrics=(row,))
    page = html.render(Diff(old="a", new="b", changes=(change,)))
    assert [row["curve"] for row in rows_of(page)] == [html.NO_CURVE]


def test_rows_come_gravest_first() -> None:
    rows = rows_of(html.render(make()))
    keys = [(row["verdict"], -(np.inf if row["threshold_ratio"] is None else row["threshold_ratio"])) for row in rows]
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    drifts = [key for key in keys if key[0] == Verdict.NOISE.rank]
    assert drifts == sorted(drifts)


def test_files_without_rows_are_rows_with_a_reason() -> None:
    rows = [row for row in rows_of(html.render(make())) if row["metric"] is None]
    verdicts = list(Verdict)
    assert {verdicts[row["verdict"]] for row in rows} == {
        Verdict.UNREADABLE,
        Verdict.REMOVED,
        Verdict.NEW,
        Verdict.DRIFT,
    }
    assert all(row["because"] for row in rows)
    assert all(row["n_steps"] is None for row in rows)


@pytest.mark.parametrize(
    ("value", "embedded"),
    [
        (0.1 + 0.2, 0.30000000000000004),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (np.float64(1e-300), 1e-300),
    ],
)
def test_numbers_keep_their_precision(value: float, embedded: object) -> None:
    row = MetricChange(metric="m", verdict=Verdict.BREAK, because="", change=value)
    change = Change(path="a.json", verdict=Verdict.BREAK, metrics=(row,))
    page = html.render(Diff(old="a", new="b", changes=(change,)))
    assert rows_of(page)[0]["change"] == embedded


def test_steps_too_large_for_javascript_travel_as_text() -> None:
    row = MetricChange(metric="m", verdict=Verdict.BREAK, because="", max_step=2**60 + 1)
    change = Change(path="a.json", verdict=Verdict.BREAK, metrics=(row,))
    page = html.render(Diff(old="a", new="b", changes=(change,)))
    assert rows_of(page)[0]["max_step"] == str(2**60 + 1)


def unpacked(packed: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What the script makes of packed values."""
    return np.frombuffer(base64.b64decode(packed), "<f8")


@given(hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats()))
def test_packed_values_are_exact(values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    again = unpacked(html._packed(values))
    np.testing.assert_array_equal(again, values)
    np.testing.assert_array_equal(np.signbit(again[values == 0]), np.signbit(values[values == 0]))


def test_regular_steps_are_three_numbers() -> None:
    assert html._steps(np.arange(5, 500, 5)) == [5, 5, 99]
    assert html._steps(np.array([7])) == [7, 1, 1]


def test_irregular_steps_are_kept() -> None:
    steps = np.array([1, 2, 5, 2_000_000_000])
    np.testing.assert_array_equal(unpacked(html._steps(steps)), steps)


def test_a_side_like_the_old_one_is_not_written_twice() -> None:
    metric = Metric(np.arange(9), np.arange(9) / 7)
    assert html._curve(metric, metric)[1] == [1, 1]
    assert html._curve(None, metric)[0] == 0


def test_groups_point_at_files_and_metrics() -> None:
    data = data_of(html.render(make()))
    severity, title, members, low, high = data["groups"][1]
    assert (severity, title) == ("warn", "iteration-time slower on dgx_gb200")
    assert len(members) == 12
    assert all(metric == "iteration-time" for _, metric in members)
    assert 0 < low < high
    assert data["groups"][0][0] == "fail"


def noscript_of(page: str) -> str:
    found = re.search(r"<noscript>(.*?)</noscript>", page, re.DOTALL)
    assert found
    return found[1]


def test_without_scripts_the_totals_and_failures_are_readable() -> None:
    page = html.render(make())
    assert '<p class="totals">81 goldens compared (1 unreadable, 3 inc' in page
    plain = noscript_of(page)
    assert plain.count("<li") == 6
    assert "line 41: &#x27;&lt;&lt;&lt;&lt;&lt;&lt;&lt; HEAD&#x27;" in plain
    assert "7.1% slower" not in plain  # a warning


def test_findings_come_gravest_first() -> None:
    severities = [finding[0] for finding in data_of(html.render(make()))["findings"]]
    assert severities == sorted(severities, key=lambda s: Severity(s).rank)
    assert len(severities) == len(list(make().all_findings()))


def test_nothing_changed_is_a_page_too() -> None:
    page = html.render(Diff(old="a", new="b", changes=(), unchanged=1))
    assert "no golden changed" in page
    assert "1 unchanged" in page


def test_a_finding_about_the_whole_comparison_is_shown() -> None:
    nothing = Finding(kind="nothing-compared", severity=Severity.FAIL, message="no golden matched")
    page = html.render(Diff(old="a", new="b", changes=(), findings=(nothing,)))
    assert "no golden matched" in noscript_of(page)
    assert data_of(page)["findings"][0][1] == "nothing-compared"
