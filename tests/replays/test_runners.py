from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.replays.options import (
    PLACEHOLDERS,
    Command,
    Function,
    filled,
    parse_command,
    parse_function,
    uses,
)


def test_a_function_is_a_module_and_a_name() -> None:
    assert parse_function("pkg.runner:Model.run") == Function(module="pkg.runner", name="Model.run")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("runner.run", "did you mean runner:run?"),
        ("./runner.py:run", "did you mean runner:run?"),
        ("sub/runner.py", "did you mean sub.runner:function?"),
        ("runner", "found 'runner'"),
        ("runner:", "found 'runner:'"),
        (":run", "found ':run'"),
        ("a b:c", "found 'a b:c'"),
    ],
)
def test_what_is_no_function_is_told_with_what_was_meant(word: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_function(word)
    assert meant in str(caught.value)


def test_a_command_is_split_as_a_shell_would_and_never_run_by_one(tmp_path: Path) -> None:
    command = parse_command("cat '{inputs}/a b' {outputs} '; rm -rf /' $(boom)", tmp_path)
    assert command.words == ("cat", "{inputs}/a b", "{outputs}", "; rm -rf /", "$(boom)")
    assert str(command).startswith("cat '{inputs}/a b'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found none"),
        ("cat 'unfinished", "No closing quotation"),
        ("cat {inputs}", "without a place for outputs"),
        ("cat {input} {outputs}", "did you mean 'inputs'?"),
        ("./nowhere {outputs}", "there is no such file"),
        ("no-such-command-anywhere {outputs}", "there is no such file"),
    ],
)
def test_a_command_that_cannot_work_is_told_before_anything_runs(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command(text, tmp_path)
    assert said in str(caught.value)


def test_a_file_that_is_not_executable_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "runner").write_text("#!/bin/sh\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        parse_command("./runner {outputs}", tmp_path)
    assert caught.value.next_command == "chmod +x ./runner"


def test_braces_that_are_no_placeholder_stay() -> None:
    command = Command(words=("run", '{"a": 1}', "{}", "{outputs}", "{x9}"))
    assert filled(command, {"outputs": "o"}) == ["run", '{"a": 1}', "{}", "o", "{x9}"]


@given(st.dictionaries(st.sampled_from(list(PLACEHOLDERS)), st.text(), min_size=1))
def test_what_is_put_in_is_not_looked_at_again(places: dict[str, str]) -> None:
    words = tuple(f"{{{name}}}" for name in places)
    assert filled(Command(words=words), places) == list(places.values())
    assert all(uses(Command(words=words), name) for name in places)
