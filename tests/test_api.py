"""The public functions: what a person types in a notebook."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import karat
from factories.repositories import Repository
from karat.schemas import schema


def series_json(metrics: dict[str, dict[int, float]], *, end: int | None = None) -> str:
    """Curves as training frameworks keep them."""
    return json.dumps(
        {
            name: {
                "start_step": 1,
                "end_step": end or max(curve),
                "step_interval": 1,
                "values": {str(step): value for step, value in curve.items()},
            }
            for name, curve in metrics.items()
        }
    )


FUNCTIONS = ("changes", "check", "diff", "gradcheck", "hunt", "refresh", "replay")


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders, before and after: one loss moved, one run died."""
    monkeypatch.chdir(tmp_path)
    for side, factor, steps in (("before", 1.0, 20), ("after", 1.1, 20)):
        (tmp_path / side).mkdir()
        whole = {step: factor * 10 / step for step in range(1, steps + 1)}
        died = {step: v for step, v in whole.items() if side == "before" or step < 8}
        (tmp_path / side / "golden_values_moved.json").write_text(series_json({"lm loss": whole}))
        (tmp_path / side / "golden_values_died.json").write_text(series_json({"lm loss": died}, end=20))
    return tmp_path


def validated(result: Any, name: str) -> dict[str, Any]:
    """The result as data, which its published schema accepts."""
    found: dict[str, Any] = result.to_dict()
    jsonschema.Draft202012Validator(schema(name)).validate(found)
    return found


def test_every_function_is_typed_documented_and_listed() -> None:
    for name in FUNCTIONS:
        function = getattr(karat, name)
        assert inspect.isfunction(function), name
        assert inspect.getdoc(function), name
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter.name})"
    assert set(FUNCTIONS) <= set(dir(karat))
    assert dir(karat) == sorted(karat.__all__)


def test_generic_names_are_not_at_the_top() -> None:
    assert not {"Options", "Report", "Sample", "Result"} & set(dir(karat))


@pytest.mark.slow
def test_a_function_stays_one_after_its_room_was_imported() -> None:
    code = "import karat, karat.diffs.diff, karat.checks.check, karat.hunts.hunt; print(karat.diff, karat.check, karat.hunt)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.count("<function") == 3


def test_diff_shows_a_table(sides: Path) -> None:
    result = karat.diff("before", "after")
    page = result._repr_html_()
    assert "<table>" in page
    assert "incomplete" in page
    assert "golden_values_died.json" in page
    frame = result.to_pandas()
    assert set(frame["verdict"]) >= {"incomplete"}
    assert set(frame["golden"]) == {"golden_values_died.json", "golden_values_moved.json"}
    moved = frame[frame["golden"] == "golden_values_moved.json"].iloc[0]
    assert moved["mean_abs_rel_diff"] == pytest.approx(0.1)
    found = validated(result, "karat.diff/1")
    assert len(found["files"]) == 2
    assert karat.diff("before", "before", cwd=sides, everything=True).headline().count("same") == 1


def test_what_a_stranger_named_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        text = series_json({"<script>alert(1)</script>": {1: 1.0 if side == "a" else 2.0}})
        (tmp_path / side / "golden_values.json").write_text(text)
    page = karat.diff("a", "b")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_check_compares_and_says_what_failed(sides: Path) -> None:
    report = karat.check(sides / "after" / "golden_values_moved.json", sides / "before" / "golden_values_moved.json")
    assert report.exit_code == karat.ExitCode.FAIL
    assert [row["metric"] for row in report.rows()] == ["lm loss"]
    validated(report, "karat.check/1")
    (sides / "again.json").write_bytes((sides / "before/golden_values_moved.json").read_bytes())
    same = karat.check("again.json", "before/golden_values_moved.json")
    assert same.exit_code == karat.ExitCode.OK


def test_refresh_takes_results_from_a_folder(repository: Repository, tmp_path: Path) -> None:
    loss = {step: 10 / step for step in range(1, 21)}
    repository.write("goldens/golden_values_a.json", series_json({"lm loss": loss}))
    repository.commit("goldens")
    came = tmp_path / "results" / "job" / "goldens"
    came.mkdir(parents=True)
    new = {step: (1.01 + 0.001 * (step % 2)) * value for step, value in loss.items()}
    (came / "golden_values_a.json").write_text(series_json({"lm loss": new}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI", "true")
        with pytest.raises(karat.UsageError, match="CI is set"):
            karat.refresh("folder", tmp_path / "results", scope="all", cwd=repository.root)
        patch.delenv("CI")
        report = karat.refresh("folder", tmp_path / "results", scope="all", cwd=repository.root)
    assert [(row["golden"], row["state"]) for row in report.rows()] == [("goldens/golden_values_a.json", "written")]
    validated(report, "karat.refresh-report/1")


def test_changes_in_values_at_hand() -> None:
    rng = np.random.default_rng(1)
    values = [*(100 + rng.standard_normal(20)), *(90 + rng.standard_normal(20))]
    report = karat.changes(values, better="higher", metric="MLUPS")
    assert [row["kind"] for row in report.rows()] == ["regression"]
    assert report.rows()[0]["first"] == "20"
    validated(report, "karat.changes/1")
    named = karat.changes({f"n{i}": v for i, v in enumerate(values)}, better="lower")
    assert [row["kind"] for row in named.rows()] == ["improvement"]
    holes = karat.changes([*values[:10], None, float("nan"), *values[12:20]])
    assert {row["kind"] for row in holes.rows()} == {"crash", "gap"}
    with pytest.raises(karat.UsageError, match="one label per value"):
        karat.changes([1.0, 2.0], labels=["a"])


def test_changes_in_a_file(tmp_path: Path) -> None:
    rows = "\n".join(f"2024-01-{day:02},{100 if day < 15 else 90}.{day % 3}" for day in range(1, 29))
    (tmp_path / "speed.csv").write_text(f"date,speed\n{rows}\n")
    report = karat.changes(tmp_path / "speed.csv", metric="speed", better="higher")
    assert [row["kind"] for row in report.rows()] == ["regression"]


@pytest.mark.slow
def test_a_hunt_from_python(tmp_path: Path) -> None:
    file = tmp_path / "hunt.toml"
    file.write_text(
        """
stages = ["values"]
[values]
list = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"]
[probe]
command = ["sh", "-c", "test $KARAT_VALUE -gt 8 && echo t=20 || echo t=10"]
[[probe.metrics]]
name = "t"
regex = "t=([0-9.]+)"
better = "lower"
"""
    )
    report = karat.hunt(file, strategy="sweep")
    assert [(row["last_good"], row["first_bad"]) for row in report.rows()] == [("8", "9")]
    validated(report, "karat.hunt/1")
    with pytest.raises(karat.UsageError, match="expected no journal"):
        karat.hunt(file)


def test_gradcheck_has_a_table() -> None:
    report = karat.gradcheck(
        np.sin, (np.linspace(0, 1, 5),), backward=lambda inputs, _, cotangents: (np.cos(inputs[0]) * cotangents[0],)
    )
    assert report
    assert report.rows()[0]["verdict"] == "PASS"
    assert "<table>" in report._repr_html_()
    validated(report, "karat.grad-report/1")
