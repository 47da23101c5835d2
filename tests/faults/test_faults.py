"""A thousand mishaps to packed, stored and captured bundles; `make soak-faults` is the same with other seeds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from faults.planted import RULES, World, make_world, noticed, plant

FAULTS = {"zip": 600, "packed": 100, "store": 300, "captures": 80, "unpacked": 80}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", RULES)
def test_mishaps(world: World, tmp_path: Path, kind: str, part: int) -> None:
    each = FAULTS[kind] // 4
    told = Counter(plant(world, kind, range(part * each, (part + 1) * each), tmp_path))
    assert told.total() == each
    assert told["noticed"] > each * 0.9


def test_a_thousand(world: World) -> None:
    assert sum(FAULTS.values()) >= 1000
    assert len(world.zips) == 6
    for word in (world.captures, world.packed, world.unpacked, world.store, f"{world.store}#models/nightly"):
        assert not noticed(str(word)), "what is whole is not objected to"
