from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from karat.bundles.structure import flatten
from karat.replays.runners import plain_values

LEAVES = st.sampled_from(["tensor", "none", "plain"])
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def made(node: Any) -> tuple[Any, int]:
    """The value of a description, and how many plain values are in it."""
    if isinstance(node, list):
        parts = [made(item) for item in node]
        return tuple(value for value, _ in parts), sum(n for _, n in parts)
    if isinstance(node, dict):
        parts_of = {key: made(item) for key, item in node.items()}
        return {k: v for k, (v, _) in parts_of.items()}, sum(n for _, n in parts_of.values())
    leaves: dict[str, tuple[Any, int]] = {
        "tensor": (np.ones(2), 0),
        "none": (None, 0),
        "plain": (0.5, 1),
    }
    return leaves[node]


@given(NESTED)
def test_every_plain_value_is_found_and_nothing_else(node: Any) -> None:
    value, count = made(node)
    assert len(list(plain_values(flatten(value, "input").structure))) == count
