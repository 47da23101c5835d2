"""What requirements/dev.txt says: every package that CI and development install, by version and hashes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent.parent / "requirements" / "dev.txt"


@dataclass(frozen=True)
class LockedPackage:
    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]
    """Names of packages; `karat` and `karat:build` for what pyproject.toml names itself."""


def packages(text: str) -> list[LockedPackage]:
    """The entries of a file that `make lock` wrote."""
    found = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"\A(#.*\n)+", "", text)):
        head = re.match(r"(\S+?)(?:\[.*\])?==(\S+)(?: ; (.*?))?(?: \\)?$", block, re.MULTILINE)
        if head is None:
            raise ValueError(f"expected NAME==VERSION, found {block[:80]!r}")
        via = re.findall(r"^ +#(?: via)? +(\S.*)$", block, re.MULTILINE)
        found.append(
            LockedPackage(
                name=head[1],
                version=head[2],
                marker=head[3] or "",
                hashes=tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)),
                needed_by=tuple(re.sub(r" \(pyproject\.toml(:.*)?\)", r"\1", one) for one in via if one != "via"),
            )
        )
    return found
