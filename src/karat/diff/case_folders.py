"""Which sides hold captured cases; it must be quick to say no, because most folders hold none."""

from __future__ import annotations

import os
from pathlib import Path

from karat.diff.sides import Bundles, Folder, Side

_MANIFEST = "manifest.json"
_OWN = ".karat"
_HEAD = 4096
_MARK = b'"karat.bundle/'


def holds_cases(side: Side) -> bool:
    """Whether a side is a zip, a store's reference, or a folder with the manifest of a captured case."""
    if isinstance(side, Folder):
        return _has_manifest(side.root)
    return isinstance(side, Bundles)


def _has_manifest(root: Path) -> bool:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != ".git" and not name.startswith(_OWN))
        if _MANIFEST in files and _is_manifest(Path(folder, _MANIFEST)):
            return True
    return False


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MARK in file.read(_HEAD)
    except OSError:
        return False  # whoever reads the folder will say so
