"""Which folders are captured cases; it must be quick to say that none is, because most trees hold none."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from karat.bundles.places import OWN

MANIFEST = "manifest.json"
TENSORS = ("inputs.safetensors", "expected.safetensors")
HEAD = 4096
_MARK = b'"karat.bundle/'
_DEPTH = 3
"""suite/flow/leaf."""


def folders_above(path: str) -> Iterator[str]:
    """Every folder that a path lies in, the outermost, the empty text, first."""
    yield ""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def candidates(paths: Iterable[str]) -> Iterator[str]:
    """Manifests by name; many programs have one, and a capture session keeps unfinished ones."""
    for path in paths:
        if not path.endswith(MANIFEST):
            continue  # most are not, and a repository has many
        *folders, name = path.split("/")
        if name == MANIFEST and not any(folder.startswith(OWN) for folder in folders):
            yield path


def case_folders(paths: Collection[str], head: Callable[[str], bytes]) -> frozenset[str]:
    """The folders that are cases: by what their manifest says, or by the tensors that lie beside it.

    A manifest that was damaged says nothing any more, and its case must not be lost for that. What lies
    inside a case is a file of it, whatever it is called.
    """
    found = {
        path[: -len(MANIFEST) - 1]
        for path in candidates(paths)
        if has_tensors(path, paths) or _MARK in head(path)
    }
    return frozenset(
        folder for folder in found if not (folder and found.intersection(folders_above(folder)))
    )


def has_tensors(manifest: str, paths: Collection[str]) -> bool:
    """Whether tensors lie beside a manifest, whatever it says."""
    return any(f"{manifest[: -len(MANIFEST)]}{tensors}" in paths for tensors in TENSORS)


def capture_root(folder: str) -> str:
    """Where the capture directory of a case's folder begins, of which it is suite/flow/leaf."""
    return "/".join(folder.split("/")[:-_DEPTH])


def is_strangers(data: bytes) -> bool:
    """Whether a manifest is sound, and of another program; of one that is damaged nobody can say so."""
    if _MARK in data[:HEAD]:
        return False
    try:
        said = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return not (isinstance(said, dict) and "identity" in said and "comparator" in said)


def has_case(root: Path) -> bool:
    """Whether a folder on disk holds a case somewhere; the first one decides."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != ".git" and not name.startswith(OWN))
        if MANIFEST in files and (
            any(name in files for name in TENSORS) or _is_manifest(Path(folder, MANIFEST))
        ):
            return True
    return False


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MARK in file.read(HEAD)
    except OSError:
        return False  # whoever reads the folder will say so
