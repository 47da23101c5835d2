"""Globs and patterns of strangers: they take time that grows with their length, and say the same as plain expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from factories.ends import ends
from karat.findings import UsageError
from karat.goldens.paths import CasePattern, Globs, identity_of
from karat.system.foreign import wildcards

SLOW = {
    "stars": ("*a" * 30 + "b", "a" * 200),
    "folders": ("**/" * 30 + "b", "a/" * 100),
    "anything": ("**a" * 30 + "b", "a" * 200),
    "few stars, a long path": ("**a**a**a**b", "a" * 4000),
    "choices": ("{a,aa,aaa}*" * 20 + "b", "a" * 200),
    "choices alone": ("{a,aa}" * 30 + "b", "a" * 45),
}


@pytest.mark.parametrize(("glob", "path"), SLOW.values(), ids=SLOW)
def test_every_glob_is_answered(glob: str, path: str) -> None:
    with ends():
        assert not Globs([glob]).fullmatch(path)
        assert Globs([glob]).fullmatch(path + "b")


def test_a_list_of_globs_takes_what_its_globs_take() -> None:
    globs = [pattern.format(n) for n in range(200) for pattern in ("*a*a*ac{}", "**a**a**ac{}", "**/**/*a*b{}")]
    with ends():
        assert not any(map(Globs(globs).fullmatch, ("a" * 250, "a/" * 60 + "a" * 130)))


@given(st.text("a/*?", max_size=8).map(lambda text: text.replace("?", "{a,aa}")), st.text("ab/", max_size=12))
def test_both_ways_say_the_same(glob: str, path: str) -> None:
    globs = Globs([glob])
    expression = globs._quick.fullmatch(path) is not None
    assert any(wildcards.fits(steps, path) for steps in globs._all) is expression or globs._others


CASES = {
    "many names": ("_".join(f"{{{n * 'a'}}}" for n in range(1, 12)) + ".json", "_" * 250),
    "many folders": ("**/" * 6 + "{a}_{b}/c", "a_a/" * 60),
}


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "path"), CASES.values(), ids=CASES)
def test_every_pattern_is_answered(pattern: str, path: str) -> None:
    with ends():
        assert identity_of(path, [pattern]) == {}


@pytest.mark.slow
def test_names_that_are_repeated_over_and_over_are_refused() -> None:
    pattern = "".join(f"{{{name}}}" for name in "abcdefgabcdefg") + "x"
    with pytest.raises(UsageError, match="use fewer placeholders between two slashes"):
        identity_of("a" * 200, [pattern])


def test_no_name_is_longer_than_a_file_system_allows() -> None:
    assert identity_of("a" * 255, ["{case}"]) == {"case": "a" * 255}
    assert identity_of("a" * 256, ["{case}"]) == {}


FORMS = {"n": "[0-9]+", "again": "(?:_[0-9]+(?:st|nd))?"}


@given(
    st.lists(st.sampled_from(["{a}", "{b}", "{n}", "{again}", "**/", "/", "_", "1"]), max_size=7).map("".join),
    st.text("_1a/", max_size=10),
)
def test_a_pattern_reads_the_same_either_way(pattern: str, path: str) -> None:
    one, other = CasePattern(pattern, FORMS), CasePattern(pattern, FORMS)
    one._quick, other._quick = True, False
    assert one.match(path) == other.match(path)


def test_what_an_expression_would_read() -> None:
    pattern = CasePattern("**/{a}_{b}_{c}_{d}_{a}.json", {})
    path = "x/y_y/1_2_3_4_5_1.json"
    plain = re.fullmatch(r"(?:[^/]+/)*(?P<a>[^/]+?)_(?P<b>[^/]+?)_(?P<c>[^/]+?)_(?P<d>[^/]+?)_(?P=a)\.json", path)
    assert plain is not None
    assert pattern.match(path) == plain.groupdict() == {"a": "1", "b": "2", "c": "3", "d": "4_5"}
