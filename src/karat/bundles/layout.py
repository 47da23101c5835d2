"""How captured cases lie in a tree: the names of their files, and which folders are cases.

Saying that a tree holds no case must be quick, because most hold none; so this module needs nothing else of the room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

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
    above = {path[: -len(MANIFEST)]: path for path in candidates(paths)}
    found = {
        folder[:-1]
        for folder, path in above.items()
        if any(f"{folder}{tensors}" in paths for tensors in TENSORS) or _MARK in head(path)
    }
    return frozenset(folder for folder in found if not (folder and found.intersection(folders_above(folder))))


def capture_root(folder: str) -> str:
    """Where the capture directory of a case's folder begins, of which it is suite/flow/leaf."""
    return "/".join(folder.split("/")[:-_DEPTH])


def is_of_zips(folder: Path) -> bool:
    """Whether a folder is what `karat pack` leaves: zips, their sums, and perhaps a folder of zips of single cases."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    own = (name.endswith(".zip") or name in {SUMS, "cases"} or name.startswith(OWN) for name in names)
    return all(own) and any(name.endswith(".zip") for name in names)
