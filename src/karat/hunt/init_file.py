"""A new hunt.toml: a preset, with what the folder itself says filled in."""

from __future__ import annotations

import json
import os
import re
from importlib import resources
from pathlib import Path

from karat.findings import CannotVerify, UsageError, suggest

PRESETS = {
    "git": "the commits of this repository",
    "jax-nightly": "nightly images, then hourly checkouts, then commits",
    "pypi": "released versions of a Python package",
}
_HOW_FAR = 200
"""Commits back where the repository has no tag to begin at."""


def preset(name: str) -> str:
    """The text of a preset, as it stands."""
    if name not in PRESETS:
        raise UsageError(
            f"no preset of a hunt is called {name!r}{suggest(name, list(PRESETS))}; there are {', '.join(PRESETS)}",
            next_command="karat hunt init --help",
        )
    file = resources.files("karat").joinpath("hunt", "presets", f"{name}.toml")
    return file.read_text(encoding="utf-8")


def text(name: str, folder: Path) -> str:
    """A preset with what `folder` says filled in: its repository's name, branch and newest tag."""
    found = preset(name)
    if "@NAME@" not in found:
        return found
    known = _repository(folder)
    return re.sub(r"@([A-Z]+)@", lambda slot: known[slot[1]], found)


def _repository(folder: Path) -> dict[str, str]:
    from karat.goldens.git import find_root, resolve  # noqa: PLC0415 - not every preset asks git

    root = find_root(folder)
    if root is None:
        raise UsageError(
            f"expected {folder} to be in a git repository, whose commits the preset git hunts, found none",
            next_command="karat hunt init --preset pypi",
        )
    if resolve(root, "HEAD") is None:
        raise UsageError(
            f"expected commits in {root}, found none", next_command="git log --oneline -5"
        )
    name = json.dumps(re.sub(r"[^A-Za-z0-9_-]+", "-", root.name).strip("-") or "repository")
    url = _quoted(os.path.relpath(root, folder.resolve()))
    return {"NAME": name, "KEY": name, "URL": url, "BRANCH": _branch(root), "GOOD": _good(root)}


def _branch(root: Path) -> str:
    found = _said(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    return _quoted(found or _said(root, "rev-parse", "HEAD"))


def _good(root: Path) -> str:
    """The newest tag before HEAD, or a commit some way back, or the first there is."""
    tag = _said(root, "describe", "--tags", "--abbrev=0", "HEAD^")
    if tag:
        return _quoted(tag)
    return _quoted(
        _said(root, "rev-list", "--first-parent", f"--max-count={_HOW_FAR}", "HEAD").split()[-1]
    )


def _said(root: Path, *arguments: str) -> str:
    """Git's answer; nothing where it has none."""
    from karat.goldens.git import run_git  # noqa: PLC0415 - not every preset asks git

    try:
        return run_git(root, *arguments).decode("utf-8", "replace").strip()
    except CannotVerify:
        return ""


def _quoted(text: str) -> str:
    """A TOML text; JSON's form is one."""
    return json.dumps(text, ensure_ascii=False)
