from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from factories.commands import karat


@pytest.mark.parametrize(
    ("words", "hint"),
    [(("hunt", "statu"), "'status'"), (("policy", "gat"), "'gate'"), (("policy", "covrage"), "'coverage'")],
)
def test_a_misspelt_part_is_guessed(words: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    done = karat(*words, cwd=tmp_path)
    assert done.code == 2
    assert f"karat {words[0]} has no command {words[1]!r}; did you mean {hint}?" in done.err
    assert done.err.endswith(f"next: karat {words[0]} --help\n")


def test_a_file_that_is_called_almost_like_a_part_is_a_hunt(tmp_path: Path) -> None:
    (tmp_path / "report.toml").write_text("stages = []", encoding="utf-8")
    assert "report.toml: expected probe to be set" in karat("hunt", "report.toml", cwd=tmp_path).err


@pytest.mark.slow
def test_without_a_part_hunt_is_run_and_policy_shows_its_help(tmp_path: Path) -> None:
    assert "expected a hunt in hunt.toml, found no such file" in karat("hunt", cwd=tmp_path).err
    shown = karat("policy", cwd=tmp_path)
    assert shown.code == 2
    assert "Usage: karat policy" in shown.out + shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("diff", "--json", "--html"), "expected a value behind --json, found --html"),
        (("diff", "--html", "--htlm"), "found --htlm"),
        (("policy", "gate", "x", "--json", "--complete"), "expected a value behind --json, found --complete"),
    ],
)
def test_an_option_is_no_file_name(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = karat(*words, cwd=tmp_path)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert said in done.err
    assert done.err.rstrip().endswith("--help")


def test_what_follows_two_dashes_is_not_karats(tmp_path: Path) -> None:
    done = karat("hunt", "--", "echo", "--json", "--html", cwd=tmp_path)
    assert "expected a value behind" not in done.err


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("karat hunt ", "plain,split"),
        ("karat hunt my.toml --strat", "plain,--strategy"),
        ("karat policy g", "plain,gate"),
        ("karat policy nonsense --", ""),
        ("karat diff --json --html --to", "plain,--top"),
    ],
)
def test_a_shell_that_completes_a_word_is_offered_commands_and_told_nothing(
    typed: str, offered: str, tmp_path: Path
) -> None:
    at = str(len(typed.split(" ")) - 1)
    done = karat(cwd=tmp_path, _KARAT_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=at)
    assert (done.code, done.err) == (0, "")
    assert offered in done.out.splitlines() or not offered


def test_a_folder_that_was_deleted_is_told_in_a_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; exec "$0" -P -m karat diff --json -'
    done = subprocess.run(["sh", "-c", script, sys.executable], cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (3, 3)
    assert done.stderr.startswith("karat: expected to run in a folder, found that it was deleted meanwhile\n")
