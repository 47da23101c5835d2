from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from factories.repositories import Repository
from karat.cli import COMMANDS
from karat.cli.setup.help import TOPICS
from karat.schemas import schema


def test_the_commands_are_grouped(tmp_path: Path) -> None:
    text = karat_here("--help", cwd=tmp_path).out
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Goldens:", "Bundles:", "Gradients:", "Regressions:", "Setup:"]


@pytest.mark.parametrize("name", ["push", "pull", "ls", "pin", "gc"])
def test_a_command_of_the_store_has_two_names(name: str, tmp_path: Path) -> None:
    one, two = (karat_here(*words, "--help", cwd=tmp_path).out for words in ((name,), ("store", name)))
    assert one.replace(f"karat {name}", "") == two.replace(f"karat store {name}", "").replace(f"karat {name}", "")
    assert "Example" in one


def test_help_explains_topics_kinds_and_commands(tmp_path: Path) -> None:
    assert "cannot verify" in karat_here("help", "exit-codes", cwd=tmp_path).out
    assert "stopped before its last step" in karat_here("help", "truncated", cwd=tmp_path).out
    assert "Usage: karat hunt split" in karat_here("help", "hunt", "split", cwd=tmp_path).out
    assert all(topic in karat_here("help", cwd=tmp_path).out for topic in TOPICS)
    wrong = karat_here("help", "trunc", cwd=tmp_path)
    assert (wrong.code, "did you mean 'truncated'?" in wrong.err) == (2, True)


def test_the_manual_page_has_every_command_and_man_can_read_it(tmp_path: Path) -> None:
    page = karat_here("help", "--man", cwd=tmp_path).out
    assert [name for name in COMMANDS if f".SS {name.replace('-', chr(92) + '-')}\n" not in page] == []
    if (groff := shutil.which("groff")) is not None:
        done = subprocess.run([groff, "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True, check=True)
        assert "karat" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("chek", "--json", "-"), 2),
        (("diff", "--nothing", "--json=-"), 2),
        (("diff", "nothing-here", "--json", "-"), 2),
        (("check", "--json", "-"), 2),
        (("hunt", "statu", "--json", "-"), 2),
        (("verify", "nothing-here", "--json", "-"), None),
        (("config", "--json", "--preset", "nobody"), 2),
        (("hunt", "report", "--json", "-"), None),
    ],
)
def test_a_program_that_asked_for_json_gets_it_whatever_happens(
    words: tuple[str, ...], code: int | None, tmp_path: Path
) -> None:
    result = karat_here(*words, cwd=tmp_path)
    document = json.loads(result.out)
    assert document["exit_code"] == result.code != 0
    assert code in {None, result.code}
    if document["schema"] == "karat.error/1":
        jsonschema.validate(document, schema("karat.error/1"))
        assert document["error"] in result.err
        assert document["next"] in result.err


def test_words_after_two_dashes_are_somebody_else_s(tmp_path: Path) -> None:
    assert karat_here("hunt", "--comits", "--", "tool", "--json", "-", cwd=tmp_path).out == ""


def test_json_on_stdout_is_one_line_and_can_be_short(repository: Repository) -> None:
    for number in range(9):
        repository.write(f"g/{number}/golden_values.json", '{"lm loss": {"values": {"1": 1.0}}}')
    repository.commit("goldens")
    for number in range(9):
        repository.write(f"g/{number}/golden_values.json", '{"lm loss": {"values": {"1": 2.0}}}')
    whole = karat_here("diff", "--json", "-", cwd=repository.root)
    short = karat_here("diff", "--json", "-", "--json-limit", "2", cwd=repository.root)
    assert whole.out.count("\n") == short.out.count("\n") == 1
    assert len(json.loads(whole.out)["files"]) == 9
    assert len(json.loads(short.out)["files"]) == 2
    assert json.loads(short.out)["left_out"]["files"] == 7
    karat_here("diff", "--json", "all.json", "--json-limit", "2", cwd=repository.root)
    assert len(json.loads((repository.root / "all.json").read_text(encoding="utf-8"))["files"]) == 9


def test_an_option_is_no_file_name(repository: Repository) -> None:
    for option in ("--html", "-q"):
        result = karat_here("diff", "--json", option, cwd=repository.root)
        assert result.code == 2
        assert f"expected a value behind --json, found {option}" in result.err
        assert not (repository.root / option).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "offered"), [("karat li", "plain,lint"), ("karat diff --cach", "plain,--cached")])
def test_a_shell_is_told_how_a_word_goes_on(typed: str, offered: str, tmp_path: Path) -> None:
    count = str(len(typed.split()) - 1)
    env = {**os.environ, "_KARAT_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": count}
    words = [sys.executable, "-c", "from karat.cli import run; run()"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [offered]
    assert "bash_source" in karat_here("help", "completion", cwd=tmp_path).out
