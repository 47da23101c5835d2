from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from factories.hunts import ran, stepped, values_hunt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over nine values, of which one crashes and one cannot be tried; looking changes nothing of it."""
    root = tmp_path_factory.mktemp("ein Ort")
    levels = {**stepped(8, (5, 90.0)), "v002": "crash", "v006": "skip", "other": 90.0}
    values_hunt(root, levels)
    karat_here("hunt", "run", "--strategy", "sweep", "-q", cwd=root)
    return root


@pytest.mark.slow
def test_a_point_with_its_attempts_and_how_to_do_it_by_hand(folder: Path) -> None:
    result = karat_here("hunt", "show", "v002", cwd=folder)
    assert result.code == 0
    assert result.out.startswith("v002  stage 0\n")
    assert "attempt 1: crash  search, every point" in result.out
    assert "signature   ImportError: cannot import name 'x' from 'y'" in result.out
    assert "under test  value = v002" in result.out
    assert "Traceback" not in result.out
    # What it says is what one can type.
    by_hand = result.out.splitlines()[-1].removeprefix("by hand: karat ").split()
    count = len(ran(folder))
    assert karat_here(*by_hand, cwd=folder).code == 1
    assert ran(folder)[count:] == ["v002"]


def test_a_probe_of_several_lines_can_be_pasted(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, {"v0": 1.0, "v1": 1.0})
    program = "for word in one 'two  words'\ndo\n  printf '%s\\t' \"$word\"\ndone; echo speed: 1"
    words = json.dumps(["sh", "-c", program])
    text = file.read_text().replace('["sh", "probe.sh", "{value}"]', words)
    file.write_text(text)
    assert karat_here("hunt", "run", "-q", cwd=tmp_path).code == 0
    script = karat_here("hunt", "try", "v0", "--script", "-", cwd=tmp_path).out
    done = subprocess.run(["sh", "-euc", script], check=True, capture_output=True, cwd=tmp_path)
    assert done.stdout == b"one\ttwo  words\tspeed: 1\n"


def test_its_log_is_printed_without_what_a_terminal_would_obey(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(3))
    (tmp_path / "probe.sh").write_text("printf 'evil \\033[2J\\n\\ttext\\n'; echo speed: 1\n")
    karat_here("hunt", "run", "--max-runs", "1", "-q", cwd=tmp_path)
    result = karat_here("hunt", "show", "v000", "--log", cwd=tmp_path)
    assert "log of attempt 1:\n--- measure run 1: exit code 0" in result.out
    assert "evil \\x1b[2J\n" in result.out
    assert "\x1b" not in result.out


@pytest.mark.slow
def test_as_json_with_logs_where_they_are_wanted(folder: Path) -> None:
    schema = json.loads(karat_here("schema", "karat.hunt-point/1", cwd=folder).out)
    for words, logs in (((), False), (("--log",), True)):
        document = json.loads(karat_here("hunt", "show", "v002", "--json", "-", *words, cwd=folder).out)
        jsonschema.validate(document, schema)
        assert document["exit_code"] == 0
        (attempt,) = document["attempts"]
        assert attempt["attempt"]["outcome"] == "crash"
        assert [c["argv"] for c in attempt["commands"]] == [["sh", "probe.sh", "v002"]]
        assert (attempt["log"] is not None) == logs
        assert "KARAT_VALUE" in attempt["commands"][0]["env"]


def test_the_beginning_of_a_name_is_enough_where_it_is_one_point_s(folder: Path) -> None:
    assert karat_here("hunt", "show", "oth", cwd=folder).out.startswith("other  stage 0\n")
    several = karat_here("hunt", "show", "v00", cwd=folder)
    assert several.code == 2
    assert "found 8 that begin with 'v00': v000, v001" in several.err
    none = karat_here("hunt", "show", "w000", cwd=folder)
    assert (none.code, "none that begins with 'w000'" in none.err) == (2, True)
    stage = karat_here("hunt", "show", "v000", "--stage", "0.1/1", cwd=folder)
    assert (stage.code, "--stage: expected one of 0, found '0.1/1'" in stage.err) == (2, True)
    elsewhere = folder / ".karat/hunt/hunt.hunt"
    result = karat_here("hunt", "show", "v000", "--journal", str(elsewhere), cwd=folder.parent)
    assert result.code == 0


def test_a_point_that_was_not_tried_says_so(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(4))
    karat_here("hunt", "run", "--max-runs", "1", "-q", cwd=tmp_path)
    assert "not tried" in karat_here("hunt", "show", "v002", cwd=tmp_path).out
