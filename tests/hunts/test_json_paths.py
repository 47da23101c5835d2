from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.hunts.probe.metrics import find_json, parse_json_path

STEPS = st.lists(st.one_of(st.integers(-99, 99), st.text(max_size=8)), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("loss", ("loss",)),
        ("$.results[0].loss", ("results", 0, "loss")),
        ('a["lm loss"][-1]', ("a", "lm loss", -1)),
        ("['x y'].z", ("x y", "z")),
        ("[2]", (2,)),
        ("a b.c-d", ("a b", "c-d")),
    ],
)
def test_paths(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse_json_path(text) == steps


@pytest.mark.parametrize("text", ["", "$", "a.", ".", "a..b", "a[", "a[x]", "a]b", "[0]b", 'a["x]'])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(UsageError, match="expected a path"):
        parse_json_path(text)


@given(STEPS)
def test_every_step_can_be_written(steps: list[str | int]) -> None:
    quoted = "".join(
        f"[{s}]"
        if isinstance(s, int)
        else '["' + s.replace("\\", "\\\\").replace('"', '\\"') + '"]'
        for s in steps
    )
    assert parse_json_path(quoted) == tuple(steps)


@given(STEPS, st.integers())
def test_what_was_put_there_is_found(steps: list[str | int], leaf: int) -> None:
    document: Any = leaf
    for s in reversed(steps):
        document = (
            {s: document}
            if isinstance(s, str)
            else ([None] * s + [document] if s >= 0 else [document] + [None] * (-s - 1))
        )
    assert find_json(json.loads(json.dumps(document)), tuple(steps)) == leaf


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("x",), "no 'x' in an object with 'a'"),
        (("a", 1), "no 1 in a list of 1"),
        (("a", 0, "b"), "no 'b' in a number"),
        (("a", "0"), "no '0'"),
    ],
)
def test_a_step_that_leads_nowhere_is_named(path: tuple[str | int, ...], said: str) -> None:
    with pytest.raises(LookupError, match=said):
        find_json({"a": [1]}, path)
