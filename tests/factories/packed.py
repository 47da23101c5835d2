"""Packs, made and looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from karat.store.pack import Packed, PackOptions, pack

NAME = "golden_artifacts_26111504.zip"


def packed(tmp_path: Path, *roots: Path, out: str = "out", **options: Any) -> Packed:
    said = {"output": str(tmp_path / out), "combined": NAME, **options}
    return pack([str(root) for root in roots], PackOptions(**said))


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
