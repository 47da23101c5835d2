"""Layouts: what a tree keeps as goldens, recognised, and the karat.toml that says so.

In: a folder. Out: a `Start` with the layouts, the files that karat would watch, and the text of a commented karat.toml.
Nothing is written here. A layout is recognised by content; names only say which files to open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from karat.config import load_preset
from karat.findings import CannotVerify
from karat.goldens import formats
from karat.goldens.paths import DEFAULT_GLOBS, Globs, PathFilter, files_below
from karat.goldens.shapes import Golden, Series, Table
from karat.report.words import count
from karat.system import git
from karat.system.foreign.limits import GOLDEN, read_plain

_MEGATRON = {"lm loss", "num-zeros", "iteration-time", "mem-allocated-bytes"}
_ACCURACY = {"accuracy", "graph_breaks"}
_LOOKED_AT = 20  # Files of one folder that are opened to recognise it.
_PYTEST = Globs(("**/pytest.ini", "**/conftest.py", "**/test_*.py", "**/*_test.py"))
_SENTENCES = {
    "megatron-lm": "curves of training tests, golden_values_*.json. The preset has the suite's own thresholds, and knows"
    " where its CI leaves new values",
    "pytorch-dynamo": "tables of expected accuracy. The preset has the suite's own gate, and knows where its CI leaves new values",
    "losses": "text files with a step and a value on each line, as torchtitan keeps them",
    "goldens": "files that are called or kept as goldens",
    "pytest": "tests. `golden.series`, `golden.table` and `golden.tensors` keep goldens in a folder `goldens` beside a test",
}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One way of keeping goldens that the tree shows."""

    name: str
    says: str
    goldens: int
    """How many files there are of it; of pytest, none yet."""
    paths: tuple[str, ...]
    """The globs that find them."""
    example: str = ""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree needs to begin with."""

    file: str
    """The karat.toml to write."""
    preset: str | None
    paths: tuple[str, ...]
    """The globs of the goldens that karat would watch."""
    goldens: int
    layouts: tuple[Layout, ...]
    toml: str


def recognise(root: Path) -> Start:
    """The layouts of the tree at `root`, the one with most goldens first, and a karat.toml; fails if there is none."""
    repository = git.find_root(root)
    files = files_below(root) if repository is None else sorted(git.work_tree_files(root))
    layouts = list(_layouts(root, files))
    if not layouts:
        raise CannotVerify(
            f"expected goldens or tests below {root}, found none in {count(len(files), 'file')}",
            next_command="karat help record",
        )
    preset = next((one.name for one in layouts if one.name in {"megatron-lm", "pytorch-dynamo"}), None)
    known = tuple(load_preset(preset).paths) if preset else DEFAULT_GLOBS
    more = {glob for one in layouts for glob in one.paths} - {*known}
    # A preset's globs stand in its place, unless others are needed beside them.
    paths = (*known, *sorted(more))
    watched = sum(map(PathFilter(paths), files))
    text = "\n\n".join(_sections(layouts, preset, paths if more else (), git.origin(root) if repository else None))
    return Start(
        file=str(root / "karat.toml"),
        preset=preset,
        paths=paths,
        goldens=watched,
        layouts=tuple(layouts),
        toml=text + "\n",
    )


def _layouts(root: Path, files: Sequence[str]) -> Iterator[Layout]:
    left = files
    found = []
    for name, loose, fits in (
        ("megatron-lm", "golden_values*.json", lambda one: isinstance(one, Series) and _MEGATRON & one.metrics.keys()),
        ("pytorch-dynamo", "*.csv", lambda one: isinstance(one, Table) and _ACCURACY & {*one.columns}),
        ("losses", "*.txt", lambda one: isinstance(one, Series)),
    ):
        # One curve says that all of a suite's goldens are its own; elsewhere each folder has to show it.
        taken = _with_content(root, left, Globs((f"**/{loose}",)), fits, by_folder=name != "megatron-lm")
        if taken:
            own = PathFilter(load_preset(name).paths) if name != "losses" else PathFilter(DEFAULT_GLOBS)
            folders = {str(PurePosixPath(path).parent) for path in taken if not own(path)}
            paths = [f"{folder}/{loose}" if folder != "." else loose for folder in sorted(folders)]
            if len(paths) > 3:  # one for all of a folder's sub-folders
                above = os.path.commonpath(folders)
                paths = [f"{above}/**/{loose}" if above else f"**/{loose}"]
            found.append(_layout(name, taken, paths))
            inside = {*taken}
            left = [path for path in left if path not in inside and not own(path)]
    if goldens := [*filter(PathFilter(DEFAULT_GLOBS), left)]:
        found.append(_layout("goldens", goldens, ()))
    yield from sorted(found, key=lambda layout: -layout.goldens)
    if tests := [*filter(_PYTEST.fullmatch, files)]:
        yield msgspec.structs.replace(_layout("pytest", tests, ()), goldens=0)


def _layout(name: str, files: Sequence[str], paths: Sequence[str]) -> Layout:
    return Layout(name=name, says=_SENTENCES[name], goldens=len(files), paths=tuple(paths), example=files[0])


def _with_content(
    root: Path, files: Sequence[str], globs: Globs, fits: Callable[[Golden], object], *, by_folder: bool
) -> list[str]:
    """The files of each folder of which one, among the first, is what is looked for."""
    folders: dict[str, list[str]] = {}
    for path in filter(globs.fullmatch, files):
        folders.setdefault(path.rpartition("/")[0] if by_folder else "", []).append(path)

    def is_one(path: str) -> bool:
        try:
            golden = formats.read(read_plain(root / path, GOLDEN)).golden
        except (OSError, ValueError):
            return False
        return golden is not None and bool(fits(golden))

    return [path for paths in folders.values() if any(map(is_one, paths[:_LOOKED_AT])) for path in paths]


def _sections(
    layouts: Sequence[Layout], preset: str | None, paths: Sequence[str], origin: tuple[str, str] | None
) -> Iterator[str]:
    yield "# Written by karat init; change what you like. `karat config --show-origin` says what holds, and why."
    for one in layouts:
        many = (
            f" ({count(one.goldens, 'file')}, such as {msgspec.json.encode(one.example).decode()})"
            if one.goldens
            else ""
        )
        yield f"# {one.name}{many}:\n#   {one.says}." + (f'\npreset = "{one.name}"' if one.name == preset else "")
    listed = "".join(f"\n    {msgspec.json.encode(path).decode()}," for path in paths)
    held = (
        f"paths = [{listed}\n]"
        if paths
        else '# paths = ["tests/goldens/**/*.json"]   # instead of what karat finds by itself'
    )
    yield f'# Which files are goldens. Captured cases are found wherever they are, by their manifest.json.\n[goldens]\n{held}\n# exclude = ["**/old/**"]'
    host, name = origin or ("", "OWNER/NAME")
    key = "project" if "gitlab" in host else "repo"
    said = f"{key} = {msgspec.json.encode(name).decode()}"
    yield "# Where `karat refresh` looks for CI runs.\n" + (f"[refresh]\n{said}" if host else f"# [refresh]\n# {said}")
    if preset is None:
        yield (
            "# How far a metric may move before `karat check` and `karat diff` object; `karat tolerance` derives these from"
            ' repeats.\n# [[rules]]\n# metric = "loss"\n# rtol = 0.001'
        )
