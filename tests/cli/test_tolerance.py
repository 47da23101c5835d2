from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from factories.commands import Outcome, karat
from karat.config import load
from karat.schemas import schema


def run_file(path: Path, seed: int, *, steps: int = 40) -> Path:
    rng = np.random.default_rng(seed)
    with path.open("w") as stream:
        for step in range(1, steps + 1):
            values = {
                "step": step,
                "lm loss": 10 / step * (1 + 1e-4 * rng.normal()),
                "num-zeros": 1000 + step,
                "iteration-time": 0.5 * (1 + 0.1 * abs(rng.normal())),
                "bias": rng.normal(),
            }
            stream.write(json.dumps(values) + "\n")
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in range(1, 6):
        run_file(tmp_path / f"run{seed}.jsonl", seed)
    return tmp_path


def tolerance(folder: Path, *words: str) -> Outcome:
    return karat("tolerance", *words, cwd=folder)


def names(count: int) -> list[str]:
    return [f"run{i}.jsonl" for i in range(1, count + 1)]


def report(outcome: Outcome) -> Any:
    found = json.loads(outcome.out)
    jsonschema.validate(found, schema("karat.tolerance/1"))
    return found


def test_each_metric_gets_the_check_that_suits_it(runs: Path) -> None:
    result = tolerance(runs, *names(5), "--json", "-")
    assert result.code == 0, result.err
    found = report(result)
    rules = {rule["metric"]: rule for rule in found["metrics"]}
    assert {name: rule["check"] for name, rule in rules.items()} == {
        "lm loss": "approx",
        "num-zeros": "exact",
        "iteration-time": "median",
        "bias": "approx",
    }
    assert rules["lm loss"]["rtol"] >= rules["lm loss"]["observed"] > 0
    assert (rules["bias"]["rtol"], rules["bias"]["atol"] > 0) == (0, True)
    assert all(rule["rate_expected"] == 1 / 5 for rule in rules.values())
    assert (found["rate_shown"], found["runs_needed"]) == (False, 300)
    assert "295 more runs" in result.err


@pytest.mark.slow
def test_the_text_is_honest_about_few_repeats(runs: Path) -> None:
    out = tolerance(runs, *names(3)).out
    assert "3 runs, the first of them the golden" in out
    assert "≤ 77.6%" in out
    assert "The asked rate, 1.00%, is not shown: that takes 300 runs; there are 3." in out
    assert "All metrics together may alarm in any run" in out
    assert "which is a guess" not in out
    assert "which is a guess" in tolerance(runs, *names(2)).out
    one = tolerance(runs, *names(5), "--metric", "bias").out
    assert "All metrics together alarm at most once in 5 runs, on average." in one
    # Five runs expect at most 20%, but cannot show it: with 95% confidence it is 53%.
    assert "The asked rate, 50.00%, is not shown: that takes 6 runs; there are 5." in (
        tolerance(runs, *names(5), "--rate", "0.5").out
    )
    run_file(runs / "run6.jsonl", 6)
    enough = tolerance(runs, *names(6), "--rate", "0.5")
    assert "not shown" not in enough.out
    assert enough.err == ""


@pytest.mark.slow
def test_the_rules_work_as_they_are_printed(runs: Path) -> None:
    assert karat("record", *names(5), "-o", "golden_values.json", cwd=runs).code == 0
    result = tolerance(runs, "--golden", "golden_values.json", "--json", "-")
    assert result.code == 0
    (runs / "karat.toml").write_text(report(result)["toml"])
    book = load(runs).rule_book()
    assert book.rule_for("num-zeros").check == "exact"
    assert (book.rule_for("lm loss").rtol or 0) > 0
    for name in names(5):
        checked = karat("check", name, "--golden", "golden_values.json", cwd=runs)
        assert checked.code == 0, checked.out
    lines = (runs / "run2.jsonl").read_text().splitlines()
    worse = [{**json.loads(line), "lm loss": json.loads(line)["lm loss"] * 1.01} for line in lines]
    (runs / "worse").write_text("".join(json.dumps(record) + "\n" for record in worse))
    assert karat("check", "worse", "--golden", "golden_values.json", cwd=runs).code == 1


@pytest.mark.slow
def test_samples_of_a_golden_count_as_runs(runs: Path) -> None:
    karat("record", *names(3), "-o", "g.json", cwd=runs)
    found = report(tolerance(runs, "--golden", "g.json", "run4.jsonl", "--json", "-"))
    assert (found["runs"], found["golden_is_run"]) == (names(4), True)
    karat("record", "run5.jsonl", "-o", "other.json", cwd=runs)
    (runs / "g.json").write_bytes((runs / "other.json").read_bytes())
    result = tolerance(runs, "--golden", "g.json")
    assert "its rates are estimates, no bounds" in result.out


def test_repeats_that_are_not_whole_are_told(runs: Path) -> None:
    run_file(runs / "short", 9, steps=20)
    result = tolerance(runs, "run1.jsonl", "run2.jsonl", "short", "--json", "-")
    assert result.code == 1
    assert {f["kind"] for f in report(result)["findings"]} == {"lost-steps"}
    assert "# run the test again; the repeats must be whole" in result.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run1.jsonl"], 2, "expected at least 2 repeats of one test, found 1"),
        ([], 2, "found 0 (in no RUN)"),
        (["run1.jsonl", "missing"], 3, "expected a run in missing"),
        (["--golden", "missing", "run1.jsonl", "run2.jsonl"], 3, "expected to read the golden missing"),
        (["run1.jsonl", "table.csv"], 2, "found a table"),
        (["--golden", "table.csv", "run1.jsonl", "run2.jsonl"], 2, "expected a series in table.csv"),
        (["run1.jsonl", "run2.jsonl", "--rate", "0"], 2, "--rate"),
    ],
)
def test_what_it_cannot_work_with(runs: Path, words: list[str], code: int, said: str) -> None:
    (runs / "table.csv").write_text("name,x\na,1\n")
    result = tolerance(runs, *words)
    assert result.code == code
    assert said in result.err


def test_nothing_in_common_is_nothing_verified(runs: Path) -> None:
    result = tolerance(runs, *names(2), "--metric", "zzz")
    assert result.code == 3
    assert "nothing-compared" in result.out


@pytest.mark.slow
def test_a_broken_samples_file_is_said_to_be_one(runs: Path) -> None:
    karat("record", *names(2), "-o", "g.json", cwd=runs)
    (runs / "g.samples.json").write_text("{")
    result = tolerance(runs, "--golden", "g.json")
    assert result.code == 3
    assert "expected karat.samples/1 in g.samples.json" in result.err


@pytest.mark.slow
def test_runs_are_thinned_as_the_golden_is(runs: Path) -> None:
    (runs / "karat.toml").write_text("[record]\ninterval = 10\n")
    karat("record", *names(3), "-o", "g.json", cwd=runs)
    (runs / "karat.toml").unlink()
    found = report(tolerance(runs, "--golden", "g.json", "run4.jsonl", "--json", "-"))
    assert {rule["steps"] for rule in found["metrics"]} == {5}
    assert found["findings"] == []


@pytest.mark.slow
def test_a_run_counts_once(runs: Path) -> None:
    result = tolerance(runs, "run1.jsonl", "run2.jsonl", "./run1.jsonl")
    assert result.code == 2
    assert "expected different runs, found run1.jsonl and ./run1.jsonl" in result.err
    karat("record", *names(3), "-o", "g.json", cwd=runs)
    found = report(tolerance(runs, "--golden", "g.json", *names(4)[2:], "--json", "-"))
    assert found["runs"] == names(4)
    assert [(f["kind"], f["severity"]) for f in found["findings"]] == [("claimed-twice", "info")]
    assert "run3.jsonl is among the golden's samples" in found["findings"][0]["message"]


def test_a_copy_says_nothing_of_noise(runs: Path) -> None:
    (runs / "copy").write_bytes((runs / "run1.jsonl").read_bytes())
    result = tolerance(runs, *names(2), "copy")
    assert "warn  claimed-twice: expected different runs, found the same bytes" in result.out


@pytest.mark.slow
def test_what_gets_no_rule_is_named(runs: Path) -> None:
    for i in (1, 2):
        lines = [json.dumps({"step": s, "loss": 1.0 + s * i, "void": "nan"}) for s in range(1, 5)]
        (runs / f"void{i}").write_text("\n".join(lines) + "\n")
    result = tolerance(runs, "void1", "void2")
    assert "warn  no-usable-steps: no rule for void: " in result.out
    assert "no rule for" not in tolerance(runs, "void1", "void2", "--metric", "loss").out


def test_a_window_means_its_median(runs: Path) -> None:
    (runs / "karat.toml").write_text("[[rules]]\nmetric = 'lm loss'\nwindow = [10, 20]\n")
    found = report(tolerance(runs, *names(5), "--metric", "lm loss", "--json", "-"))
    assert [rule["check"] for rule in found["metrics"]] == ["median"]


@pytest.mark.slow
def test_the_rules_hold_before_a_preset(runs: Path) -> None:
    """Megatron's preset allows outliers; a rule that says nothing of them would inherit these."""
    preset = ["--preset", "megatron-lm"]
    karat("record", *names(5), "-o", "g.json", cwd=runs)
    found = report(tolerance(runs, "--golden", "g.json", *preset, "--metric", "lm loss", "--json", "-"))
    (runs / "karat.toml").write_text(found["toml"])
    records = [json.loads(line) for line in (runs / "run1.jsonl").read_text().splitlines()]
    records[20]["lm loss"] *= 1.02
    (runs / "off").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert karat("check", "off", "--golden", "g.json", *preset, cwd=runs).code == 1
    assert karat("check", "run1.jsonl", "--golden", "g.json", *preset, cwd=runs).code == 0
