"""Local requirements: packages that are installed from a folder or a file of this machine, seen from hunt.toml's folder."""

from __future__ import annotations

import re
from pathlib import Path

from karat.findings import UsageError
from karat.hunt.words import EDIT

# `./tools`, `../a.whl`, `tools/b[extra]`, `name @ ./tools`; what has a scheme, or is a name alone, is none.
_LOCAL = re.compile(
    r"(?P<name>[\w.-]+(?:\[[^\]]*\])?\s*@\s*)?"
    r"(?P<path>\.{1,2}|[^@\[;]*/[^\[;]*?|[^@\[;/]+\.(?:whl|zip|tar\.gz))"
    r"(?P<rest>\s*(?:\[[^\]]*\])?\s*(?:;.*)?)"
)
_SCHEME = re.compile(r"\w:")


def seen_from(root: Path, requirement: str) -> str:
    """A requirement with a whole path where it has one: an environment is made in its slot's folder, not beside hunt.toml."""
    found = _LOCAL.fullmatch(requirement.strip())
    if found is None or _SCHEME.search(requirement):
        return requirement
    path = root / found["path"]
    if not path.exists():
        raise UsageError(
            f"packages.requires: expected a folder or a file at {found['path']}, seen from hunt.toml's folder, found none",
            next_command=EDIT,
        )
    return f"{found['name'] or ''}{path}{found['rest']}"
