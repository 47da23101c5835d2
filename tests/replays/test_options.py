"""None"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.bundles.manifest import Identity
from karat.findings import UsageError
from karat.replays.options import CommandSpec, FunctionSpec, is_chosen, nothing_chosen, parse_command, parse_function


def test_a_function_is_a_module_and_a_name() -> None:
    assert parse_function("pkg.runner:Model.run") == FunctionSpec(module="pkg.runner", name="Model.run")


@pytest.mark.parametrize("word", ["runner.run", "./runner.py:run", "runner", "runner:", ":run", "a b:c"])
def test_what_is_no_function_is_told(word: str) -> None:
    with pytest.raises(UsageError, match="expected --run module:function, found '"):
        parse_function(word)


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
        ("./nowhere {outputs}", "there is no such file"),
        ("no-such-command-anywhere {outputs}", "there is no such file"),
    ],
)
def test_a_command_that_cannot_work_is_told_before_anything_runs(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command(text, tmp_path)
    assert said in str(caught.value)


def test_a_file_that_is_not_executable_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "runner").write_text("#!/bin/sh\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        parse_command("./runner {outputs}", tmp_path)
    assert caught.value.next_command == "chmod +x ./runner"


def test_braces_that_are_no_placeholder_stay() -> None:
    command = CommandSpec(words=("run", '{"a": 1}', "{}", "{outputs}", "{x9}"))
    assert command.filled({"outputs": "o"}) == ["run", '{"a": 1}', "{}", "o", "{x9}"]


@given(
    st.dictionaries(st.sampled_from(["program", "inputs", "outputs", "expected", "manifest"]), st.text(), min_size=1)
)
def test_what_is_put_in_is_not_looked_at_again(places: dict[str, str]) -> None:
    words = tuple(f"{{{name}}}" for name in places)
    assert CommandSpec(words=words).filled(places) == list(places.values())
    assert all(CommandSpec(words=words).uses(name) for name in places)


WHO = Identity(suite="models", flow="xnnpack", test="tests/test_m.py::test_a[static-0]")
PATH = "models/xnnpack/tests_test_m.py_test_a_static-0-0123456789abcdef"


@pytest.mark.parametrize(
    "glob",
    [
        PATH,
        "models",
        "models/xnnpack",
        "models/xnnpack/",
        "models/*/*",
        "**/*test_a*",
        "*test_a*",
        "tests/test_m.py::test_a[static-0]",
        "tests/test_m.py::*",
    ],
)
def test_a_case_goes_by_its_path_and_by_its_test(glob: str) -> None:
    assert is_chosen(PATH, WHO, (glob,))


@pytest.mark.parametrize("glob", ["mod", "models/portable", "test_a", "*test_b*", "tests/test_m.py"])
def test_a_part_of_a_name_is_no_name(glob: str) -> None:
    assert not is_chosen(PATH, WHO, (glob,))


def test_choosing_nothing_says_what_was_meant() -> None:
    finding = nothing_chosen("b.zip", ("tests/test_m.py::test_a[static-1]",), {PATH: WHO})
    assert finding.kind == "nothing-compared"
    assert "did you mean" in finding.message


def test_a_bundle_without_cases_is_said_to_be_one() -> None:
    assert "expected cases in b.zip" in nothing_chosen("b.zip", (), {}).message
