"""Three-way merges of goldens: laws, and what git is given where there is no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from factories.refreshed import noisy
from factories.repositories import golden_text
from karat.diffs.merge import merge, readable
from karat.goldens.provenance import LockEntry, encode_lock

BASE = json.loads(golden_text(noisy(1)))


def text(value: Any) -> bytes:
    return json.dumps(value, indent=4).encode()


def changed(metric: str, step: str, value: Any) -> dict[str, Any]:
    """BASE with another value at one step; None takes it out."""
    found: dict[str, Any] = json.loads(text(BASE))
    if value is None:
        del found[metric]["values"][step]
    else:
        found[metric]["values"][step] = value
    return found


def test_neighbouring_steps_of_two_branches_merge() -> None:
    merged, clean = merge(text(BASE), text(changed("lm loss", "7", 1.5)), text(changed("lm loss", "8", 2.5)), "a.json")
    assert clean
    expected = changed("lm loss", "7", 1.5)
    expected["lm loss"]["values"]["8"] = 2.5
    assert merged == text(expected)


def test_a_metric_that_one_side_has_added_comes_last() -> None:
    theirs = {"grad norm": BASE["lm loss"], **BASE}
    merged, clean = merge(text(BASE), text(changed("num-zeros", "1", 5)), text(theirs), "a.json")
    assert clean
    assert json.loads(merged) == {**changed("num-zeros", "1", 5), "grad norm": BASE["lm loss"]}
    assert list(json.loads(merged))[-1] == "grad norm"


def test_one_value_that_both_changed_is_a_conflict_around_it_alone() -> None:
    merged, clean = merge(
        text(changed("num-zeros", "3", 1)),
        text(changed("lm loss", "7", 1.5)),
        text(changed("lm loss", "7", 2.5)),
        "a.json",
    )
    assert not clean
    lines = merged.decode().splitlines()
    start = lines.index("<<<<<<< ours")
    assert [line.strip() for line in lines[start : start + 5]] == [
        "<<<<<<< ours",
        '"7": 1.5,',
        "=======",
        '"7": 2.5,',
        ">>>>>>> theirs",
    ]
    assert merged.count(b"<<<<<<<") == 1
    assert (
        json.loads("\n".join([*lines[:start], lines[start + 1], *lines[start + 5 :]]))["num-zeros"] == BASE["num-zeros"]
    )


def test_taken_out_here_and_changed_there_is_a_conflict() -> None:
    _, clean = merge(text(BASE), text(changed("lm loss", "7", None)), text(changed("lm loss", "7", 2.5)), "a.json")
    assert not clean


def test_the_markers_are_as_long_as_git_wants_them() -> None:
    merged, _ = merge(
        text(BASE), text(changed("lm loss", "7", 1)), text(changed("lm loss", "7", 2)), "a.json", marker_size=11
    )
    assert b"<<<<<<<<<<< ours" in merged


@pytest.mark.parametrize("odd", [b"", b"not json", b'{"a": 1, "a": 2}', b"[1, 2]", b'{"a": NaN}'])
def test_what_is_no_plain_golden_is_left_to_gits_own_merge(odd: bytes) -> None:
    assert merge(odd, odd, odd, "a.json") == (odd, True)
    merged, clean = merge(odd, b"mine\n", b"yours\n", "a.json")
    assert (clean, b"mine" in merged, b"yours" in merged) == (False, True, True)


STEPS = st.dictionaries(st.sampled_from("1234"), st.sampled_from([0.5, 1, "nan"]), max_size=4)
FILES = st.dictionaries(st.sampled_from(["a", "b"]), STEPS, max_size=2)


@given(FILES, FILES)
def test_a_side_that_did_nothing_changes_nothing(base: Any, side: Any) -> None:
    one, other = text(base), text(side)
    for merged, clean in (
        merge(one, other, one, "a.json"),
        merge(one, one, other, "a.json"),
        merge(one, other, other, "a.json"),
    ):
        assert clean
        assert json.loads(merged) == side


@given(FILES, FILES, FILES)
def test_it_does_not_matter_whose_side_it_is(base: Any, ours: Any, theirs: Any) -> None:
    merged, clean = merge(text(base), text(ours), text(theirs), "a.json")
    turned, also = merge(text(base), text(theirs), text(ours), "a.json")
    assert clean == also
    if clean:
        assert json.loads(merged) == json.loads(turned)


def lock(**sums: str) -> bytes:
    return encode_lock(
        {f"{name}.json": LockEntry(source="github", run=sum_, sha256=sum_ * 64) for name, sum_ in sums.items()}
    )


def test_a_lock_merges_by_golden_and_an_entry_is_whole() -> None:
    path = "tests/goldens.lock.json"
    assert merge(lock(a="1", b="1"), lock(a="2", b="1"), lock(a="1", b="3", c="4"), path) == (
        lock(a="2", b="3", c="4"),
        True,
    )
    merged, clean = merge(lock(a="1"), lock(a="2"), lock(a="3"), path)
    assert not clean
    assert merged.count(b'"a.json"') == 2
    assert merge(b"", lock(a="1"), lock(b="2"), path) == (lock(a="1", b="2"), True)


def test_a_value_stands_on_each_line_with_what_it_is_of() -> None:
    assert list(
        readable(
            b'{"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": 10.5, "2": "nan"}}}'
        )
    ) == ["lm loss  step 1  10.5", "lm loss  step 2  nan"]
    assert list(readable(b"name,accuracy\nresnet,pass\n", "t.csv")) == ["resnet  accuracy  pass"]
    assert list(readable(b'{"a": {"b": [1, null]}, "c": {}}')) == ["a.b[0]  1", "a.b[1]  None", "c  {}"]
    assert list(readable(b"broken {")) == ["broken {"]
