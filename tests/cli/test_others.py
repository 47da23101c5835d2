from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from factories.commands import karat
from factories.repositories import Repository
from karat import __version__
from karat.cli import COMMANDS, cli, run


def test_version(tmp_path: Path) -> None:
    for word in ("--version", "-V"):
        assert karat(word, cwd=tmp_path).out == f"karat {__version__}\n"


@pytest.mark.slow
def test_every_verb_has_help_with_an_example(tmp_path: Path) -> None:
    for verb in COMMANDS:
        result = karat(verb, "--help", cwd=tmp_path)
        assert result.code == 0, verb
        assert "Example" in result.out, verb


def test_the_list_of_verbs_says_what_the_verbs_say() -> None:
    for verb, sentence in COMMANDS.items():
        command = cli.get_command(None, verb)  # type: ignore[arg-type]
        assert command is not None
        assert (command.help or "").split("\n\n")[0].split("; ")[0].startswith(sentence.rstrip("."))


def test_an_unknown_verb_is_2(tmp_path: Path) -> None:
    result = karat("dif", cwd=tmp_path)
    assert result.code == 2
    assert "no such command" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("refrsh",), "no such command 'refrsh'; did you mean 'refresh'?\nnext: karat --help\n"),
        (("check",), "missing argument 'ACTUAL...'\nnext: karat check --help\n"),
        (("stage", "x"), "got unexpected extra argument (x)\nnext: karat stage --help\n"),
    ],
)
def test_what_was_mistyped_is_told_in_karat_s_voice(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = karat(*words, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"karat: {said}"


def test_config_shows_values_and_origins(repository: Repository) -> None:
    repository.write("karat.toml", 'preset = "megatron-lm"\n[[rules]]\nmetric = "lm loss"\nnoise = 0.25\n')
    text = karat("config", "--show-origin", "--metric", "lm loss", cwd=repository.root).out
    assert "# preset megatron-lm" in text
    assert "noise = 0.25" in text
    assert "# lm loss, karat.toml" in text


def test_config_json_fits_its_schema(repository: Repository) -> None:
    document = json.loads(karat("config", "--json", cwd=repository.root).out)
    schema = json.loads(karat("schema", "karat.config/1", cwd=repository.root).out)
    jsonschema.validate(document, schema)
    assert document["exit_code"] == 0
    assert json.loads(karat("config", "--json", "-", cwd=repository.root).out) == document
    assert document["rules"]["num-zeros"]["break_mean"] is None, "off is null"


def test_schema_lists_prints_and_refuses(tmp_path: Path) -> None:
    assert {"karat.config/1", "karat.diff/1"} <= set(karat("schema", cwd=tmp_path).out.split())
    assert json.loads(karat("schema", "karat.diff/1", cwd=tmp_path).out)["$id"] == "karat.diff/1"
    assert karat("schema", "karat.nothing/1", cwd=tmp_path).code == 2


def test_an_error_nobody_foresaw_is_cannot_verify(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("karat.schemas.names", lambda: 1 / 0)
    assert run(["schema"]) == 3
    assert "next: " in capsys.readouterr().err


def test_the_group_without_a_verb_shows_help() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(verb in result.output for verb in COMMANDS)
    assert "Exit codes" in result.output
