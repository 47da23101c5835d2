"""Faults: a thousand mishaps to packed, stored and captured bundles; each is noticed, or harmless by a rule that is named here.

A fault that goes by is a bug: `verify` must object, and neither loading nor `karat diff --all` may take what is damaged for
what it was, nor work for more than a minute. Run: make soak-faults
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

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

Values = dict[str, Any]


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One set of cases in every form, and what they hold."""

    captures: Path
    zips: tuple[bytes, ...]
    packed: Path
    unpacked: Path
    store: Path
    values: Values


def make_world(top: Path) -> World:
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
    packed = top / "zstd"
    return World(
        captures=captures,
        zips=tuple(zips),
        packed=packed,
        unpacked=top / "unpacked",
        store=top / "store",
        values=values,
    )


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


def make_like(folder: Path, original: Path) -> None:
    """Undoes a mishap; cheaper than a new copy for each."""
    for path in folder.rglob("*"):
        if path.is_file() and not (original / path.relative_to(folder)).is_file():
            path.unlink()
    for path in original.rglob("*"):
        there = folder / path.relative_to(original)
        if path.is_file() and not (there.is_file() and there.read_bytes() == path.read_bytes()):
            shutil.copy2(path, there)


LINK = "a link that is gone was never there; the reference itself is, and has every bit"
INDEX = "without its index a folder is any folder of cases, and nothing of them is lost"
RULES: dict[str, Callable[[str], str | None]] = {
    "zip": lambda _: None,
    "packed": lambda _: None,
    "store": lambda what: LINK if what.startswith("lose links/models/") else None,
    "captures": lambda _: None,
    "unpacked": lambda what: INDEX if what == "lose index.json" else None,
}
"""What is hit, and the rule by which a fault that is not noticed is harmless; None if it is a bug."""


def plant(world: World, kind: str, seeds: range, work: Path) -> Iterator[str]:
    """Hit a copy of a part of the world once for each seed: `noticed`, or the rule; an AssertionError names a bug."""
    work.mkdir(exist_ok=True)
    folder, original = work / kind, {"packed": world.packed, "store": world.store}.get(kind, world.captures)
    original = world.unpacked if kind == "unpacked" else original
    if kind != "zip":
        shutil.copytree(original, folder)
    for seed in seeds:
        rng = random.Random(seed)
        if kind == "zip":
            whole = world.zips[seed % len(world.zips)]
            how = rng.choice((*ANYWHERE, *IN_ZIPS))
            folder = work / "a.zip"
            folder.write_bytes(how(whole, rng))
            what = how.__name__
        else:
            what = befall_files(folder, rng)
        words = [f"{folder}#models/{name}" for name in ("nightly", "weekly")] if kind == "store" else [str(folder)]
        named = f"{kind} {seed}: {what}"
        with _a_minute(named):
            if kind != "packed":  # which is no place of cases, but of zips
                assert_no_match(words[seed % len(words)], world, named)
            told = "noticed" if noticed(str(folder)) else RULES[kind](what)
            assert told, f"{named}: not noticed"
            if kind == "store" and told != "noticed":
                assert all(told_or_same(word, world) for word in words), named
        yield told
        if kind != "zip":
            make_like(folder, original)


@contextmanager
def _a_minute(what: str) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"{what}: still at work after a minute")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    parser = argparse.ArgumentParser(prog="planted", description="Plant faults, and see which go by.")
    parser.add_argument("--faults", type=int, default=1000, help="in all")
    parser.add_argument("--seed", type=int, default=18)
    said = parser.parse_args()
    failed = 0
    with TemporaryDirectory(prefix="karat-faults-") as name:
        world = make_world(Path(name))
        for place, kind in enumerate(RULES):
            count = said.faults // len(RULES) + (place < said.faults % len(RULES))
            told: Counter[str] = Counter()
            for number in range(count):
                seed = said.seed * said.faults + number
                try:
                    told.update(plant(world, kind, range(seed, seed + 1), Path(name) / f"{kind}-{number}"))
                except AssertionError as error:
                    failed += 1
                    sys.stdout.write(f"BUG: {error}\n")
                shutil.rmtree(Path(name) / f"{kind}-{number}")
            words = ", ".join(f"{many} {word}" for word, many in told.most_common())
            sys.stdout.write(f"{kind:9} {count:4} faults: {words}\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
