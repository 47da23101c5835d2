from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, strategies as st

from karat.captures.functions import ActiveSubtests, subtest_name

PLAIN = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers())
PARAMETERS = st.dictionaries(st.sampled_from("abc"), PLAIN, min_size=1)


class Subtests:
    """What a test holds, as pytest's object and the older plugin's have it."""

    @contextmanager
    def test(self, msg: str | None = None, **_: Any) -> Iterator[str | None]:
        yield msg


@given(PARAMETERS, PARAMETERS)
def test_other_parameters_are_another_name(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = [(k, repr(v)) for k, v in one.items()] == [(k, repr(v)) for k, v in other.items()]
    assert (subtest_name("m", one) == subtest_name("m", other)) is same


def test_an_address_is_no_part_of_a_name() -> None:
    assert subtest_name(None, {"model": object()}) == "model=object"
    assert subtest_name(None, {}) == "subtest"
    assert subtest_name("only words", {}) == "only words"


def test_names_follow_the_nesting() -> None:
    active, subtests = ActiveSubtests(), Subtests()
    active.watch(subtests)
    assert active.name(None) == ""
    assert active.name("own") == "own"
    with subtests.test("outer") as given_by_pytest:
        assert given_by_pytest == "outer"
        with subtests.test(i=1):
            assert active.name("own") == "outer / i=1 / own"
        assert active.name(None) == "outer"
    assert active.name(None) == ""
