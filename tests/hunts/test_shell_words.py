from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from karat.report.words import printable
from karat.system.command import quoted


def as_printed(text: str) -> str:
    """What a terminal's report makes of it: line by line, without what ends a line."""
    return "\n".join(printable(line).rstrip() for line in text.split("\n"))


def pasted(shell: str, word: str) -> bytes:
    line = as_printed(f"printf %s {quoted(word, lines=True)} end")
    return subprocess.run([shell, "-c", line], check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "it's",
        "import x\nprint('a b')\n",
        "\n\n",
        "a\tb",
        "two  \nlines",
        "\x1b[2J",
        "##[x]\\",
        "##[x]\ny\t",
        "##vso[x]\ny",
        "nur 'Text' für\u200bEuch",
        "raw \udcff\udc80",
    ],
)
def test_what_is_printed_can_be_pasted(word: str) -> None:
    assert pasted("bash", word) == word.encode("utf-8", "surrogateescape") + b"end"


def test_lines_stay_lines_in_every_shell() -> None:
    assert quoted("import x\nprint(x)", lines=True) == "'import x\nprint(x)'"
    assert pasted("sh", "import x\nprint('$HOME')") == b"import x\nprint('$HOME')end"


@settings(max_examples=25)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_any_text_can_be_pasted(word: str) -> None:
    assert pasted("bash", word) == word.encode() + b"end"
