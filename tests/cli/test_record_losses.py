"""What recording must not lose: columns, keys, metrics, samples, provenance."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from factories.commands import Outcome, karat
from factories.event_files import event_file, run_folder, scalar_event
from factories.repositories import Repository

EXPECTED = "benchmark,metric,expected,noise_margin\na,count,100,0.1\nb,count,200,0.05\n"
HEADERLESS = "a,count,100,0.1\n\n\nb,count,200,0.05\n"
RESULT = "benchmark,metric,value\na,count,101\nb,count,205\n"


def record(folder: Path, *words: str) -> Outcome:
    return karat("record", *words, cwd=folder)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def lines(path: Path, *records: dict[str, object]) -> Path:
    return write(path, "".join(json.dumps(one) + "\n" for one in records))


def test_a_plain_result_leaves_the_margins_of_an_expectation(tmp_path: Path) -> None:
    write(tmp_path / "res.csv", "a,count,101\nb,count,205\nc,count,7\n")
    write(tmp_path / "expected.csv", HEADERLESS)
    result = record(tmp_path, "res.csv", "-o", "expected.csv")
    assert result.code == 0, result.out
    text = (tmp_path / "expected.csv").read_text()
    assert text.split() == ["a,count,101,0.1", "b,count,205,0.05", "c,count,7,"]
    assert "a,count,101,0.1\n\n\nb" in text


@pytest.mark.slow
def test_a_result_by_other_names_is_refused_until_they_are_told(tmp_path: Path) -> None:
    write(tmp_path / "res.csv", RESULT)
    golden = write(tmp_path / "expected.csv", EXPECTED)
    result = record(tmp_path, "res.csv", "-o", "expected.csv")
    assert result.code == 1
    assert golden.read_text() == EXPECTED
    write(tmp_path / "karat.toml", "[check]\ncolumns = { value = 'expected' }\n")
    assert record(tmp_path, "res.csv", "-o", "expected.csv").code == 0
    assert golden.read_text() == EXPECTED.replace("100", "101").replace("200", "205")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (HEADERLESS, "a,101\nb,205\n", "structure-changed"),
        ("name,accuracy,breaks\na,pass,1\n", "name,accuracy\na,pass\n", "lost-metric"),
        ('{"a": {"x": 1, "y": 2}}', '{"a": {"x": 1}}', "structure-changed"),
        ('{"a": [1, 2]}', '{"a": [1]}', "structure-changed"),
        ("name,accuracy\na,pass\n", '{"a": [1]}', "type-changed"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path: Path, old: str, new: str, kind: str) -> None:
    golden = write(tmp_path / "golden", old)
    write(tmp_path / "result", new)
    result = record(tmp_path, "result", "-o", "golden")
    assert (result.code, golden.read_text()) == (1, old)
    assert f"fail  {kind}: " in result.out
    (take,) = [line for line in result.err.splitlines() if line.startswith("to take it: ")]
    words = shlex.split(take.removeprefix("to take it: "))
    assert words[:3] == ["karat", "record", "--accept-incomplete"]
    if kind != "type-changed":
        assert karat(*words[1:], cwd=tmp_path).code == 0
        assert golden.read_text() != old


def test_a_document_may_gain_keys(tmp_path: Path) -> None:
    write(tmp_path / "golden", '{"a": 1}')
    write(tmp_path / "result", '{"a": 1, "b": 2}')
    assert record(tmp_path, "result", "-o", "golden").code == 0


@pytest.mark.slow
def test_a_golden_of_nothing_is_never_made(tmp_path: Path) -> None:
    lines(tmp_path / "run", {"step": 1, "loss": 1.5}, {"step": 2, "loss": 1.25})
    for text, more in (("", []), ("", ["--accept-incomplete"]), ("interval = 5\n", [])):
        write(tmp_path / "karat.toml", f"[record]\nstart = 10\n{text}")
        result = record(tmp_path, "run", "-o", "g.json", *more)
        assert result.code == 1
        assert "expected a finite value among the steps to keep" in result.out
        assert not (tmp_path / "g.json").exists()


@pytest.mark.slow
def test_a_counter_gone_wrong_does_not_fill_the_memory(tmp_path: Path) -> None:
    lines(tmp_path / "run", {"step": 1, "loss": 1.5}, {"step": 2**62, "loss": 1.25})
    write(tmp_path / "karat.toml", "[record]\ninterval = 1\n")
    result = record(tmp_path, "run", "-o", "g.json")
    assert result.code == 1
    assert "expected at most 10,000,000 steps" in result.out


@pytest.mark.slow
def test_every_metric_asked_for_is_taken_or_missed(tmp_path: Path) -> None:
    lines(tmp_path / "whole", {"step": 1, "loss": 1.5, "lr": 1.0}, {"step": 2, "loss": 1, "lr": 1})
    lines(tmp_path / "less", {"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.0})
    assert record(tmp_path, "whole", "-o", "g.json").code == 0
    before = (tmp_path / "g.json").read_bytes()
    typo = record(tmp_path, "less", "-o", "g.json", "--metric", "loss", "--metric", "mem-*")
    assert (typo.code, "--metric mem-*: expected a metric" in typo.err) == (2, True)
    gone = record(tmp_path, "less", "-o", "g.json", "--metric", "l*")
    assert gone.code == 1
    assert 'expected "lr", which --metric asks for and the golden has' in gone.out
    assert (tmp_path / "g.json").read_bytes() == before
    assert record(tmp_path, "less", "-o", "g.json", "--metric", "loss").code == 0


@pytest.mark.slow
def test_what_is_a_golden_already_is_taken_as_it_is(tmp_path: Path) -> None:
    values = {str(step): step / 7 for step in range(1, 11)}
    block = {"start_step": 1, "end_step": 10, "step_interval": 1, "values": values}
    write(tmp_path / "run.json", json.dumps({"loss": block, "lr": block}))
    write(tmp_path / "karat.toml", "[record]\nprecision = 1\nsteps = 10\n")
    assert record(tmp_path, "run.json", "-o", "g.json").code == 0
    assert json.loads((tmp_path / "g.json").read_text())["loss"]["values"] == values


@pytest.mark.slow
def test_a_golden_format_that_is_short_is_a_short_run_too(tmp_path: Path) -> None:
    block = {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": 1.0, "2": 2.0}}
    write(tmp_path / "run.json", json.dumps({"loss": block}))
    write(tmp_path / "karat.toml", "[record]\nsteps = 3\n")
    result = record(tmp_path, "run.json", "-o", "g.json")
    assert (result.code, "fail  short-run: " in result.out) == (1, True)


def test_the_run_that_was_named_is_read_and_those_below_are_told(tmp_path: Path) -> None:
    run_folder(tmp_path / "tb", {"loss": {1: 2.5, 2: 2.0}})
    run_folder(tmp_path / "tb" / "hparams", {"acc": {0: 0.5}})
    result = record(tmp_path, "tb", "-o", "g.json")
    assert result.code == 0
    assert list(json.loads((tmp_path / "g.json").read_text())) == ["loss"]
    assert "1 other run below it was not: hparams" in result.out


def test_a_restart_inside_one_file_that_died_is_a_short_run(tmp_path: Path) -> None:
    steps = [*range(1, 9), 4, 5]
    event_file(tmp_path / "e", [scalar_event("loss", s, i) for i, s in enumerate(steps)])
    result = record(tmp_path, "e", "-o", "g.json", "--steps", "8")
    assert result.code == 1
    assert "found the last finite value at step 5" in result.out


@pytest.mark.slow
def test_a_pattern_without_end_is_called_off(tmp_path: Path) -> None:
    write(tmp_path / "karat.toml", "[record.log]\nstep = 'step (\\d+)'\nloss = '(a+)+b'\n")
    write(tmp_path / "x.log", "step 1 " + "a" * 60 + "\n")
    result = record(tmp_path, "x.log", "-o", "g.json")
    assert result.code == 1
    assert 'expected the pattern of "loss" to be done with line 1' in result.out
    assert "next: edit karat.toml  # the pattern of loss" in result.err


def test_advice_quotes_odd_names(tmp_path: Path) -> None:
    result = record(tmp_path, "a b's", "-o", "g.json")
    assert shlex.split(result.err.removeprefix("next: ")) == ["ls", "-ld", "a b's"]


@pytest.mark.slow
def test_a_link_and_stdout_are_no_goldens(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lines(tmp_path / name, {"step": 1, "loss": 1.5}, {"step": 2, "loss": len(name)})
    (tmp_path / "link.json").symlink_to("g.json")
    assert record(tmp_path, "a", "b", "-o", "link.json").code == 2
    assert record(tmp_path, "a", "-o", "-").code == 2
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "link.json"}


@pytest.mark.slow
def test_the_same_run_twice_is_a_mistake(tmp_path: Path) -> None:
    lines(tmp_path / "a", {"step": 1, "loss": 1.5}, {"step": 2, "loss": 1})
    assert record(tmp_path, "a", "./a", "-o", "g.json").code == 2


@pytest.mark.slow
def test_a_lock_that_a_killed_record_left_behind_is_completed(repository: Repository) -> None:
    root = repository.root
    run_folder(root / "tb", {"loss": {1: 2.5, 2: 2.0}})
    lock = root / "goldens.lock.json"
    assert record(root, "tb", "-o", "golden_values.json").code == 0
    assert record(root, "tb", "-o", "golden_values.json").code == 0
    assert not lock.exists()
    run_folder(root / "short", {"loss": {1: 2.5}})
    assert record(root, "short", "-o", "golden_values.json", "--accept-incomplete").code == 0
    behind = lock.read_text()
    assert record(root, "tb", "-o", "golden_values.json").code == 0
    whole = lock.read_text()
    lock.write_text(behind)  # as if the process had died before its last write
    again = record(root, "tb", "-o", "golden_values.json")
    assert (again.code, "noted where it came from" in again.out) == (0, True)
    assert lock.read_text() == whole
    assert "noted" not in record(root, "tb", "-o", "golden_values.json").out


@pytest.mark.slow
def test_several_at_once_lose_no_sample(repository: Repository) -> None:
    root = repository.root
    for i in range(6):
        run_folder(root / f"run{i}", {"loss": {1: 2.5, 2: 2.0 + i}}, 1000.0 + i)
    assert record(root, "run0", "run1", "-o", "golden_values.json").code == 0
    command = [sys.executable, "-m", "karat", "record"]
    started = [
        subprocess.Popen([*command, f"run{i}", "-o", "golden_values.json", "-q"], cwd=root, text=True)
        for i in range(2, 6)
    ]
    assert [process.wait() for process in started] == [0] * 4
    held = json.loads((root / "golden_values.samples.json").read_text())
    assert sorted(run["name"] for run in held["runs"]) == [f"run{i}" for i in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["<<<<<<< a\n{}\n=======\n{}\n>>>>>>> b\n", "print('hello')\n"])
def test_what_cannot_be_read_is_not_written_over(tmp_path: Path, text: str) -> None:
    lines(tmp_path / "run", {"step": 1, "loss": 1.5}, {"step": 2, "loss": 1})
    golden = write(tmp_path / "g.json", text)
    result = record(tmp_path, "run", "-o", "g.json")
    assert (result.code, golden.read_text()) == (3, text)
    assert "fail  no-baseline: the old golden is unreadable" in result.out
    assert "taken without" not in result.out
    assert record(tmp_path, "run", "-o", "g.json", "--accept-incomplete").code == 0


@pytest.mark.slow
def test_an_empty_file_is_no_golden_yet(tmp_path: Path) -> None:
    lines(tmp_path / "run", {"step": 1, "loss": 1.5}, {"step": 2, "loss": 1})
    write(tmp_path / "g.json", "\n")
    assert record(tmp_path, "run", "-o", "g.json").code == 0
    assert record(tmp_path, "run", "-o", "g.samples.json").code == 2


@pytest.mark.slow
def test_samples_of_another_curve_are_told(tmp_path: Path) -> None:
    for i in range(4):
        lines(tmp_path / f"r{i}", {"step": 1, "loss": 1.5}, {"step": 2, "loss": 1 + 1e-6 * i})
    lines(tmp_path / "moved", {"step": 1, "loss": 3.5}, {"step": 2, "loss": 3})
    assert record(tmp_path, "r0", "r1", "r2", "-o", "g.json").code == 0
    warning = "3 earlier samples are of the curve before"
    assert warning not in record(tmp_path, "r3", "-o", "g.json", "--dry-run").out
    assert warning in record(tmp_path, "moved", "-o", "g.json", "--dry-run").out
    forgotten = record(tmp_path, "moved", "-o", "g.json", "--replace-samples")
    assert "earlier sample" not in forgotten.out
