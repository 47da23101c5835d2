from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factories.store_world import World
from factories.stores import files_below


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.run("push", "captures", "models/nightly")
    return made


def test_a_pin_outlives_references_and_everything_else(world: World) -> None:
    told = world.report("pin", "models/nightly", "--reason", "release 1.2")["result"]
    digest = told["pins"][0]["digest"]
    again = world.run("pin", "models/nightly", "--reason", "another").out
    assert again.endswith(": release 1.2 (it was pinned before, and keeps that reason)\n")
    assert "before" not in world.run("pin", "models/nightly", "--reason", "release 1.2").out
    for folder in ("refs", "links"):
        shutil.rmtree(world.store / folder)
    for path in world.objects():
        path.unlink()  # as a bucket's own rule would
    world.run("gc", "--grace", "0")
    world.run("pull", f"sha256:{digest}", "out")
    assert files_below(world.root / "out") == files_below(world.captures)


def test_a_pin_is_taken_away(world: World) -> None:
    world.run("pin", "models/nightly", "--reason", "why")
    assert "unpinned sha256:" in world.run("pin", "models/nightly", "--remove").out
    assert world.report("pin", "models/nightly", "--remove")["result"]["pins"] == []
    world.run("gc", "--grace", "0")
    assert not [path for path in (world.store / "kept").rglob("*") if path.is_file()]
    world.run("verify", str(world.store))


def test_what_is_damaged_is_not_pinned(world: World) -> None:
    victim = next(path for path in world.objects() if b'"schema"' not in path.read_bytes()[:20])
    victim.unlink()
    told = world.report("pin", "models/nightly", "--reason", "why", code=1)
    assert victim.name in told["findings"][0]["message"]
    assert not (world.store / "pins").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("models/nightly",), "pass either --reason WHY or --remove"),
        (("--reason", "why"), "REF"),
        (("models/nightly", "--reason", "why", "--remove"), "pass either --reason WHY or --remove"),
        (("models/nightly", "--reason", " "), "pass either --reason WHY or --remove"),
    ],
)
def test_wrong_usage(world: World, words: tuple[str, ...], said: str) -> None:
    assert said in world.run("pin", *words, code=2).err
    assert world.run("pin", "models/other", "--reason", "why", code=3).err
