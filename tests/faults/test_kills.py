"""A few kills of every command that writes; `make soak-kills` is the same with 300."""

from __future__ import annotations

import pytest

from faults.kills import VICTIMS, both_at_once, kill_often


@pytest.mark.slow
@pytest.mark.parametrize("name", VICTIMS)
def test_killed_alone_or_beside_another_nothing_is_lost(name: str) -> None:
    assert kill_often(name, 2, seed=14) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", VICTIMS)
def test_two_writers_at_once(name: str) -> None:
    both_at_once(name)
