"""Somebody saves a golden in an editor while karat writes it: nothing that was typed is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from factories.editors import STYLES, editing
from factories.listed import job
from factories.repositories import Repository, golden_path
from factories.worlds import H100, NEW, OLD, World, kinds, logs, member, options
from karat.findings import CannotVerify
from karat.goldens.paths import PathFilter
from karat.goldens.provenance import NAME, LockEntry, encode_lock, read_lock, write_lock
from karat.refreshes.report import State
from karat.refreshes.worktree import apply_reset, plan_reset, render
from karat.runs.record import RecordOptions, record
from karat.system.files import _renameat2
from karat.system.git import only_writer

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
    assert saved == SAVES
    assert written > 0
    assert lost == []


def test_a_golden_that_is_saved_after_the_decision_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.repository.root / GOLDEN

    def save_then_render(*words: Any, **more: Any) -> bytes:
        path.write_text(PATTERN)
        return render(*words, **more)

    monkeypatch.setattr("karat.refreshes.apply.render", save_then_render)
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], options())
    assert path.read_text() == PATTERN
    assert kinds(result) == ["not-refreshed"]
    assert "saved meanwhile; it was left alone" in next(result.all_findings()).message


def test_a_save_at_the_last_moment_is_with_git_and_can_be_had_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last look, right before the names are exchanged."""
    path = world.repository.root / GOLDEN

    def save_then_rename(one: Path, other: Path, flags: int) -> bool:
        if other == path:
            path.write_text(PATTERN)
        return _renameat2(one, other, flags)

    monkeypatch.setattr("karat.system.files._renameat2", save_then_rename)
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], options())
    assert path.read_text() == NEW
    (kept,) = [f for f in result.all_findings() if f.kind == "kept-edits"]
    subprocess.run(["bash", "-c", str(kept.next)], check=True)
    assert path.read_text() == PATTERN


def test_lines_of_a_lock_that_is_saved_meanwhile_are_put_together(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, line = repository.root / NAME, LockEntry(source="github", sha256="0" * 64)
    write_lock(file, {"a.json": line})
    typed = [{"a.json": line, "typed.json": line}, {"a.json": line, "typed.json": line, "later.json": line}]

    def save_then_rename(one: Path, other: Path, flags: int) -> bool:
        if typed:
            file.write_bytes(encode_lock(typed.pop(0)))
        return _renameat2(one, other, flags)

    monkeypatch.setattr("karat.system.files._renameat2", save_then_rename)
    assert write_lock(file, {"new.json": line})
    assert set(read_lock(file)) == {"a.json", "typed.json", "later.json", "new.json"}


def test_what_a_killed_writer_left_is_with_git(repository: Repository) -> None:
    with only_writer(repository.root) as workshop:
        (workshop / ".golden.json.0.tmp").write_text("typed")
    with only_writer(repository.root):
        pass
    found = repository.git("cat-file", "--batch-all-objects", "--batch")
    assert "typed" in found
