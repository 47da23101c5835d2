"""Commands to run next: what was typed, with what is to change, and ready to be pasted."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, strategies as st

from karat.findings import Finding, Severity
from karat.refreshes.report import complete_all, with_options
from karat.system.command import Command

TYPED = "karat refresh --source github --sha abc --workflow CI --scope only-failing"


@pytest.mark.parametrize(
    ("typed", "words", "expected"),
    [
        ("karat refresh x --scope all", ("--scope", "all"), "karat refresh x --scope all"),
        ("karat refresh --scope=all x", ("--scope", "all"), "karat refresh x --scope all"),
        (TYPED, ("--run-id", "7"), "karat refresh --source github --scope only-failing --run-id 7"),
        ("karat refresh --write x", ("--dry-run",), "karat refresh x --dry-run"),
        ("karat refresh x --dry-run", ("--dry-run",), "karat refresh x --dry-run"),
        ("karat refresh 'a b'", ("--only", "c d"), "karat refresh 'a b' --only 'c d'"),
    ],
)
def test_options_take_the_place_of_their_like(typed: str, words: tuple[str, ...], expected: str) -> None:
    assert with_options(Command(*shlex.split(typed)), *words) == expected


def test_a_flag_goes_without_the_word_after_it() -> None:
    typed = Command("karat", "refresh", "--dry-run", "results", "--scope", "all")
    assert typed.without({"--dry-run"}, flags={"--dry-run"}) == "karat refresh results --scope all"


@pytest.mark.slow
@given(st.lists(st.text().filter(str.isprintable), max_size=4))
def test_what_is_not_named_stays_word_for_word(words: list[str]) -> None:
    plain = [word for word in words if not word.startswith("--dry-run")]
    kept = Command("karat", *plain).without({"--dry-run"}, flags={"--dry-run"})
    assert shlex.split(kept) == list(kept.words) == ["karat", *plain]


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ("karat refresh --scope all", "karat refresh --source folder x --scope all"),
        ("karat refresh --help", "karat refresh --help"),
        ("karat diff", "karat diff"),
        ("gh run rerun --job 5", "gh run rerun --job 5"),
        (None, None),
    ],
)
def test_findings_are_completed(advice: str | None, expected: str | None) -> None:
    finding = Finding(kind="empty", severity=Severity.FAIL, message="", next=advice and Command(*advice.split()))
    typed = Command("karat", "refresh", "--source", "folder", "x", "--scope", "only-failing")
    (done,) = complete_all([finding], typed)
    assert done.next == expected
