from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from factories.captured import capture, identity
from factories.pytest_runs import Ran, Suite
from factories.runners import command_line, doubling, flip, write_module
from karat.replays.options import CommandSpec, ReplayOptions, parse_command, parse_function


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    made = Suite(tmp_path / "project")
    write_module(made.root)
    made.write("test_own.py", "def test_own():\n    raise AssertionError\n")
    doubling(made.root / "bundle")
    return made


def replayed(suite: Suite, how: str | CommandSpec, *words: str, bundle: str = "bundle") -> Ran:
    """As `karat replay --pytest` starts it."""
    options = ReplayOptions(runner=parse_function(how) if isinstance(how, str) else how)
    told = msgspec.json.encode((bundle, options)).decode()
    return suite.run("-p", "karat.replays.pytest_items", "--karat-replay", told, *words)


@pytest.mark.slow
def test_a_session_has_an_item_per_case_and_no_other(suite: Suite) -> None:
    ran = replayed(suite, "runner:run", "-v")
    assert ran.code == 0
    assert ran.count("passed") == 3
    assert "collected 3 items" in ran.out
    assert "test_own" not in ran.out
    assert "bundle::models/portable/" in ran.out


@pytest.mark.slow
def test_a_crash_costs_its_own_item(suite: Suite) -> None:
    ran = replayed(suite, "runner:crash_on_one")
    assert ran.code == 1
    assert (ran.count("failed"), ran.count("passed")) == (1, 2)
    assert "replay-failed: expected runner:crash_on_one to return" in ran.out
    assert "Traceback" not in ran.out
    assert "next: karat replay bundle --run runner:crash_on_one --only models/" in ran.out


@pytest.mark.slow
def test_what_a_program_says_commands_no_log(suite: Suite) -> None:
    suite.write("loud.py", "def run(program, inputs):\n    raise ValueError('a\\r::error::b \\x1b[2J ##vso[x]')\n")
    ran = replayed(suite, "loud:run", "--junit-xml", "out.xml")
    assert "ValueError: a" in ran.out
    assert not any(sign in ran.out for sign in ("\r::", "\x1b[2J", "##vso["))


@pytest.mark.slow
def test_workers_of_xdist_share_the_cases(suite: Suite) -> None:
    ran = replayed(suite, "runner:off", "-n", "2", "--junit-xml", "out.xml")
    assert ran.code == 1
    assert ran.count("failed") == 3
    root = ET.parse(suite.root / "out.xml").getroot()  # noqa: S314 - our own
    cases = root.findall(".//testcase")
    assert len(cases) == 3
    assert {p.get("value") for c in cases for p in c.iter("property") if p.get("name") == "outcome"} == {"mismatch"}


@pytest.mark.slow
def test_selections_of_pytest_hold(suite: Suite) -> None:
    assert replayed(suite, "runner:run", "-k", "portable").count("passed") == 1
    listed = replayed(suite, "runner:nowhere", "--collect-only", "-q")
    assert "3 tests collected" in listed.out


@pytest.mark.slow
def test_a_command_and_a_damaged_case(suite: Suite) -> None:
    flip(min((suite.root / "bundle").rglob("expected.safetensors")), -1)
    line = command_line(suite.root)
    ran = replayed(suite, parse_command(line, suite.root))
    assert (ran.count("failed"), ran.count("passed")) == (1, 2)
    assert "bundle-damaged" in ran.out
    assert "the case was not run" in ran.out


@pytest.mark.slow
def test_a_mistake_is_told_in_a_line(suite: Suite) -> None:
    ran = replayed(suite, "runner:rum")
    assert ran.code == 4
    assert "has no attribute 'rum'" in ran.out
    assert "Traceback" not in ran.out


@pytest.mark.slow
def test_an_empty_bundle_is_no_success(suite: Suite) -> None:
    (suite.root / "empty").mkdir()
    assert replayed(suite, "runner:run", bundle="empty").code == 5


@pytest.mark.slow
def test_how_close_a_passing_case_was_is_kept(suite: Suite) -> None:
    suite.write("plain.py", "def run(program, inputs):\n    return {'doubled': 2 * inputs[0]}\n")
    capture(suite.root / "one", identity("test_one"), inputs=(1,), expected={"doubled": 2})
    ran = replayed(suite, "plain:run", "-rA", bundle="one")
    assert ran.code == 0
    assert "karat replay" in ran.out
    assert "expected/doubled int64 scalar: outside 0" in ran.out
