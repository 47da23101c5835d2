"""Names from outside: git itself is asked which spellings it refuses, and none of them may pass here."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from karat.system.git import run_git
from karat.system.names import not_plain, refusal

EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
IGNORED = "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff"
"""What HFS+ leaves out of a name when it compares two."""


def spellings() -> list[str]:
    """Every case of `.git` and `git~1`, with what NTFS and HFS+ take away."""
    found = ["".join(letters) for letters in product(".", "gG", "iI", "tT")]
    found += ["".join(letters) for letters in product("gG", "iI", "tT", "~", "1")]
    ends = ["", ".", " ", "...", ". .", ":", "::$INDEX_ALLOCATION", ".::$DATA", " :x", "\\config"]
    found = [name + end for name in found for end in ends]
    found += [f"{'.git'[:at]}{char}{'.git'[at:]}" for char in IGNORED for at in range(5)]
    found += [f"{'.GiT'[:at]}{IGNORED}{'.GiT'[at:]}" for at in range(5)]
    return found


def refused_by_git(root: Path, paths: list[str]) -> set[str]:
    """Those that git does not take into an index."""
    run_git(root, "init", "-q")
    listed = "".join(f"100644 {EMPTY}\t{path}\0" for path in paths).encode()
    strict = ("-c", "core.protectNTFS=true", "-c", "core.protectHFS=true")
    run_git(root, "hash-object", "-w", "--stdin", data=b"")
    run_git(root, *strict, "update-index", "-z", "--index-info", data=listed)
    taken = run_git(root, "ls-files", "-z").decode().split("\0")
    return set(paths) - set(taken)


def test_what_git_refuses_is_refused_at_any_depth(tmp_path: Path) -> None:
    forms = ("{}", "{}/config", "a/{}", "a/b/{}/hooks/post-checkout")
    paths = [form.format(name) for name in spellings() for form in forms]
    refused = refused_by_git(tmp_path, paths)
    assert len(refused) > 900, "git is asked about what it refuses"
    assert [path for path in paths if refusal(path) is None] == []
    assert [path for path in refused if refusal(path) is None] == []


@pytest.mark.parametrize(
    "path",
    [
        ".gitignore", ".github/workflows/ci.yml", "git", "git~2", "x.git", "digit~1", ".gitx", ".git-old", "g.it",
        "a b/c.json", "é/ü.json", "x" * 255, "…", "a.b..c/d",
    ],
)  # fmt: skip
def test_plain_names_are_taken(path: str) -> None:
    assert refusal(path) is None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "is empty"),
        ("a//b", "is empty"),
        ("./a", "nothing but dots"),
        ("a/ /b", "nothing but dots"),
        ("a/.. /b", "nothing but dots"),
        ("a/../b", "climbs out"),
        ("/etc/passwd", "is absolute"),
        ("c:x", "is absolute"),
        ("a\\b", "backslash"),
        ("a\nb", "control character"),
        ("\ud800", "control character"),
        ("x" * 256, "at most 255 bytes"),
        ("é" * 128, "at most 255 bytes"),
        ("ab/" * 2000 + "c", "at most 4,000 bytes"),
        ("goldens/.GIT/config", "git's own"),
    ],
)
def test_a_refusal_says_why(path: str, said: str) -> None:
    assert said in (refusal(path) or "")


def test_what_is_no_plain_path_is_told_from_what_is_only_not_to_be_written() -> None:
    assert not_plain("a/.git/config") is None
    assert not_plain("a/../config") == "climbs out of its folder"
