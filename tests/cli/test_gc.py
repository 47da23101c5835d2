from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from factories.store_world import World
from karat.store import references
from karat.store.backends import open_backend
from karat.store.objects import seal


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two references, the older of which expired long ago."""
    made = World(tmp_path)
    made.run("push", "captures", "models/nightly")
    store = open_backend(str(made.store))
    (entry,) = references.entries(store)
    old = msgspec.structs.replace(
        references.read(store, entry), date="2020-01-01T00:00:00.000000Z", expires="2020-03-31T00:00:00.000000Z"
    )
    store.put(references.key_for(old), seal(old))
    references.forget(store, [entry])
    made.more()
    next(made.captures.rglob("*_0_static_*/program/*")).parent.parent.rename(made.root / "gone")
    made.run("push", "captures", "models/nightly")
    return made


def test_a_dry_run_says_what_and_why(world: World) -> None:
    before = world.objects()
    told = world.run("gc", "--dry-run", "--grace", "0").out
    assert "would forget models/nightly of 2020-01-01T00:00:00Z" in told
    assert "expired 2020-03-31" in told
    assert "would delete" in told
    assert "nothing needs them" in told
    assert "kept models/nightly of" in told
    assert world.objects() == before
    assert len(list((world.store / "refs" / "models" / "nightly").iterdir())) == 2


def test_what_has_had_its_time_goes(world: World) -> None:
    before = len(world.objects())
    young = world.report("gc")["result"]
    assert {tally["fate"] for tally in young["objects"]} == {"needed", "young"}
    told = world.report("gc", "--grace", "0")["result"]
    assert len(world.objects()) < before
    assert [one["why"] for one in told["references"]] == ["live"]
    world.run("verify", str(world.store))
    world.run("pull", "models/nightly", "out")


def test_locks_by_option_and_by_configuration(world: World) -> None:
    world.run("pull", "models/nightly@2020-01-01", "old", "--lock", "deep.lock.json")
    why = [one["why"] for one in world.report("gc", "--dry-run", "--lock", "deep.lock.json")["result"]["references"]]
    assert why == ["locked", "live"]
    (world.root / "karat.toml").write_text('[store]\nlocks = ["**/*.lock.json"]\n')
    why = [one["why"] for one in world.report("gc", "--dry-run")["result"]["references"]]
    assert why == ["locked", "live"]
    assert "expected a lock file" in world.run("gc", "--lock", "none.json", code=3).err
    (world.root / "deep.lock.json").write_text("{}")
    assert "expected karat.bundle-lock/1" in world.run("gc", code=3).err
    assert len(list((world.store / "refs" / "models" / "nightly").iterdir())) == 2


def test_what_cannot_be_read_stops_it(world: World) -> None:
    (world.store / "refs" / "models" / "nightly" / "notes").write_text("?")
    before = world.objects()
    told = world.report("gc", "--grace", "0", code=3)
    assert "nothing was deleted" in told["findings"][0]["message"]
    assert world.objects() == before


def test_another_collector_is_store_busy(world: World) -> None:
    (world.store / "gc").mkdir(exist_ok=True)
    lease = {"schema": "karat.lease/1", "id": "1", "kind": "gc", "process": "elsewhere/1-1"}
    (world.store / "gc" / "1.json").write_text(json.dumps(lease))
    told = world.report("gc", code=3)
    assert [finding["kind"] for finding in told["findings"]] == ["store-busy"]


def test_a_retention_of_no_days_is_refused(world: World) -> None:
    (world.root / "karat.toml").write_text("[store]\nretention = 0\n")
    assert "retention" in world.run("gc", code=2).err
