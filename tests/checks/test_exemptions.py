from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from karat.checks.check import CheckExemptions
from karat.compare.gate.result import Judging, MetricResult
from karat.compare.gate.table import gate_table
from karat.config import load
from karat.findings import Finding, Severity, UsageError
from karat.goldens.shapes import Table
from karat.settings import CheckExemption

TODAY = date(2026, 5, 1)
PATH = "bench/inductor.csv"


def entry(**sets: Any) -> CheckExemption:
    usual: dict[str, Any] = {
        "kind": "flaky",
        "owner": "@me",
        "reason": "races",
        "link": "https://example.com/1",
        "expires": date(2026, 6, 1),
    }
    return CheckExemption(**{**usual, **sets})


def table(**rows: tuple[str, str]) -> Table:
    return Table(
        ("name", "accuracy", "graph_breaks"), ("name",), {(name,): (name, *cells) for name, cells in rows.items()}
    )


GOLDEN = table(a=("pass", "3"), b=("pass", "5"))


def judged(actual: Table, *entries: CheckExemption, path: str = PATH) -> tuple[list[MetricResult], list[Finding]]:
    exemptions = CheckExemptions(entries, path, TODAY)
    results, _ = gate_table(GOLDEN, actual, Judging(exempt=exemptions.covering))
    applied = exemptions.apply(results)
    return applied, list(exemptions.findings(applied))


def outcomes(results: list[MetricResult]) -> set[tuple[str, str]]:
    return {(r.metric, r.outcome.value) for r in results}


WORSE = table(a=("pass", "9"), b=("pass", "5"))


def test_without_an_entry_it_fails() -> None:
    assert ("graph_breaks", "fail") in outcomes(judged(WORSE)[0])


def test_an_entry_for_a_row_covers_that_row_only() -> None:
    results, findings = judged(WORSE, entry(metric="graph_breaks", row="a"))
    assert outcomes(results) == {
        ("(rows)", "pass"),
        ("accuracy", "pass"),
        ("graph_breaks", "exempted"),
        ("graph_breaks", "pass"),
    }
    assert findings == []
    both = table(a=("pass", "9"), b=("pass", "9"))
    results, _ = judged(both, entry(metric="graph_breaks", row="a"))
    assert {("graph_breaks", "exempted"), ("graph_breaks", "fail")} <= outcomes(results)


def test_an_entry_for_a_metric_covers_all_of_it() -> None:
    results, _ = judged(WORSE, entry(metric="graph_*"))
    assert ("graph_breaks", "exempted") in outcomes(results)


def test_an_entry_for_another_path_covers_nothing_and_is_not_mentioned() -> None:
    results, findings = judged(WORSE, entry(path="other/*.csv"))
    assert ("graph_breaks", "fail") in outcomes(results)
    assert findings == []


@pytest.mark.parametrize("path", ["*", "bench/*.csv", "inductor.csv", "bench"])
def test_a_path_is_a_glob_a_folder_or_an_end(path: str) -> None:
    results, _ = judged(WORSE, entry(path=path, metric="graph_breaks"))
    assert ("graph_breaks", "exempted") in outcomes(results)


def test_what_is_missing_is_covered_only_by_those_who_say_so() -> None:
    gone = table(b=("pass", "5"))
    assert ("(rows)", "fail") in outcomes(judged(gone, entry(row="a"))[0])
    assert ("(rows)", "fail") in outcomes(judged(gone, entry())[0])
    results, _ = judged(gone, entry(row="a", covers="missing"))
    assert ("(rows)", "exempted") in outcomes(results)
    assert ("(rows)", "pass") in outcomes(results)
    empty = table(a=("pass", ""), b=("pass", "5"))
    assert ("graph_breaks", "fail") in outcomes(judged(empty, entry(row="a"))[0])
    covered, _ = judged(empty, entry(row="a", covers="missing"))
    assert ("graph_breaks", "exempted") in outcomes(covered)


def test_an_expired_entry_fails_even_where_everything_passes() -> None:
    old = entry(expires=date(2026, 4, 30))
    results, findings = judged(GOLDEN, old)
    assert {r.outcome.value for r in results} == {"pass"}
    assert [(f.kind, f.severity) for f in findings] == [("exemption-expired", Severity.FAIL)]
    results, _ = judged(WORSE, old)
    assert ("graph_breaks", "fail") in outcomes(results)


def test_an_entry_holds_through_its_last_day() -> None:
    _, findings = judged(WORSE, entry(metric="graph_breaks", expires=TODAY))
    assert findings == []


def test_an_expected_failure_that_passes_is_unused() -> None:
    _, findings = judged(GOLDEN, entry(kind="expected-failure", row="a"))
    assert [(f.kind, f.severity) for f in findings] == [("exemption-unused", Severity.WARN)]
    assert "but now passes" in findings[0].message


def test_an_expected_failure_that_fails_in_one_column_is_used() -> None:
    _, findings = judged(WORSE, entry(kind="expected-failure", row="a"))
    assert findings == []


def test_a_flaky_entry_may_pass_but_must_speak_of_something() -> None:
    assert judged(GOLDEN, entry(row="a"))[1] == []
    _, findings = judged(GOLDEN, entry(row="zzz"))
    assert [f.kind for f in findings] == ["exemption-unused"]


def test_karat_toml_holds_exemptions(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "karat.toml").write_text(
        '[check]\nunknown = "fail"\n[[exempt]]\nkind = "flaky"\nowner = "@me"\n'
        'reason = "r"\nlink = "l"\nexpires = 2026-06-01\nrow = "a"\n'
    )
    config = load(tmp_path)
    assert config.check.unknown == "fail"
    assert config.exempt == (entry(reason="r", link="l", row="a"),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[check]\nimprovd = 1", "unknown key 'improvd'; did you mean 'improved'"),
        ('[check]\nimproved = "ignore"', "[check]"),
        ('[[exempt]]\nkind = "flaky"', "expected owner to be set"),
        ('[[exempt]]\nkind = "meh"\nowner="o"\nreason="r"\nlink="l"\nexpires=2026-01-01', "[[exempt]]"),
        ('[[exempt]]\nkind = "flaky"\nowner=" "\nreason="r"\nlink="l"\nexpires=2026-01-01', "owner"),
        ('[[exempt]]\nkind = "flaky"\nowner="o"\nreason="r"\nlink="l"\nexpires="soon"', "[[exempt]]"),
        ('[[rules]]\nmetric = "x"\ncheck = "fuzzy"', "check must be exact or approx"),
        ('[[rules]]\nmetric = "x"\nwindow = [9, 3]', "expected a window from its first step to its last"),
        ('[[rules]]\nmetric = "x"\nwindow = 3', "window must be a list"),
        ('[[rules]]\nmetric = "x"\noutliers = -1', "outliers must be a number >= 0"),
    ],
)
def test_mistakes_in_karat_toml_are_said(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "karat.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert complaint in str(caught.value)


def test_the_presets_gate_is_megatrons(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    book = load(tmp_path, preset="megatron-lm").rule_book()
    loss, time = book.rule_for("lm loss"), book.rule_for("iteration-time")
    assert (loss.check, loss.rtol, loss.outliers, loss.outlier_share, loss.outliers_max) == (
        "approx",
        0.05,
        1,
        0.01,
        50,
    )
    assert (time.check, time.rtol, time.window, time.short_window, time.short_steps) == (
        "median",
        0.05,
        (30, 45),
        (5, 20),
        25,
    )


def test_an_entry_for_every_golden_need_not_speak_of_each() -> None:
    for path, severity in (("*", Severity.INFO), ("bench/*", Severity.WARN)):
        _, findings = judged(GOLDEN, entry(metric="lm loss", path=path))
        assert [(f.kind, f.severity) for f in findings] == [("exemption-unused", severity)]


def test_an_exemption_of_everything_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    text = '[[exempt]]\nkind = "flaky"\nowner = "@me"\nreason = "x"\nlink = "y"\nexpires = 2027-01-01\n'
    (tmp_path / "karat.toml").write_text(text)
    with pytest.raises(UsageError, match="found an exemption of everything"):
        load(tmp_path)
    for narrower in ('path = "a/*"', 'metric = "lm*"', 'row = "moco"'):
        (tmp_path / "karat.toml").write_text(f"{text}{narrower}\n")
        assert len(load(tmp_path).exempt) == 1
