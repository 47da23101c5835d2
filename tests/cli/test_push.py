from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from factories.store_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_push_says_what_was_sent_and_what_was_there(world: World) -> None:
    told = world.run("push", "captures", "models/nightly").out
    assert f"pushed models/nightly to {world.store}" in told
    assert "4 cases, 16 files" in told
    assert "there already: 0 objects" in told
    world.more()
    again = world.report("push", "captures", "models/nightly")["result"]
    assert (again["cases"], again["reused_objects"]) == (5, 4)
    assert 0 < again["new_objects"] <= 3


def test_a_zip_and_a_snapshot_can_be_pushed_and_have_the_same_digest(world: World) -> None:
    first = world.report("push", "captures", "models/nightly")["result"]["digest"]
    world.run("pack", "captures", "--compression", "deflate", "--name", "all")
    assert world.report("push", "packed/all.zip", "models/zip")["result"]["digest"] == first
    copied = world.report("push", "store:models/nightly", "a/copy", "--store", "another")
    assert copied["result"]["digest"] == first
    assert copied["result"]["store"] == str(world.root / "another")
    assert world.report("push", "captures/models/xnnpack", "models/part")["result"]["cases"] == 2


def test_what_was_pulled_can_be_pushed_again(world: World) -> None:
    first = world.report("push", "captures", "models/nightly")["result"]
    world.run("pull", "models/nightly", "out")
    again = world.report("push", "out", "models/nightly")["result"]
    assert (again["digest"], again["new_objects"]) == (first["digest"], 0)


def test_a_page_instead_of_a_zip_is_refused(world: World) -> None:
    (world.root / "page.zip").write_text("<!DOCTYPE html><html>Sign in</html>")
    told = world.report("push", "page.zip", "models/nightly", code=1)
    assert [finding["kind"] for finding in told["findings"]] == ["not-a-bundle"]
    assert world.report("push", "store:nothing", "models/a", code=3)["result"] is None


def test_one_case_is_pushed_under_its_own_path(world: World) -> None:
    folder = next((world.captures / "models" / "xnnpack").iterdir())
    world.run("push", str(folder), "models/one")
    listed = world.report("ls", "models/one", "--cases")["result"]
    assert [case["path"] for case in listed["cases"]] == [f"models/xnnpack/{folder.name}"]


def test_a_damaged_or_incomplete_case_is_refused(world: World) -> None:
    program = next(world.captures.rglob("*.pte"))
    program.write_bytes(b"something else")
    refused = world.report("push", "captures", "models/nightly", code=1)
    assert {finding["kind"] for finding in refused["findings"]} == {"bundle-damaged"}
    assert refused["result"] is None
    program.unlink()
    assert "incomplete-case" in world.run("push", "captures", "models/nightly", code=1).err
    assert not world.store.exists()


def test_a_dry_run_leaves_nothing(world: World) -> None:
    told = world.run("push", "captures", "models/nightly", "--dry-run").out
    assert told.startswith("would push models/nightly")
    assert not world.store.exists()


def test_keep_and_ci(world: World) -> None:
    world.run("push", "captures", "models/a", "--keep", "3", GITHUB_RUN_ID="17")
    (entry,) = (world.store / "refs" / "models" / "a").iterdir()
    reference = json.loads(entry.read_text())
    assert (reference["keep"], reference["ci"]) == (3, {"run": "17"})


def test_the_store_of_karat_toml(world: World) -> None:
    (world.root / "karat.toml").write_text('[store]\nurl = "configured"\nretention = 10\n')
    told = world.run("push", "captures", "models/nightly", KARAT_STORE="").out
    assert "to " + str(world.root / "configured") in told
    reference = next((world.root / "configured" / "refs" / "models" / "nightly").iterdir())
    days = json.loads(reference.read_text())
    assert days["keep"] is None
    assert days["expires"][:10] > days["date"][:10]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("captures", "No Name"), "expected a name such as models/nightly"),
        (("nothing", "a"), "found nothing there"),
        (("captures", "a", "--store", "s4://x"), "found s4://"),
        (("captures", "a", "--lifecycle"), "expected a bucket"),
        (("captures", "a", "--keep", "0"), "0 is not in the range"),
    ],
)
def test_wrong_usage(world: World, words: tuple[str, ...], said: str) -> None:
    assert said in world.run("push", *words, code=2).err
    assert not world.store.exists()


def test_a_store_that_cannot_be_written(world: World) -> None:
    world.store.mkdir()
    (world.store / "pushes").write_text("a file where a folder should be")
    told = world.report("push", "captures", "models/nightly", code=3)
    assert [finding["kind"] for finding in told["findings"]] == ["transfer-failed"]
    shutil.rmtree(world.store)
    world.store.write_text("no folder")
    world.run("push", "captures", "models/nightly", code=2)


def test_a_relative_store_of_karat_toml_is_taken_from_there(world: World) -> None:
    (world.root / "karat.toml").write_text('[store]\nurl = "x/../lager"\n')
    below = world.root / "deep" / "below"
    below.mkdir(parents=True)
    told = world.run("push", "../../captures", "models/nightly", cwd=below, KARAT_STORE="").out
    assert told.startswith(f"pushed models/nightly to {world.root / 'lager'}\n")
    assert (world.root / "lager" / "karat-store.json").is_file()
    world.run("ls", "models/nightly", KARAT_STORE="")
    world.run("verify", "store:models/nightly", cwd=below, KARAT_STORE="")
