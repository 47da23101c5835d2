"""CODEOWNERS of strangers: no line of it ends a command, or takes longer than reading it."""

from __future__ import annotations

import pytest

from factories.ends import ends
from karat.policy.approvals.code_owners import ForgeName, is_owner, matches, parse

FORGES: tuple[ForgeName, ...] = ("github", "gitlab")
PATTERNS = (
    "*a" * 40 + "b",
    "**/" * 40 + "b",
    "/" + "*/**/" * 20 + "b",
    "[" * 20_000,
    "?*" * 50 + "b",
    "[a-z]*" * 40 + "b",
)


@pytest.mark.parametrize("forge", FORGES)
@pytest.mark.parametrize("pattern", PATTERNS, ids=[pattern[:8] for pattern in PATTERNS])
def test_every_pattern_is_answered(forge: ForgeName, pattern: str) -> None:
    with ends():
        assert not matches(pattern, "a" * 150 + "/" + "a" * 100, forge)
        assert not matches(pattern, "a/" * 120, forge)


@pytest.mark.parametrize("forge", FORGES)
@pytest.mark.parametrize(
    "line", ["[Docs][" + "9" * 5000 + "] @a", "^[x][1] @a", "\\", "* a@" + "." * 50_000 + "@", "[" * 50_000]
)
def test_no_line_is_a_traceback(forge: ForgeName, line: str) -> None:
    with ends():
        assert parse(f"{line}\n/docs @b\n", forge).of("docs") or forge == "gitlab"


def test_a_range_that_ends_before_it_begins_fits_nothing() -> None:
    assert not matches("[z-a]", "m", "gitlab")
    assert matches("[a-z]", "m", "gitlab")


def test_owners_have_names_of_a_length_that_somebody_has() -> None:
    assert is_owner("a@" + "b" * 200 + ".example")
    assert not is_owner("a@" + "." * 100_000 + "@")
