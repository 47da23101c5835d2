"""Which folders are captured cases; it must be quick to say that none is, because most trees hold none."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path

from karat.diff.sides import Bundles, Folder, Listing, Revision, Side
from karat.goldens import git

MANIFEST = "manifest.json"
_TENSORS = ("inputs.safetensors", "expected.safetensors")
_OWN = ".karat"
HEAD = 4096
_MARK = b'"karat.bundle/'
_DEPTH = 3
"""suite/flow/leaf."""


def folders_above(path: str) -> Iterator[str]:
    """Every folder that a path lies in, the outermost, the empty text, first."""
    yield ""
    for at, char in enumerate(path):
        if char == "/":
            yield path[:at]


def candidates(paths: Iterable[str]) -> Iterator[str]:
    """Manifests by name; many programs have one, and a capture session keeps unfinished ones."""
    for path in paths:
        if not path.endswith(MANIFEST):
            continue  # most are not, and a repository has many
        *folders, name = path.split("/")
        if name == MANIFEST and not any(folder.startswith(_OWN) for folder in folders):
            yield path


def case_folders(paths: Collection[str], head: Callable[[str], bytes]) -> frozenset[str]:
    """The folders that are cases: by what their manifest says, or by the tensors that lie beside it.

    A manifest that was damaged says nothing any more, and its case must not be lost for that. What lies
    inside a case is a file of it, whatever it is called.
    """
    found = {
        path[: -len(MANIFEST) - 1]
        for path in candidates(paths)
        if _MARK in head(path) or any(f"{path[: -len(MANIFEST)]}{t}" in paths for t in _TENSORS)
    }
    return frozenset(
        folder for folder in found if not (folder and found.intersection(folders_above(folder)))
    )


def capture_root(folder: str) -> str:
    """Where the capture directory of a case's folder begins, of which it is suite/flow/leaf."""
    return "/".join(folder.split("/")[:-_DEPTH])


def _has_case(root: Path) -> bool:
    """Whether a folder on disk holds a case somewhere; the first one decides."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != ".git" and not name.startswith(_OWN))
        if MANIFEST in files and (
            any(name in files for name in _TENSORS) or _is_manifest(Path(folder, MANIFEST))
        ):
            return True
    return False


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MARK in file.read(HEAD)
    except OSError:
        return False  # whoever reads the folder will say so


def may_hold_cases(old: Side, new: Side, listing: Listing | None) -> bool:
    """Whether there is anything to look for; it must be quick to say no."""
    if listing is not None:
        changes, tree = listing
        return any(candidates(chain(tree, (change.path for change in changes))))
    return any(_may_hold(side) for side in (old, new))


def _may_hold(side: Side) -> bool:
    if isinstance(side, Folder):
        return _has_case(side.root)
    if isinstance(side, Revision):
        return any(candidates(git.tree_paths(side.root, side.commit)))
    return isinstance(side, Bundles)
