"""Somebody saves a golden in an editor while karat writes it: nothing that was typed is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from factories.editors import STYLES, editing
from factories.listed import job
from factories.repositories import Repository, golden_path
from factories.worlds import H100, NEW, OLD, World, logs, member, options
from karat.findings import CannotVerify
from karat.goldens.paths import PathFilter
from karat.refreshes.report import State
from karat.refreshes.worktree import apply_reset, plan_reset
from karat.runs.record import RecordOptions, record

SAVES, PAUSE = 1000, 0.003
PATTERN = OLD.replace('"50": 9', '"50": NUMBER', 1)
GOLDEN = golden_path("a")


@pytest.fixture
def world(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(repository.root)
    return World(repository, tmp_path / "cache")


def refresh(world: World, number: int) -> bool:
    text = (OLD, NEW)[number % 2]
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): text})], options())
    return result.outcomes[0].state is State.WRITTEN


def record_run(world: World, number: int) -> bool:
    run = world.folder.parent / f"run{number % 2}.json"
    run.write_text((OLD, NEW)[number % 2])
    result, _ = record(world.repository.root / GOLDEN, [str(run)], RecordOptions(accept_incomplete=True))
    return result.state == "written"


def reset(world: World, _: int) -> bool:
    return bool(apply_reset(plan_reset(world.repository.root, PathFilter(options().globs), options().globs)))


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("command", [refresh, record_run, reset])
def test_an_editor_beside_karat_loses_no_save(command: Callable[[World, int], bool], style: str, world: World) -> None:
    assert "NUMBER" in PATTERN
    times = written = 0
    with editing(world.repository.root / GOLDEN, style, times=SAVES, pause=PAUSE, pattern=PATTERN) as editor:
        while editor.is_saving:
            with suppress(CannotVerify):  # saved meanwhile: to be run again
                written += command(world, times)
            times += 1
        saved, lost = editor.lost(world.repository)
    print(command.__name__, style, saved, times, written)
    assert saved == SAVES
    assert written > 0
    assert lost == []
