from __future__ import annotations

import re
from pathlib import Path

import pytest

from factories.repositories import curves, golden_path, golden_text, moved
from karat.config import load
from karat.diffs.diff import DiffOptions, diff
from karat.diffs.report.markdown import pull_request_text, sections
from karat.diffs.result import Diff
from karat.goldens.provenance import RefreshRecord
from karat.report.markdown import Section, code, fit, prose, table


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def compared(root: Path) -> Diff:
    config = load(root, preset="megatron-lm")
    options = DiffOptions(globs=config.paths, cases=config.cases, rules=config.rule_book())
    return diff(str(root / "old"), str(root / "new"), options=options)


@pytest.fixture
def quiet(tmp_path: Path) -> Diff:
    """Four files whose loss moved by noise and whose memory did not move."""
    for i in range(4):
        old = curves(i)
        new = {**old, "lm loss": moved(old["lm loss"], 1 + 2e-6 * i)}
        write(tmp_path / "old", golden_path(f"case{i}"), golden_text(old))
        write(tmp_path / "new", golden_path(f"case{i}"), golden_text(new))
    write(tmp_path / "new", golden_path("newcomer"), golden_text(curves(9)))
    return compared(tmp_path)


def test_the_seeds_sections_and_numbers(quiet: Diff) -> None:
    text = pull_request_text(
        quiet, RefreshRecord(run_id="25341543542", scope="only-failing", command="karat refresh --run-id 25341543542")
    )
    assert "Refresh of golden values for failing functional tests from GitHub workflow run `25341543542`." in text
    assert "- Re-ran `karat refresh --run-id 25341543542`." in text
    assert "- Updated **4 golden-value files** under `tests/functional_tests/test_cases/gpt/`." in text
    assert "**4 files × 4 metrics = 16 `(file, metric)` pairs**" in text
    assert "1 new, without a baseline to compare with: `newcomer/" in text
    # |avg| of lm loss: 0, 2e-6, 4e-6, 6e-6; the seed's median of four is the third.
    assert "| `lm loss` | 4 | 4.00e-06 | 6.00e-06 |" in text
    counts = re.findall(r"^\| `([^`]+)` \| (\d+) \|$", text, re.MULTILINE)
    assert [int(n) for _, n in counts] == [13, 0, 3, 0, 0, 0, 0]
    assert [label for label, _ in counts] == [
        "== 0",
        "(0, 1e-6)",
        "[1e-6, 1e-4)",
        "[1e-4, 1e-3)",
        "[1e-3, 1e-2)",
        "[1e-2, 1e-1)",
        ">= 1e-1",
    ]


def test_interpretation_only_where_the_data_bears_it_out(quiet: Diff) -> None:
    text = pull_request_text(quiet)
    assert "loss trajectories match the old goldens to numerical noise" in text
    assert "8 of 8" not in text
    assert "`mem-*`: 4 of 4 rows sit at `== 0`" in text
    assert "to resolve" not in text
    assert text.startswith("**None of 5 goldens needs a look; no loss moved**")


def test_scope_all_and_no_record(quiet: Diff) -> None:
    assert "Full refresh of golden values from GitLab pipeline `7`." in pull_request_text(
        quiet, RefreshRecord(source="gitlab", run_id="7", scope="all")
    )
    assert "Re-ran" not in pull_request_text(quiet)


def test_what_was_forced_and_what_was_not_done_is_told(tmp_path: Path) -> None:
    for side, scale in (("old", 1.0), ("new", 2.0)):
        for case in ("`a`", "b"):
            write(tmp_path / side, golden_path(case), golden_text({"lm loss": moved(curves(1)["lm loss"], scale)}))
    put_back = golden_path("rejected-since")
    record = RefreshRecord(
        source="s3", scope="all", accepted=(golden_path("`a`"), put_back), not_refreshed=("b: it stops at step 3",)
    )
    text = pull_request_text(compared(tmp_path), record)
    assert "Full refresh of golden values from a bucket." in text
    assert "Accepted despite fail findings (1):\n  - `` `a`/golden_values_dev_dgx_h100.json ``: --accept-" in text
    assert "Asked for and not refreshed (1):\n  - b: it stops at step 3" in text


def test_what_must_be_looked_at_comes_first(tmp_path: Path) -> None:
    for i in range(3):
        old = curves(i)
        write(tmp_path / "old", golden_path(f"case{i}"), golden_text(old))
        new = {**old, "lm loss": moved(old["lm loss"], 1.004)}
        write(tmp_path / "new", golden_path(f"case{i}"), golden_text(new, stop=13 if i == 1 else None))
    text = pull_request_text(compared(tmp_path))
    assert text.startswith(
        "**3 of 3 goldens need a look; 1 must not be merged: `gpt/case1` (truncated); loss up in 2, not judged in 1**"
    )
    first, second = (text.index("loss up: all 3 gpt cases on dgx\\_h100"), text.index("stops at step 13 of 50"))
    assert text.index("## Summary") < first < second
    assert "match the old goldens to numerical noise" not in text
    assert "incomplete, so not judged, in 1 file" in text


def test_github_text_fits_a_comment_and_is_cut_at_a_section(tmp_path: Path) -> None:
    for i in range(60):
        write(tmp_path / "old", golden_path(f"case{i}" + "x" * 150), golden_text(curves(i, steps=5)))
        write(tmp_path / "new", golden_path(f"case{i}" + "x" * 150), golden_text(curves(i + 1, steps=5)))
    result = compared(tmp_path)
    assert len(pull_request_text(result, github=True)) <= 65_536
    cut = fit(sections(result), 3_000)
    assert len(cut) <= 3_000
    assert "> Cut here to fit 3,000 characters; not shown: " in cut


def test_fit_keeps_whole_sections() -> None:
    sections = [Section("## A", "a" * 50), Section("## B", "b" * 50), Section("## C", "c" * 500)]
    text = fit(sections, 260)
    assert "a" * 50 in text
    assert "b" * 50 in text
    assert "c" * 500 not in text
    assert text.rstrip().endswith("not shown: C.")
    assert fit(sections, 10_000).count("##") == 3


def test_hostile_names_stay_text() -> None:
    assert code("a`b|c") == "``a`b|c``"
    assert table(["x"], [["a|b"]]).endswith("| a\\|b |")
    assert code("`") == "`` ` ``"
    assert "\n" not in code("two\nlines")
    assert prose("<img src=x> *bold* @everyone") == "\\<img src=x\\> \\*bold\\* @\u200beveryone"
    assert "https://" not in prose("see https://evil.example")


def test_the_github_text_keeps_what_matters_most_whatever_the_names(tmp_path: Path) -> None:
    for i in range(120):
        name = golden_path(f"case{i}" + "y" * 190, f"platform{i % 40}")
        old = curves(i, steps=20)
        write(tmp_path / "old", name, golden_text(old))
        new = {**old, "lm loss": moved(old["lm loss"], 1.004)}
        write(tmp_path / "new", name, golden_text(new, stop=9 if i == 77 else None))
    text = pull_request_text(compared(tmp_path), github=True)
    assert len(text) <= 65_536
    assert "stops at step 9 of 20" in text
    assert "loss up: all 3 gpt cases on platform" in text


def test_metric_names_are_no_markup(tmp_path: Path) -> None:
    name = "mem-[click](https://evil.example) <img src=x onerror=alert(1)> @admins"
    old = {name: curves(1)["lm loss"]}
    write(tmp_path / "old", golden_path("a"), golden_text(old))
    write(tmp_path / "new", golden_path("a"), golden_text({name: old[name] * 1.05}))
    text = re.sub(r"`[^`]*`", "", pull_request_text(compared(tmp_path)))
    assert "<img" not in text.replace("\\<img", "")
    assert "](https://" not in text


def test_memory_and_timing_lines_do_not_contradict_the_verdicts(tmp_path: Path) -> None:
    ones = curves(1)["mem-allocated-bytes"]
    half = ones.copy()
    half[::2] *= 0.5
    half[1::2] *= 1.5
    write(tmp_path / "old", golden_path("a"), golden_text({"mem-x": ones}))
    write(tmp_path / "new", golden_path("a"), golden_text({"mem-x": half}))
    write(tmp_path / "old", golden_path("b"), golden_text(curves(2)))
    write(tmp_path / "new", golden_path("b"), golden_text(curves(2), stop=3))
    text = pull_request_text(compared(tmp_path))
    assert "1 land above `[1e-4, 1e-3)` or break" in text
    assert "within 5% in 0 of 1 files (1 incomplete row not counted)" in text


def test_a_loss_that_is_gone_does_not_match(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / "old", golden_path(f"case{i}"), golden_text(curves(i)))
        new = curves(i)
        if i == 1:
            del new["lm loss"], new["num-zeros"]
        if i == 2:
            new["lm loss"] = new["lm loss"] * float("nan")
        write(tmp_path / "new", golden_path(f"case{i}"), golden_text(new).replace("NaN", '"nan"'))
    text = pull_request_text(compared(tmp_path))
    assert "match the old goldens to numerical noise" not in text
    assert "incomplete, so not judged, in 2 files" in text
    assert "`num-zeros` rows are all noise" not in text
