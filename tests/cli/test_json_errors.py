"""With `--json -`, stdout is one document whatever happens, and it has the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest

from factories.commands import karat_here
from factories.refreshed import ONE, noisy
from factories.repositories import Repository, curves, golden_text
from karat.cli import COMMANDS, cli
from karat.schemas import schema


def reporting() -> Iterator[str]:
    """Every command that takes --json, those of groups as well."""
    context = click.Context(cli)
    for verb in COMMANDS:
        command = cli.get_command(context, verb)
        assert command is not None
        parts = command.list_commands(context) if isinstance(command, click.Group) else [""]
        for part in parts:
            found = command.get_command(context, part) if isinstance(command, click.Group) else command
            assert found is not None
            if any("--json" in param.opts for param in found.params):
                yield f"{verb} {part}".strip()


@pytest.mark.parametrize("verb", list(reporting()))
def test_wrong_usage_is_told_as_json(verb: str, tmp_path: Path) -> None:
    done = karat_here(*verb.split(), "--json", "-", "--no-such-option", cwd=tmp_path)
    told = json.loads(done.out)
    jsonschema.validate(told, schema("karat.error/1"))
    assert (done.code, told["exit_code"]) == (2, 2)
    assert done.out.count("\n") == 1
    assert "no-such-option" in told["error"]


def test_a_second_report_that_cannot_be_written_is_in_the_exit_code(tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "golden.json").write_text(golden_text(curves(1)), encoding="utf-8")
    done = karat_here("diff", "old", "new", "--json", "-", "--html", "/dev/full", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["exit_code"]) == (3, 3)


def test_a_link_to_itself_is_told_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "golden.json").symlink_to("golden.json")
    done = karat_here("record", "golden.json", "-o", "out.json", "--json", "-", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["exit_code"]) in {(1, 1), (3, 3)}
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", ["hunt", "hunt nonsense", "policy nonsense", "nonsense", "store", "policy"])
def test_a_group_and_a_command_that_there_is_not_are_told_as_json(words: str, tmp_path: Path) -> None:
    done = karat_here(*words.split(), "--json", "-", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["exit_code"]) == (2, 2)


@pytest.mark.parametrize(("step", "code"), [("13", 1), (None, 0)])
def test_a_report_has_the_exit_code_of_the_command(step: str | None, code: int, repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    repository.commit()
    repository.write(ONE, golden_text(noisy(1), stop=int(step) if step else None))
    for words, name in ((("diff",), "diff"), (("stage", "--dry-run"), "stage")):
        done = karat_here(*words, "--json", "-", cwd=repository.root)
        report = json.loads(done.out)
        jsonschema.validate(report, schema(f"karat.{name}/1"))
        assert (done.code, report["exit_code"]) == (code, code)
    strict = karat_here("diff", "--fail-on", "none", "--json", "-", cwd=repository.root)
    assert (strict.code, json.loads(strict.out)["exit_code"]) == (0, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "--json", "-", "--html"], "option '--html' requires an argument"),
        (["diff", "--json", "-", "--html", ""], "expected a file for --html, found an empty name"),
    ],
)
def test_an_option_without_its_value_is_told_as_json(words: list[str], said: str, tmp_path: Path) -> None:
    done = karat_here(*words, cwd=tmp_path)
    told = json.loads(done.out)
    assert (done.code, told["exit_code"]) == (2, 2)
    assert told["error"].startswith(said)
    assert told["next"] == f"karat {words[0]} --help"


def test_a_report_that_cannot_be_written_leaves_no_other_on_stdout(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    repository.commit()
    done = karat_here("diff", "--json", "-", "--markdown", "none/x.md", cwd=repository.root)
    assert (done.code, json.loads(done.out)["exit_code"]) == (3, 3)
