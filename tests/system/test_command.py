from __future__ import annotations

import json
import shlex
import subprocess

import msgspec
import pytest
from hypothesis import given, strategies as st

from karat.system.command import Command

WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=5)


@given(WORDS)
def test_a_shell_reads_back_the_very_words(words: list[str]) -> None:
    command = Command("printf", *words)
    assert command.words == ("printf", *words)
    assert command.isprintable()
    if all(word.isprintable() for word in words):
        assert shlex.split(command) == ["printf", *words]


def test_a_control_character_reaches_the_shell_and_not_the_terminal() -> None:
    command = Command("printf", "%s", "a\nb'\x1b\\")
    assert "\x1b" not in command
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "a\nb'\x1b\\"


def test_options_go_with_their_values_and_flags_without() -> None:
    command = Command("karat", "x", "--a", "1", "--b=2", "--flag", "place", "--a=3")
    assert command.without({"--a", "--b"}, flags=()) == "karat x --flag place"
    assert command.without({"--flag"}, flags={"--flag"}).words[-2:] == ("place", "--a=3")
    assert command.plus("--c", "d e") == f"{command} --c 'd e'"


def test_whoever_encodes_it_passes_a_plain_text() -> None:
    command = Command("karat", "diff")
    assert json.loads(msgspec.json.encode({"next": str(command)})) == {"next": "karat diff"}
    with pytest.raises(TypeError):
        msgspec.json.encode({"next": command})
