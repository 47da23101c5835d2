"""How captured cases lie in a tree: the names of their files, and which folders are cases.

Saying that a tree holds no case must be quick, because most hold none; so this module needs nothing else of the room.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec

OWN = ".karat"  # What starts with it at the root are the records of capture sessions.
SUMS = "SHA256SUMS"  # What `karat pack` writes beside its zips.
MANIFEST = "manifest.json"
TENSORS = ("inputs.safetensors", "expected.safetensors")
HEAD = 4096
_MARK = b'"karat.bundle/'
_DEPTH = 3  # suite/flow/leaf.


def folders_above(path: str) -> Iterator[str]:
    """Every folder above a path, outermost first, starting with the empty text."""
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
    ours = (path for path in candidates(paths) if has_tensors(path, paths) or _MARK in head(path))
    found = {path[: -len(MANIFEST) - 1] for path in ours}
    return frozenset(folder for folder in found if not (folder and found.intersection(folders_above(folder))))


def has_tensors(manifest: str, paths: Collection[str]) -> bool:
    """Whether tensors lie beside a manifest, whatever it says."""
    return any(f"{manifest[: -len(MANIFEST)]}{tensors}" in paths for tensors in TENSORS)


def capture_root(folder: str) -> str:
    """Where the capture directory of a case's folder begins, of which it is suite/flow/leaf."""
    return "/".join(folder.split("/")[:-_DEPTH])


def is_other_programs(data: bytes) -> bool:
    """Whether a manifest is intact and of another program; one that is damaged may be ours."""
    if _MARK in data[:HEAD]:
        return False
    try:
        content = msgspec.json.decode(data)
    except (ValueError, RecursionError):  # msgspec's are among the former
        return False
    return not (isinstance(content, dict) and "identity" in content and "comparator" in content)


def has_case(root: Path) -> bool:
    """Whether a folder on disk holds a case somewhere; the first one decides."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != ".git" and not name.startswith(OWN))
        if MANIFEST in files and (any(name in files for name in TENSORS) or _is_manifest(Path(folder, MANIFEST))):
            return True
    return False


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MARK in file.read(HEAD)
    except OSError:
        return False  # whoever reads the folder will say so


def is_of_zips(folder: Path) -> bool:
    """Whether there are zips in a folder and no file of another kind."""
    found = False
    for _, folders, files in os.walk(folder):
        folders.sort()
        if any(not file.endswith(".zip") and file != SUMS for file in files):
            return False
        found = found or any(file != SUMS for file in files)
    return found
