from __future__ import annotations

import io

import pytest

from factories.diffs import hostile, make
from karat.diffs.report import text as terminal
from karat.diffs.result import Diff
from karat.report.words import count, elide, number, printable, signed


def shown(diff: Diff, *, top: int = 10) -> str:
    out = io.StringIO()
    terminal.show(diff, out, top=top)
    return out.getvalue()


def test_the_answer_stands_first_then_groups_single_findings_and_rows() -> None:
    text = shown(make())
    assert text.startswith("20 of 81 goldens need a look; 6 must not be merged: ")
    order = [text.index(words) for words in ("Groups, one", "Single findings", "fail truncated", "Worst 10 of")]
    assert order == sorted(order)
    assert "next: " in text


def test_top_chooses_how_many_rows() -> None:
    assert "Worst 3 of" in shown(make(), top=3)
    assert "Worst" not in shown(make(), top=0)


def test_control_characters_never_reach_the_terminal() -> None:
    text = shown(hostile())
    assert not set(text) & {chr(c) for c in (*range(9), *range(11, 32), 127)}


def test_an_empty_diff_says_so() -> None:
    text = shown(Diff(old="HEAD", new="working tree", changes=(), unchanged=7))
    assert "no golden changed · 7 unchanged" in text


def test_words() -> None:
    assert [number(v) for v in (None, 0, 0.5, 1e-5, -2.0, 12345.0)] == [
        "",
        "0",
        "0.5000",
        "1.00e-05",
        "-2.0000",
        "1.23e+04",
    ]
    assert [signed(v) for v in (0.5, -0.5, 0)] == ["+0.5000", "-0.5000", "0"]
    assert [count(n, "file") for n in (0, 1, 1200)] == ["0 files", "1 file", "1,200 files"]
    assert [count(2, noun) for noun in ("entry", "day", "key")] == ["2 entries", "2 days", "2 keys"]
    assert elide("abcdefghij", 10) == "abcdefghij"
    assert len(elide("abcdefghijk", 10)) == 10
    assert printable("a\x1b[31mb\udcff") == "a\\x1b[31mb\\udcff"


def test_paths_give_way_to_the_width_of_the_terminal() -> None:
    for width in (80, 100, 140):
        rows = ["".join(text for text, _ in line) for line in terminal.lines(make(), width=width)]
        table = rows[next(i for i, row in enumerate(rows) if row.startswith("verdict")) :]
        assert max(map(len, table)) <= width


def test_colour_is_for_terminals_and_for_those_who_force_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in shown(make())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in shown(make())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown(make())
