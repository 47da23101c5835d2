"""Test suites of users, run by a real pytest with the installed plugin in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec

# What other people's plugins do is not tested here, and they take longer to load than a test to run.
_OTHERS = ("hypothesispytest", "anyio", "hydra_pytest", "kgb", "xdist.looponfail")
_OURS = ("KARAT_", "GOLDEN_", "CI", "GITHUB_", "GITLAB_", "BUILDKITE", "PYTEST_", "SOURCE_DATE_")
XDIST = ("-n", "4")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a run of pytest left."""

    code: int
    out: str

    def count(self, word: str) -> int:
        """How many tests had an outcome, from pytest's own last line."""
        last = self.out.rstrip().splitlines()[-1].replace(",", " ").split()
        return int(last[last.index(word) - 1]) if word in last else 0


class Suite:
    """A project with tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.captures = root / "captures"
        root.mkdir(parents=True, exist_ok=True)
        self.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\n")

    @classmethod
    def at(cls, root: Path) -> Suite:
        """One that is there already."""
        made = cls.__new__(cls)
        made.root, made.captures = root, root / "captures"
        return made

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def run(self, *words: str, **variables: str) -> Ran:
        """Pytest with these words, and these variables beside a clean environment."""
        off = [w for name in _OTHERS for w in ("-p", f"no:{name}")]
        return self.python("-m", "pytest", *off, *words, **variables)

    def capture(self, *words: str, **variables: str) -> Ran:
        """The same with capturing on."""
        return self.run("--karat-capture", str(self.captures), *words, **variables)

    def python(self, *words: str, **variables: str) -> Ran:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env=clean_environment() | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        return Ran(code=done.returncode, out=done.stdout)

    def manifests(self) -> list[dict[str, Any]]:
        """Those of all published cases, by path."""
        paths = sorted(self.captures.glob("*/*/*/manifest.json"))
        found = [msgspec.json.decode(path.read_bytes()) for path in paths]
        for path, manifest in zip(paths, found, strict=True):
            assert manifest["path"] == path.parent.relative_to(self.captures).as_posix()
        return found

    def tests(self) -> list[str]:
        """The names of the tests that left a case, with their subtests."""
        identities = [m["identity"] for m in self.manifests()]
        return sorted(f"{i['test']}|{i['subtest']}" for i in identities)

    def leftovers(self) -> list[str]:
        """What is staged although nothing runs."""
        return sorted(p.name for p in self.captures.glob(".karat/*/staging/*"))


def clean_environment() -> dict[str, str]:
    """Without what a CI, or the run that this test is part of, has set."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
