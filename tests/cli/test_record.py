from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.commands import Outcome, karat
from factories.event_files import run_folder
from factories.repositories import Repository
from karat.schemas import schema

LOSS = {step: 10 / step for step in range(1, 51)}
TIME = dict.fromkeys(range(1, 51), 0.5)


def up_to(values: dict[int, float], last: int) -> dict[int, float]:
    return {step: value for step, value in values.items() if step <= last}


def scaled(values: dict[int, float], factor: float) -> dict[int, float]:
    return {step: value * factor for step, value in values.items()}


def lines_file(path: Path, **curves: dict[int, float]) -> Path:
    steps = sorted({step for held in curves.values() for step in held})
    records = [
        {"step": step, **{n.replace("_", " "): held[step] for n, held in curves.items() if step in held}}
        for step in steps
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def record(folder: Path, *words: str, **environment: str) -> Outcome:
    return karat("record", *words, cwd=folder, **environment)


def golden(path: Path) -> Any:
    return json.loads(path.read_text())


def report(outcome: Outcome) -> Any:
    found = json.loads(outcome.out)
    jsonschema.validate(found, schema("karat.record/1"))
    return found


def kinds(found: Any) -> set[tuple[str, str]]:
    return {(f["kind"], f["severity"]) for f in found["findings"]}


def test_a_new_golden_from_events_is_as_megatron_keeps_it(tmp_path: Path) -> None:
    run_folder(tmp_path / "tb", {"lm loss": LOSS, "iteration-time": TIME})
    (tmp_path / "karat.toml").write_text("[record]\nprecision = 5\ninterval = 10\n")
    result = record(tmp_path, "tb", "-o", "new/golden.json")
    assert result.code == 0, result.err
    held = golden(tmp_path / "new" / "golden.json")
    assert held["lm loss"] == {
        "start_step": 1,
        "end_step": 50,
        "step_interval": 10,
        "values": {"1": 10.0, "10": 1.0, "20": 0.5, "30": 0.33333, "40": 0.25, "50": 0.2},
    }
    assert "read tb: 2 metrics, steps 1–50 (tensorboard)" in result.out
    assert "wrote new/golden.json" in result.out
    assert result.err == "next: git diff -- new/golden.json\nto take it: git add new/golden.json\n"


def test_an_update_keeps_the_style_and_the_form_of_the_golden(tmp_path: Path) -> None:
    old = '{"lm loss":\n  {"start_step":1,"end_step":50,"step_interval":25,"values":{"1":9.0,"25":"nan","50":0.2}}}'
    (tmp_path / "g.json").write_text(old)
    run_folder(tmp_path / "tb", {"lm loss": LOSS})
    (tmp_path / "karat.toml").write_text("[record]\nprecision = 1\n")
    result = record(tmp_path, "tb", "-o", "g.json")
    assert result.code == 0, result.out
    assert (tmp_path / "g.json").read_text() == old.replace("9.0", "10.0").replace('"nan"', "0.4")


@pytest.mark.slow
def test_the_same_again_touches_nothing(tmp_path: Path) -> None:
    run_folder(tmp_path / "tb", {"lm loss": LOSS})
    record(tmp_path, "tb", "-o", "g.json")
    before = (tmp_path / "g.json").stat().st_mtime_ns
    result = record(tmp_path, "tb", "-o", "g.json", "--json", "-")
    assert report(result)["state"] == "unchanged"
    assert (tmp_path / "g.json").stat().st_mtime_ns == before


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    run_folder(tmp_path / "whole", {"lm loss": LOSS, "lr": TIME})
    assert record(tmp_path, "whole", "-o", "g.json").code == 0
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curves", "kind"),
    [
        ({"lm loss": up_to(LOSS, 13), "lr": up_to(TIME, 13)}, "short-run"),
        ({"lm loss": LOSS}, "lost-metric"),
        ({"lm loss": {**LOSS, 20: float("nan")}, "lr": TIME}, "new-nan"),
        ({"lm loss": {s: v for s, v in LOSS.items() if s != 20}, "lr": TIME}, "lost-steps"),
    ],
)
def test_a_run_that_is_not_all_there_is_refused(recorded: Path, curves: dict[str, dict[int, float]], kind: str) -> None:
    run_folder(recorded / "bad", curves)
    before = (recorded / "g.json").read_bytes()
    result = record(recorded, "bad", "-o", "g.json", "--json", "-")
    found = report(result)
    assert (result.code, found["state"], found["verdict"]) == (1, "refused", "incomplete")
    assert (kind, "fail") in kinds(found)
    assert (recorded / "g.json").read_bytes() == before
    assert "next: " in result.err
    forced = record(recorded, "bad", "-o", "g.json", "--accept-incomplete", "--json", "-")
    found = report(forced)
    assert (forced.code, found["state"], found["accepted_incomplete"]) == (0, "written", True)
    assert {("accepted-incomplete", "warn"), (kind, "warn")} <= kinds(found)
    assert (recorded / "g.json").read_bytes() != before


@pytest.mark.slow
def test_a_short_run_without_a_golden_is_known_by_steps(tmp_path: Path) -> None:
    run_folder(tmp_path / "tb", {"lm loss": up_to(LOSS, 13)})
    result = record(tmp_path, "tb", "-o", "g.json", "--steps", "50")
    assert result.code == 1
    assert "short-run: expected a run up to step 50" in result.out
    assert not (tmp_path / "g.json").exists()
    (tmp_path / "karat.toml").write_text("[record]\nsteps = 50\n")
    assert record(tmp_path, "tb", "-o", "g.json").code == 1
    assert record(tmp_path, "tb", "-o", "g.json", "--steps", "13").code == 0


@pytest.mark.slow
def test_a_cut_event_file_is_refused_unless_the_run_is_known_to_be_whole(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "tb", {"lm loss": LOSS})
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes() + b"\x20\x00\x00")
    assert record(tmp_path, "tb", "-o", "g.json").code == 1
    result = record(tmp_path, "tb", "-o", "g.json", "--steps", "50")
    assert result.code == 0
    assert "warn  truncated" in result.out


@pytest.mark.slow
def test_only_the_metrics_asked_for_change(recorded: Path) -> None:
    before = golden(recorded / "g.json")
    run_folder(recorded / "other", {"lm loss": scaled(LOSS, 1.5), "lr": scaled(TIME, 2), "x": TIME})
    result = record(recorded, "other", "-o", "g.json", "--metric", "l?", "--json", "-")
    found = report(result)
    after = golden(recorded / "g.json")
    assert result.code == 0
    assert after["lm loss"] == before["lm loss"]
    assert after["lr"]["values"]["7"] == 1.0
    assert list(after) == list(before)
    verdicts = {row["metric"]: row["verdict"] for row in found["metrics"]}
    assert verdicts == {"lm loss": "same", "lr": "break"}
    assert ("value-drift", "warn") in kinds(found)  # it was meant to change
    assert record(recorded, "other", "-o", "g.json", "--metric", "zzz").code == 2


@pytest.mark.slow
def test_repeats_keep_their_samples_beside_the_golden(tmp_path: Path) -> None:
    for i, factor in enumerate((1.0, 1.5, 1.25), 1):
        run_folder(tmp_path / f"run{i}", {"loss": {1: 2 * factor, 2: factor}}, 1000.0 * i)
    result = record(tmp_path, "run1", "run2", "run3", "-o", "g.json")
    assert result.code == 0, result.out
    assert golden(tmp_path / "g.json")["loss"]["values"] == {"1": 2.0, "2": 1.0}
    samples = golden(tmp_path / "g.samples.json")
    assert [run["name"] for run in samples["runs"]] == ["run1", "run2", "run3"]
    assert samples["metrics"]["loss"]["values"] == [[2.0, 1.0], [3.0, 1.5], [2.5, 1.25]]
    assert "next: karat tolerance --golden g.json" in result.err
    record(tmp_path, "run1", "run2", "run3", "-o", "g.json")
    assert golden(tmp_path / "g.samples.json") == samples  # the same runs are the same samples


@pytest.mark.slow
def test_samples_are_added_to_or_replaced(tmp_path: Path) -> None:
    for i in range(1, 5):
        run_folder(tmp_path / f"run{i}", {"loss": {1: float(i)}}, 1000.0 * i)
    record(tmp_path, "run1", "run2", "-o", "g.json")
    found = report(record(tmp_path, "run3", "-o", "g.json", "--json", "-"))
    assert (found["samples"], found["samples_runs"]) == ("g.samples.json", 3)
    record(tmp_path, "run4", "-o", "g.json", "--replace-samples")
    assert [run["name"] for run in golden(tmp_path / "g.samples.json")["runs"]] == ["run4"]


@pytest.mark.slow
def test_repeats_that_disagree_are_refused(tmp_path: Path) -> None:
    run_folder(tmp_path / "a", {"loss": LOSS, "lr": TIME})
    run_folder(tmp_path / "b", {"loss": up_to(LOSS, 13)})
    result = record(tmp_path, "a", "b", "-o", "g.json", "--json", "-")
    assert result.code == 1
    assert {("lost-metric", "fail"), ("lost-steps", "fail")} <= kinds(report(result))
    assert not (tmp_path / "g.json").exists()
    assert not (tmp_path / "g.samples.json").exists()


def test_a_copy_is_no_repeat(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lines_file(tmp_path / name, loss=LOSS)
    assert "the same bytes in a and b" in record(tmp_path, "a", "b", "-o", "g.json").out


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lines_file(tmp_path / name, loss=LOSS)
    result = record(tmp_path, "a", "b", "-o", "g.json", "--dry-run")
    assert result.code == 0
    assert "would write g.json" in result.out
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    assert "--dry-run" not in result.err.split("next:")[1]


@pytest.mark.slow
def test_logs_csv_and_names_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "karat.toml").write_text(
        "[record]\nrename = { train = 'lm loss' }\ntags = ['train']\nprecision = 2\n"
        "log = { train = 'loss: (\\S+)', step = 'iteration +(\\d+)/' }\n"
    )
    (tmp_path / "x.log").write_text("hello\n iteration  1/ 2 | loss: 1.2345E+01 |\n iteration 2/ 2 | loss: 1.5\n")
    assert record(tmp_path, "x.log", "-o", "log.json").code == 0
    (tmp_path / "x.csv").write_text("step,train,other\n1,12.345,0\n2,1.5,0\n")
    assert record(tmp_path, "x.csv", "-o", "csv.json").code == 0
    assert golden(tmp_path / "log.json")["lm loss"]["values"] == {"1": 12.35, "2": 1.5}
    assert list(golden(tmp_path / "csv.json")) == ["lm loss"]


def test_a_bad_pattern_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "karat.toml").write_text("[record]\nlog = { loss = '(', step = '(a)' }\n")
    result = record(tmp_path, "x", "-o", "g.json")
    assert result.code == 2
    assert "expected a regular expression" in result.err


@pytest.mark.slow
def test_formats_are_kept_and_chosen(tmp_path: Path) -> None:
    lines_file(tmp_path / "run.jsonl", loss={1: 2.0, 2: 1.0})
    assert record(tmp_path, "run.jsonl", "-o", "g.jsonl", "--format", "series-lines").code == 0
    assert golden_lines(tmp_path) == [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    run_folder(tmp_path / "tb", {"loss": {1: 3.0, 2: 1.0}})
    (tmp_path / "karat.toml").write_text("[record]\nformat = 'series-json'\n")
    assert record(tmp_path, "tb", "-o", "g.jsonl").code == 0
    assert golden_lines(tmp_path)[0] == {"step": 1, "loss": 3.0}
    assert record(tmp_path, "tb", "-o", "x", "--format", "no-such").code == 2


def golden_lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "g.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_tables_can_be_recorded_too(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("name,accuracy\n\na,pass\n\nb,pass\n")
    (tmp_path / "new.csv").write_text("name,accuracy\na,pass\nb,fail_accuracy\n")
    assert record(tmp_path, "new.csv", "-o", "g.csv").code == 0
    assert (tmp_path / "g.csv").read_text() == "name,accuracy\n\na,pass\n\nb,fail_accuracy\n"
    (tmp_path / "new.csv").write_text("name,accuracy\na,pass\n")
    assert record(tmp_path, "new.csv", "-o", "g.csv").code == 1


@pytest.mark.slow
def test_what_cannot_be_read_is_not_a_difference(tmp_path: Path) -> None:
    result = record(tmp_path, "nothing", "-o", "g.json", "--json", "-")
    assert result.code == 3
    assert kinds(report(result)) == {("cannot-read", "fail")}
    assert "next: ls -ld nothing" in result.err
    (tmp_path / "odd").write_bytes(b"\x00\x01")
    assert record(tmp_path, "odd", "-o", "g.json").code == 1


@pytest.mark.slow
def test_what_was_accepted_is_recorded_in_the_lock(repository: Repository) -> None:
    root = repository.root
    (root / "karat.toml").write_text("[goldens]\npaths = ['tests/**/golden*.json']\n")
    run_folder(root / "tb", {"lm loss": LOSS, "lr": TIME})
    path = "tests/case/golden.json"
    assert record(root, "tb", "-o", path).code == 0
    lock = root / "tests" / "goldens.lock.json"
    assert not lock.exists()  # nobody has begun one, and there is nothing to own up to
    run_folder(root / "short", {"lm loss": up_to(LOSS, 13), "lr": up_to(TIME, 13)})
    done = record(root, "short", "-o", path, "--accept-incomplete", GITHUB_RUN_ID="7")
    assert done.code == 0
    look, take = done.err.splitlines()
    assert look == "next: karat diff --only case/golden.json"
    assert take == f"to take it: git add {path} tests/goldens.lock.json"  # neither without the other
    entry = golden(lock)["case/golden.json"]
    assert (entry["source"], entry["run"], entry["accepted"]) == ("record", "7", "--accept-incomplete")
    run_folder(root / "longer", {"lm loss": LOSS, "lr": TIME, "x": TIME})
    assert record(root / "tests", "../longer", "-o", "case/golden.json", "--metric", "lr").code == 0
    entry = golden(lock)["case/golden.json"]
    assert entry["accepted"] == "--accept-incomplete"
    assert list(entry["metrics"]) == ["lr"]
    assert "accepted" not in entry["metrics"]["lr"]
    assert record(root, "longer", "-o", path).code == 0
    assert "accepted" not in golden(lock)["case/golden.json"]


def test_a_lock_in_conflict_stops_everything(repository: Repository) -> None:
    root = repository.root
    (root / "golden").mkdir()
    (root / "goldens.lock.json").write_text("<<<<<<< ours\n")
    run_folder(root / "tb", {"lm loss": LOSS})
    assert record(root, "tb", "-o", "golden/a.json").code == 3
    assert not (root / "golden" / "a.json").exists()


@pytest.mark.slow
def test_samples_are_no_goldens_to_diff(repository: Repository) -> None:
    root = repository.root
    repository.commit()
    for i in (1, 2):
        run_folder(root / f"run{i}", {"loss": scaled(LOSS, i)}, 1000.0 * i)
    assert record(root, "run1", "run2", "-o", "golden_values.json").code == 0
    found = json.loads(karat("diff", "--json", "-", cwd=root).out)
    assert [file["path"] for file in found["files"]] == ["golden_values.json"]


def test_quiet_is_quiet(tmp_path: Path) -> None:
    lines_file(tmp_path / "a", loss=LOSS)
    result = record(tmp_path, "a", "-o", "g.json", "-q")
    assert (result.code, result.out, result.err) == (0, "", "")
