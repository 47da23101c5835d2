from __future__ import annotations

from hypothesis import given, strategies as st

from factories.jobs import shell
from karat.engines.runner import fill_command, fill_text

WORDS = {"AREA": "/a@OUT@b", "OUT": "/o", "SLOT": "3", "GPUS": ""}


def test_words_are_replaced_once() -> None:
    assert fill_text("@AREA@/x @SLOT@@SLOT@ [@GPUS@]", WORDS) == "/a@OUT@b/x 33 []"


def test_what_only_looks_like_a_word_stays() -> None:
    for text in ("me@OUT", "@out@", "@", "@@", "@@@", "OUT@", "user@SLOT.example", "@OTHER@"):
        assert fill_text(text, WORDS) == text
    assert fill_text("a@b@OUT@", WORDS) == "a@b/o"
    assert fill_text("image@sha256:1 @SLOT@", WORDS) == "image@sha256:1 3"


@given(st.text("@AOUTS ", max_size=20))
def test_without_words_nothing_changes(text: str) -> None:
    assert fill_text(text, {}) == text


@given(st.lists(st.sampled_from([*WORDS, "x", ""]), max_size=8))
def test_each_word_between_two_signs_is_replaced(names: list[str]) -> None:
    text = " ".join(f"@{name}@" for name in names)
    expected = " ".join(WORDS.get(name, f"@{name}@") for name in names)
    assert fill_text(text, WORDS) == expected


def test_all_of_a_command_is_filled() -> None:
    command = shell(
        "@SLOT@",
        cwd="@OUT@",
        env={"A": "@SLOT@"},
        unless=("@SLOT@",),
        when_killed=(("rm", "@SLOT@"),),
    )
    done = fill_command(command, WORDS)
    assert (done.argv[2], done.cwd, done.env, done.unless, done.when_killed) == (
        "3",
        "/o",
        {"A": "3"},
        ("3",),
        (("rm", "3"),),
    )
