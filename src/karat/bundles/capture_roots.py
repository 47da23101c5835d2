"""Where capture directories begin: a folder may be given that only holds one further down."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath

from karat.bundles.case_folders import HEAD, MANIFEST, capture_root, case_folders
from karat.bundles.extents import PartExtent, read_all
from karat.bundles.places import Place
from karat.findings import CannotVerify, UsageError
from karat.tensors.tensor import Damaged

_SHOWN = 5


def deeper_roots(place: Place) -> tuple[str, ...]:
    """The folders that capture directories begin at, if they lie in a folder and none is the folder itself."""
    files = place.files()
    deep = any(path.endswith(MANIFEST) and path.count("/") > 3 for path in files)
    if place.kind != "folder" or not deep:
        return ()
    roots = {
        capture_root(folder) for folder in case_folders(files, lambda path: _head(place, path))
    }
    return tuple(sorted(roots)) if "" not in roots else ()


def require_root(place: Place, command: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """UsageError where capture directories begin further down; `command` with them is to be run instead."""
    roots = [str(PurePath(place.name, root)) for root in deeper_roots(place)]
    if roots:
        more = ", …" if len(roots) > _SHOWN else ""
        raise UsageError(
            f"{place.name}: expected a capture directory, found what begins further down, at "
            f"{', '.join(roots[:_SHOWN])}{more}",
            next_command=shlex.join(command(roots)),
        )


def _head(place: Place, path: str) -> bytes:
    """The first bytes of a file; none if it cannot be read, which whoever reads it will say."""
    try:
        whole = place.extent(path)
        return read_all(PartExtent(whole=whole, start=0, size=min(HEAD, whole.size), name=path))
    except (CannotVerify, Damaged):
        return b""
