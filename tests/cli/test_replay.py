from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from factories.captured import capture, identity
from factories.commands import karat
from factories.runners import command_line, doubling, write_module

SCHEMA = json.loads(resources.files("karat").joinpath("schemas", "karat.replay.1.json").read_text(encoding="utf-8"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_module(tmp_path)
    doubling(tmp_path / "bundle")
    return tmp_path


@pytest.mark.slow
def test_a_match_is_a_table_and_exit_0(here: Path) -> None:
    done = karat("replay", "bundle", "--run", "runner:run", cwd=here)
    assert done.code == 0, done.err
    assert "3 cases: 3 match; 3 values compared" in done.out
    assert "SQNR dB" in done.out
    assert done.err == ""


@pytest.mark.slow
def test_a_mismatch_is_exit_1_and_ends_with_a_command_that_runs(here: Path) -> None:
    done = karat("replay", "bundle", "--run", "runner:off", cwd=here)
    assert done.code == 1
    assert "tensor-mismatch" in done.out
    last = done.err.splitlines()[-1].removeprefix("next: karat ").split()
    again = karat(*last, cwd=here)
    assert again.code == 1
    assert "1 case: 1 mismatch" in again.out
    assert (here / "replayed").is_dir()


@pytest.mark.slow
def test_json_is_as_the_schema_says_and_junit_as_ci_reads_it(here: Path) -> None:
    words = ("--run", "runner:crash_on_one", "-q", "--json", "r.json", "--junit", "r.xml", "-j", "2")
    done = karat("replay", "bundle", *words, cwd=here)
    assert (done.code, done.out, done.err) == (1, "", "")
    document = json.loads((here / "r.json").read_bytes())
    jsonschema.validate(document, SCHEMA)
    assert document["totals"]["outcomes"] == {"damaged": 0, "failed": 1, "mismatch": 0, "not-compared": 0, "match": 2}
    assert document["exit_code"] == 1
    root = ET.parse(here / "r.xml").getroot()  # noqa: S314 - our own
    assert (root.get("tests"), root.get("errors"), root.get("failures")) == ("3", "1", "0")
    (error,) = root.iter("error")
    assert error.get("type") == "replay-failed"


@pytest.mark.slow
def test_mismatches_are_failures_of_junit(here: Path) -> None:
    done = karat("replay", "bundle", "--run", "runner:off", "--junit", "-", cwd=here)
    root = ET.fromstring(done.out)  # noqa: S314 - our own
    assert root.get("failures") == "3"
    assert {suite.get("name") for suite in root} == {"models/portable", "models/xnnpack"}


@pytest.mark.slow
def test_a_command_is_replayed_with_json_on_stdout(here: Path) -> None:
    line = command_line(here)
    done = karat("replay", "bundle", "--command", line, "--only", "models/portable", "--json", "-", cwd=here)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    jsonschema.validate(document, SCHEMA)
    assert [case["flow"] for case in document["cases"]] == ["portable"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bundle",), "found neither"),
        (("bundle", "--run", "runner:run", "--command", "x {outputs}"), "found both"),
        (("bundle", "--run", "runner:rum"), "has no attribute 'rum'"),
        (("bundle", "--run", "runer:run"), "No module named 'runer'"),
        (("bundle", "--run", "runner.run"), "expected --run module:function"),
        (("bundel", "--run", "runner:run"), "bundel"),
        (("bundle", "more", "--run", "runner:run"), "expected one BUNDLE"),
        (("bundle", "--run", "runner:run", "--json", "-", "--junit", "-"), "at most one report"),
        (("bundle", "--run", "runner:run", "--pytest", "--json", "x"), "found both"),
        (("bundle", "--command", "nowhere-at-all {outputs}"), "there is no such file"),
    ],
)
def test_a_mistake_is_exit_2_with_the_next_command(words: tuple[str, ...], said: str, here: Path) -> None:
    done = karat("replay", *words, cwd=here)
    assert done.code == 2, done.err
    assert said in done.err
    assert "\nnext: " in done.err


def test_nothing_chosen_is_exit_3(here: Path) -> None:
    done = karat("replay", "bundle", "--run", "runner:run", "--only", "model", cwd=here)
    assert done.code == 3
    assert "expected a case that matches model, found none among 3" in done.out


@pytest.mark.slow
def test_a_page_saved_as_a_zip_is_no_bundle(here: Path) -> None:
    (here / "b.zip").write_text("<!doctype html><title>404</title>", encoding="utf-8")
    done = karat("replay", "b.zip", "--run", "runner:run", cwd=here)
    assert done.code == 1
    assert "b.zip" in done.err


@pytest.mark.slow
def test_what_cannot_be_opened_is_a_report_too(here: Path) -> None:
    (here / "b.zip").write_text("<!doctype html><title>404</title>", encoding="utf-8")
    for word, kind, code in (("b.zip", "not-a-bundle", 1), ("store:a/b", "reference-missing", 3)):
        words = ("replay", word, "--run", "runner:run", "--store", "store")
        (here / "junit.xml").write_text("of the day before")
        done = karat(*words, "--junit", "junit.xml", "--json", "-", cwd=here)
        told = json.loads(done.out)
        jsonschema.validate(told, SCHEMA)
        assert (done.code, told["exit_code"], told["findings"][0]["kind"]) == (code, code, kind)
        root = ET.parse(here / "junit.xml").getroot()  # noqa: S314 - karat's own
        assert (root.get("tests"), root.get("errors")) == ("1", "1")


@pytest.mark.slow
def test_names_of_strangers_reach_no_terminal_and_no_xml_raw(here: Path) -> None:
    capture(here / "odd", identity("test_\x1b[31m<&\x00>"), inputs=(1,), expected={"doubled": 2})
    done = karat("replay", "odd", "--run", "runner:lost", "--junit", "o.xml", cwd=here)
    assert "\x1b" not in done.out + done.err
    assert ET.parse(here / "o.xml").getroot().get("tests") == "1"  # noqa: S314 - our own


@pytest.mark.slow
def test_as_a_pytest_session(here: Path) -> None:
    # Other people's plugins take longer to load than this to run.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p karat.captures.plugin"}
    words = ("replay", "bundle", "--run", "runner:run", "--only", "models/portable", "--pytest")
    done = karat(*words, "--", "-v", "-p", "no:cacheprovider", cwd=here, **alone)
    assert done.code == 0, done.out
    assert "1 passed" in done.out
    wrong = karat("replay", "bundle", "--run", "runner:rum", "--pytest", cwd=here, **alone)
    assert wrong.code == 2


@pytest.mark.slow
def test_two_replays_at_once_keep_apart(here: Path) -> None:
    words = [sys.executable, "-m", "karat", "replay", "bundle", "--run", "runner:of_program", "-q"]
    both = [subprocess.Popen(words, cwd=here) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]


@pytest.mark.slow
def test_an_interrupted_replay_leaves_nothing_running(here: Path) -> None:
    code = (
        "import os, time\ndef run(program, inputs):\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
    )
    (here / "slow.py").write_text(code, encoding="utf-8")
    words = [sys.executable, "-m", "karat", "replay", "bundle", "--run", "slow:run"]
    process = subprocess.Popen(words, cwd=here, stdout=subprocess.DEVNULL)
    pid = here / "pid"
    until = time.monotonic() + 20
    while not (pid.exists() and pid.read_text(encoding="utf-8")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert not Path(f"/proc/{pid.read_text(encoding='utf-8')}").exists()


@pytest.mark.parametrize("option", ["--rtol", "--atol"])
@pytest.mark.parametrize("given", ["nan", "inf"])
def test_a_tolerance_that_is_no_number_is_2(here: Path, option: str, given: str) -> None:
    done = karat("replay", "bundle", "--run", "runner:run", option, given, cwd=here)
    assert done.code == 2
    assert f"{option}: expected a finite number >= 0, found {given}" in done.err
