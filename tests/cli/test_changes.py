from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.commands import Outcome, karat, karat_here
from factories.nightly_logs import CRASHED, SIGNATURE, grepped, write_nights
from factories.repositories import Repository

SCHEMA = json.loads((Path(__file__).parents[2] / "src/karat/schemas/karat.changes.1.json").read_text())
METRIC = "MLUPS: ([0-9.]+)"
CALM = "".join(f"{n},{10 + n % 3 / 100}\n" for n in range(1, 31))
WORSE = CALM + "".join(f"{n},{8 + n % 3 / 100}\n" for n in range(31, 61))


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    return write_nights(tmp_path / "nights")


def changes(where: Path, *words: str, **more: Any) -> Outcome:
    return karat_here("changes", *words, cwd=where, **more)


def document(result: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.out)
    jsonschema.validate(found, SCHEMA)
    assert found["exit_code"] == result.code
    return found


def table(where: Path, rows: str, header: str = "build,speed\n") -> Path:
    (where / "s.csv").write_text(header + rows)
    return where


def test_the_document_s_nights_as_json(nights: Path) -> None:
    result = changes(nights, "--logs", "OUT-*", "--metric", METRIC, "--better", "higher", "--json", "-")
    assert result.code == 1
    (series,) = document(result)["series"]
    assert [(step["last_good"], step["first_bad"]) for step in series["steps"]] == [
        ("07-10", "07-17"),
        ("07-19", "07-20"),
        ("07-21", "07-25"),
        ("08-24", "08-26"),
    ]
    assert (series["steps"][3]["earliest"], series["steps"][3]["latest"]) == ("08-24", "08-26")
    named = [(c["kind"], c["first"], c["signature"]) for c in series["changes"] if c["kind"] != "gap"]
    assert named == [
        ("dip", "07-17", ""),
        ("regression", "07-25", ""),
        ("crash", CRASHED, SIGNATURE),
        ("regression", "08-26", ""),
    ]
    assert result.err.splitlines()[-1] == "next: karat hunt init"


def test_the_document_s_nights_in_a_terminal(nights: Path) -> None:
    result = changes(nights, "--logs", "OUT-*", "--metric", METRIC, "--better", "higher")
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[0] == "MLUPS  OUT-*: 60 values, 1 crashed, 16 missing, 07-06 … 09-20, higher is better"
    assert lines[1].startswith("  █████······▆▆▆██···▇▇▇▇▇▇·")
    assert lines[2] == "             ▲  ▲    ▲                               ▲"
    assert any("−7.03%" in line and "last good 08-24, first bad 08-26 (1 crashed between)" in line for line in lines)
    assert lines[-1] == "1 series: 2 regressions, 1 dip, 1 crash, 8 gaps"


@pytest.mark.slow
def test_a_shell_may_spell_out_the_glob_or_grep_them(nights: Path) -> None:
    logs = sorted(path.name for path in nights.iterdir())
    spelled = changes(nights, "--logs", *logs, "--metric", METRIC, "--json", "-")
    words = ("changes", "-", "--metric", METRIC, "--json", "-")
    piped = karat(*words, cwd=nights, stdin=grepped())  # a real pipe
    folder = changes(nights.parent, "nights", "--metric", METRIC, "--json", "-")
    steps = [document(result)["series"][0]["steps"] for result in (spelled, piped, folder)]
    assert len(steps[0]) == 4
    assert steps[0] == steps[1] == steps[2]


def test_exit_codes_say_what_was_found(tmp_path: Path) -> None:
    table(tmp_path, WORSE, "build,plain\n")
    assert changes(tmp_path, "s.csv").code == 0, "nobody said that lower is worse"
    assert changes(tmp_path, "s.csv", "--fail-on", "level-shifted").code == 1
    table(tmp_path, WORSE)
    by_name = changes(tmp_path, "s.csv")
    assert by_name.code == 1
    assert "note: higher is taken to be better for `speed`, by name or unit; --better says otherwise" in by_name.out
    assert changes(tmp_path, "s.csv", "--better", "higher").code == 1
    assert changes(tmp_path, "s.csv", "--better", "speed=higher").code == 1
    assert changes(tmp_path, "s.csv", "--better", "lower").code == 0
    assert changes(tmp_path, "s.csv", "--better", "higher", "--fail-on", "none").code == 0
    assert changes(tmp_path, "s.csv", "--better", "higher", "--smallest", "30%").code == 0
    assert changes(tmp_path, "s.csv", "--better", "higher", "--since", "31").code == 0


def test_online_asks_about_the_newest(tmp_path: Path) -> None:
    words = ("s.csv", "--better", "higher", "--online")
    table(tmp_path, WORSE)
    assert changes(tmp_path, *words).code == 0, "that was long ago"
    table(tmp_path, "".join(WORSE.splitlines(keepends=True)[:33]))
    result = changes(tmp_path, *words, "--json", "-")
    assert result.code == 1
    newest = document(result)["series"][0]["newest"]
    assert (newest["verdict"], newest["step"]["first_bad"]) == ("change", "31")
    assert "next: " in result.err


@pytest.mark.parametrize(
    ("rows", "said"),
    [("1,nan\n2,nan\n", "2 crash"), ("1,\n2,3\n", "expected at least 5 points"), ("1,2\n2,3\n", "expected at least 5")],
)
def test_nothing_compared_is_3_and_never_0(tmp_path: Path, rows: str, said: str) -> None:
    result = changes(table(tmp_path, rows), "s.csv")
    assert result.code == 3
    assert said in result.out + result.err
    assert result.err.splitlines()[-1].startswith("next: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected a SERIES, --logs or --golden"),
        (("s.csv", "--metric", "sped"), "did you mean 'speed'"),
        (("s.csv", "--better", "more"), "expected --better to be higher, lower or equal"),
        (("s.csv", "--better", "sped=higher"), "expected --better to name a metric of the series, found 'sped'"),
        (("s.csv", "--smallest", "much"), "expected --smallest to be a size"),
        (("s.csv", "--smallest", "-1%"), "expected --smallest to be a size"),
        (("s.csv", "--step", "first"), "expected --step to be last, mean or a step's number"),
        (("s.csv", "--since", "tomorrow"), "expected --since to be a label or a moment"),
        (("s.csv", "--fail-on", "nothing"), "nothing-rebuilt'?\nnext: karat changes --help"),
        (("s.csv", "--false-alarms", "0"), "false-alarms"),
        (("s.csv", "--json", "x", "--html", "x"), "at most one report on x"),
        (("s.csv", "--step", "3"), "expected --golden for --step, found none"),
        (("--logs", "*", "--metric", "(1)", "--x", "a"), "expected a table for --x, found none"),
        (("/dev/zero",), "expected /dev/zero to be a file, found a device or a pipe; - reads from stdin"),
        (("--logs", "OUT-*"), "expected --metric to say where the number is"),
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = changes(table(tmp_path, CALM), *words)
    assert result.code == 2
    assert said in result.err
    assert result.err.splitlines()[-1].startswith("next: ")
    assert result.out == ""


def test_what_cannot_be_read_is_3(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\x7fELF\0\1\2")
    for name in ("b", "none.csv"):
        result = changes(tmp_path, name)
        assert result.code == 3
        assert result.err.startswith("karat: expected ")


def test_reports_go_where_they_are_asked_to(tmp_path: Path) -> None:
    table(tmp_path, WORSE)
    result = changes(tmp_path, "s.csv", "--better", "higher", "-q", "--json", "c.json", "--html", "-")
    assert result.code == 1
    assert result.out.startswith("<!doctype html>")
    jsonschema.validate(json.loads((tmp_path / "c.json").read_text()), SCHEMA)
    assert result.err == ""


def test_a_golden_s_history(repository: Repository) -> None:
    for n in range(12):
        loss = 9.5 if n < 6 else 9.9
        values = {"1": 11.0, "2": loss + n % 3 / 1000}
        block = {"start_step": 1, "end_step": 2, "step_interval": 1, "values": values}
        repository.write("a golden.json", json.dumps({"lm loss": block}))
        repository.commit()
    words = ("--golden", "a golden.json", "--metric", "lm loss", "--better", "lower")
    result = changes(repository.root, *words)
    assert result.code == 1
    assert "regression" in result.out
    next_words = shlex.split(result.err.splitlines()[-1].removeprefix("next: "))
    assert next_words[:2] == ["karat", "diff"]
    assert next_words[-2:] == ["--only", "a golden.json"], "the change is of this one"
    followed = karat_here(*next_words[1:], cwd=repository.root)
    assert "lm loss" in followed.out
    assert followed.code in {0, 1}, "the advice can be followed"
    assert changes(repository.root, *words, "--step", "1").code == 0


def test_what_a_file_holds_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    rows = "".join(f"b\x1b[31m{n},{10 - n // 20}\n" for n in range(40))
    table(tmp_path, rows + "\x1b]0;x\x07,nan\n", header="build,spe\x1b[31med\n")
    for words in ((), ("--html", "-"), ("--json", "-")):
        result = changes(tmp_path, "s.csv", *words)
        assert result.out
        assert "\x1b" not in result.out + result.err


def test_help_is_quick_and_has_examples(tmp_path: Path) -> None:
    result = changes(tmp_path, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert "Find level changes, crashes and gaps in a series." in result.out
