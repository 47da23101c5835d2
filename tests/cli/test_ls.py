from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factories.store_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.run("push", "captures", "models/nightly")
    made.more()
    made.run("push", "captures", "models/nightly")
    made.run("pin", "models/nightly", "--reason", "release 1.2")
    made.run("push", "captures", "models/weekly", "--keep", "400")
    return made


def test_names_then_entries_then_one(world: World) -> None:
    names = world.run("ls").out.splitlines()
    assert [line.split()[0] for line in names] == ["models/nightly", "models/weekly"]
    assert "pinned: release 1.2, 2 in all" in names[0]
    entries = world.run("ls", "models/nightly").out.splitlines()
    assert len(entries) == 2
    assert "5 cases" in entries[0]
    assert "4 cases" in entries[1]
    digest = world.report("ls", "models/nightly")["result"]["references"][1]["digest"]
    (one,) = world.report("ls", f"sha256:{digest}")["result"]["references"]
    assert (one["name"], one["cases"], one["pinned"]) == ("models/nightly", 4, None)


def test_cases(world: World) -> None:
    told = world.report("ls", "models/nightly", "--cases")["result"]
    assert len(told["cases"]) == told["references"][0]["cases"] == 5
    assert sum(case["size"] for case in told["cases"]) == told["references"][0]["size"]
    assert "--cases needs REF" in world.run("ls", "--cases", code=2).err


def test_a_damaged_reference_hides_no_other(world: World) -> None:
    *_, newest = sorted((world.store / "refs/models/nightly").iterdir())
    newest.write_bytes(newest.read_bytes().replace(b"models/nightly", b"models/nightlx"))
    names = world.run("ls", code=3)
    assert [line.split()[0] for line in names.out.splitlines()] == ["models/weekly"]
    assert newest.name in names.err
    told = world.report("ls", "models/nightly", code=3)
    assert [one["cases"] for one in told["result"]["references"]] == [4]
    assert len(told["findings"]) == 1


def test_a_pin_whose_references_are_gone_is_listed(world: World) -> None:
    for folder in ("refs", "links"):
        shutil.rmtree(world.store / folder)
    (line,) = world.run("ls").out.splitlines()
    assert "pinned only" in line
    assert "pinned: release 1.2" in line


def test_no_store_and_no_such_name(world: World, tmp_path: Path) -> None:
    assert world.report("ls", "nothing", code=3)["findings"][0]["kind"] == "reference-missing"
    world.run("ls", "--store", str(tmp_path / "none"), code=3)
