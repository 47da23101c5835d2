from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from factories.store_world import World
from factories.stores import files_below


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.run("push", "captures", "models/nightly")
    return made


def test_what_was_pushed_is_pulled(world: World) -> None:
    told = world.run("pull", "models/nightly", "out").out
    assert "4 cases, 16 files" in told
    assert "every byte verified" in told
    assert files_below(world.root / "out") == files_below(world.captures)
    world.run("verify", "out")
    assert "models/nightly is in " in world.run("pull", "models/nightly", "out").out


def test_by_date_and_digest(world: World) -> None:
    first = world.report("pull", "models/nightly", "a")["result"]
    world.more()
    world.run("push", "captures", "models/nightly")
    word = f"models/nightly@sha256:{first['digest'][:12]}"
    assert world.report("pull", word, "b")["result"]["cases"] == 4
    assert world.report("pull", f"sha256:{first['digest']}", "c")["result"]["cases"] == 4
    assert world.report("pull", f"models/nightly@{first['date'][:10]}", "d")["result"]["cases"] == 5


def test_a_damaged_object_is_named_and_nothing_is_installed(world: World) -> None:
    victim = next(path for path in world.objects() if b'"schema"' not in path.read_bytes()[:20])
    victim.write_bytes(b"<!DOCTYPE html><html>")
    told = world.report("pull", "models/nightly", "out", code=1)
    (finding,) = told["findings"]
    assert finding["kind"] == "bundle-damaged"
    assert victim.name in finding["message"]
    assert not (world.root / "out").exists()


def test_an_unknown_reference_comes_with_what_is_near(world: World) -> None:
    told = world.report("pull", "models/nigthly", "out", code=3)
    assert [finding["kind"] for finding in told["findings"]] == ["reference-missing"]
    assert "did you mean 'models/nightly'" in told["findings"][0]["message"]
    other = world.run("pull", "models/nightly", "out", "--store", "elsewhere", code=3).err
    assert "nothing was ever pushed there" in other
    world.run("pull", "models/nightly@yesterday", "out", code=2)


def test_only_and_replace(world: World) -> None:
    world.run("pull", "models/nightly", "out", "--only", "models/xnnpack/**")
    assert len(list((world.root / "out" / "models").iterdir())) == 1
    assert "--replace" in world.run("pull", "models/nightly", "out", code=2).err
    world.run("pull", "models/nightly", "out", "--replace")
    assert files_below(world.root / "out") == files_below(world.captures)


def test_a_lock_is_made_followed_and_moved(world: World) -> None:
    lock = world.root / "bundles.lock.json"
    first = world.report("pull", "models/nightly", "out", "--lock", lock.name)["result"]["digest"]
    written = lock.read_bytes()
    schema = world.run("schema", "karat.bundle-lock/1").out
    jsonschema.validate(json.loads(written), json.loads(schema))
    world.more()
    second = world.report("push", "captures", "models/nightly")["result"]["digest"]
    again = world.report("pull", "models/nightly", "again", "--lock", lock.name)["result"]
    assert again["digest"] == first
    assert lock.read_bytes() == written
    word = f"models/nightly@sha256:{second[:12]}"
    assert "--update" in world.run("pull", word, "x", "--lock", lock.name, code=2).err
    moved = world.report("pull", "models/nightly", "new", "--lock", lock.name, "--update")["result"]
    assert moved["digest"] == second
    assert second.encode() in lock.read_bytes()
    assert "--lock FILE" in world.run("pull", "models/nightly", "y", "--update", code=2).err


def test_the_lock_knows_its_store(world: World) -> None:
    world.run("pull", "models/nightly", "out", "--lock", "l.json")
    world.run("pull", "models/nightly", "again", "--lock", "l.json", KARAT_STORE="elsewhere")
    assert files_below(world.root / "again") == files_below(world.captures)


def test_a_lock_moves_with_its_store_and_knows_it_from_everywhere(world: World) -> None:
    world.run("pull", "models/nightly", "out", "--lock", "l.json")
    assert str(world.root) not in (world.root / "l.json").read_text()
    moved = world.root / "moved"
    moved.mkdir()
    for name in ("the store", "l.json"):
        (world.root / name).rename(moved / name)
    (world.root / "below").mkdir()
    world.run("pull", "models/nightly", "again", "--lock", "moved/l.json", KARAT_STORE="elsewhere")
    assert files_below(world.root / "again") == files_below(world.captures)


def test_a_lock_that_cannot_be_read_is_no_answer(world: World) -> None:
    (world.root / "l.json").write_text("<<<<<<< HEAD\n")
    assert "merge-conflict" in world.run("pull", "models/nightly", "o", "--lock", "l.json", code=3).err
