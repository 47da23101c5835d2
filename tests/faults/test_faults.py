"""A thousand mishaps to packed and stored bundles: each is noticed, and none gives other values."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest

from factories.captured import capture_many
from factories.mishaps import ANYWHERE, IN_ZIPS, befall_files
from karat.bundles.cases import Case, cases
from karat.bundles.places import open_place
from karat.compare.change import Verdict
from karat.diffs.diff import DiffOptions, diff_sides
from karat.diffs.sides import AnyFolder, Bundles
from karat.findings import ExitCode, KaratError, Severity, exit_code
from karat.store.backends import open_backend
from karat.store.pack import PackOptions, pack
from karat.store.place import open_word
from karat.store.push import PushOptions, gather, push
from karat.store.verify import verify_target
from karat.tensors.tensor import Damaged

ZIPS, STORES, FOLDERS = 700, 300, 160
Values = dict[str, Any]


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One set of cases in every form, and what they hold."""

    captures: Path
    zips: tuple[bytes, ...]
    unpacked: Path
    store: Path
    values: Values


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    top = tmp_path_factory.mktemp("world")
    captures = capture_many(top / "captures", 2)
    zips = []
    for compression in ("stored", "deflate", "zstd"):
        out = top / compression
        options = PackOptions(output=str(out), combined="all.zip", compression=compression)
        assert pack([str(captures)], options).exit_code == 0
        zips += [(out / "all.zip").read_bytes(), next((out / "cases").rglob("*.zip")).read_bytes()]
    shutil.unpack_archive(top / "stored" / "all.zip", top / "unpacked")
    place = open_place(captures)
    for name in ("models/nightly", "models/weekly"):
        push(open_backend(str(top / "store")), gather(place).values(), name, PushOptions(workers=2))
    values = loaded(str(captures))
    assert len(values) == 4
    return World(captures=captures, zips=tuple(zips), unpacked=top / "unpacked", store=top / "store", values=values)


def loaded(word: str) -> Values:
    """Path → all values of the cases that can be loaded; what cannot be is an error of karat's own."""
    try:
        place = open_word(word)
    except KaratError:
        return {}
    try:
        return dict(_each(cases(place)))
    except (KaratError, Damaged):
        return {}
    finally:
        place.close()


def _each(found: tuple[Case, ...]) -> Iterator[tuple[str, Any]]:
    for case in found:
        try:
            inputs, expected = case.inputs().value, case.expected().value
            program = _program(case)
        except (KaratError, Damaged):
            continue
        yield case.path, (_plain(inputs), _plain(expected), program)


def _program(case: Case) -> bytes:
    with TemporaryDirectory() as folder:
        case.copy_program(Path(folder) / "program")
        return (Path(folder) / "program").read_bytes()


def _plain(value: Any) -> Any:
    """With every bit of every array, and nothing that compares by identity."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def noticed(word: str) -> bool:
    """Whether `karat verify` objects; whatever it does, it does not crash."""
    try:
        told = verify_target(word)
    except KaratError as error:
        return error.exit_code != ExitCode.OK
    grave = any(finding.severity is Severity.FAIL for finding in told.findings)
    assert grave == (exit_code(told.findings) is not ExitCode.OK)
    return grave


def told_or_same(word: str, world: World) -> bool:
    """Whoever asks for it is told that it is not there, or has every bit of every value."""
    return loaded(word) in ({}, world.values)


def assert_no_match(word: str, world: World, what: str) -> None:
    """Neither loading nor `karat diff --all` takes what is damaged for what it was."""
    values = loaded(word)
    for path, value in values.items():
        assert world.values.get(path) == value, f"{what}: other values of {path}"
    old = AnyFolder(world.captures, "old")
    here = Path(word)
    new = AnyFolder(here, word) if here.is_dir() else Bundles(here.parent, word, word)
    try:
        told = diff_sides(old, new, DiffOptions(everything=True))
    except (KaratError, Damaged):
        return
    same = {change.path for change in told.changes if change.verdict is Verdict.SAME}
    assert same <= values.keys(), f"{what}: called the same although it cannot be loaded"
    assert told.unchanged == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_mishaps_to_zips(world: World, tmp_path: Path, part: int) -> None:
    path = tmp_path / "a.zip"
    unnoticed = []
    for seed in range(part, ZIPS, 4):
        rng = random.Random(seed)
        original = world.zips[seed % len(world.zips)]
        how = rng.choice((*ANYWHERE, *IN_ZIPS))
        path.write_bytes(how(original, rng))
        what = f"{seed}: {how.__name__}"
        assert_no_match(str(path), world, what)
        unnoticed += [] if noticed(str(path)) else [what]
    assert unnoticed == [], "no byte of a zip means nothing"


@pytest.mark.slow
def test_mishaps_to_stores(world: World, tmp_path: Path) -> None:
    harmless = []
    store = tmp_path / "store"
    shutil.copytree(world.store, store)
    for seed in range(STORES):
        what = f"{seed}: {befall_files(store, random.Random(seed))}"
        words = [f"{store}#models/{name}" for name in ("nightly", "weekly")]
        assert_no_match(words[seed % 2], world, what)
        if not noticed(str(store)):
            assert all(told_or_same(word, world) for word in words), what
            harmless.append(what)
        make_like(store, world.store)
    # A link that is gone was never there; the reference is. All else in a store is sealed, and no other fault goes by.
    assert [what for what in harmless if ": lose links/models/" not in what] == []
    assert len(harmless) < STORES // 20


@pytest.mark.slow
def test_mishaps_to_folders(world: World, tmp_path: Path) -> None:
    unnoticed = []
    for original in (world.captures, world.unpacked):
        folder = tmp_path / original.name
        shutil.copytree(original, folder)
        for seed in range(FOLDERS // 2):
            what = f"{original.name} {seed}: {befall_files(folder, random.Random(seed))}"
            assert_no_match(str(folder), world, what)
            unnoticed += [] if noticed(str(folder)) else [what]
            make_like(folder, original)
    # Without its index a folder is any folder of cases, and nothing of them is lost.
    assert [what for what in unnoticed if not what.endswith("lose index.json")] == []


def make_like(folder: Path, original: Path) -> None:
    """Undoes a mishap; cheaper than a new copy for each."""
    for path in folder.rglob("*"):
        if path.is_file() and not (original / path.relative_to(folder)).is_file():
            path.unlink()
    for path in original.rglob("*"):
        there = folder / path.relative_to(original)
        if path.is_file() and not (there.is_file() and there.read_bytes() == path.read_bytes()):
            shutil.copy2(path, there)


def test_a_thousand(world: World) -> None:
    assert ZIPS + STORES == 1000
    assert len(world.zips) == 6
    for word in (world.captures, world.unpacked, world.store, f"{world.store}#models/nightly"):
        assert not noticed(str(word)), "what is whole is not objected to"
