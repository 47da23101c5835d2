"""Pages that are run: files that a page shows are written, its `$ commands` are run, and their output is compared.

A block whose first line is `# path` is a file. In a `console` block, a line that begins with `$ ` is a command for the shell,
and what follows is its output, where `…` stands for anything: as a line, for any lines. A command that is to fail ends with
`# exit code N`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|//) (\S+/?\.?\S*\.\w+)\n")
_CODE = re.compile(r"# exit code (\d+)")
_LANGUAGES = {"python", "toml", "yaml", "sh"}
_LOOSE = (
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:m?s|MB|kB)\b"), "0 s"),  # durations, and sizes that depend on versions
    (re.compile(r"\b[0-9a-f]{7,64}\b"), "0" * 7),  # commits and digests
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?: UTC)?)?"), "2026-01-01"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


class Block(NamedTuple):
    language: str
    text: str


class Step(NamedTuple):
    """A command of a page, and what it says that it prints."""

    command: str
    expected: str

    @property
    def code(self) -> int:
        found = _CODE.search(self.command)
        return int(found[1]) if found else 0


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        indent = found[1]
        yield Block(found[2], "".join(line.removeprefix(indent) for line in found[3].splitlines(keepends=True)))


def steps(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command += f"\n{more}"
        yield Step(command, expected)


class Shell:
    """A shell in a scratch folder, in which `karat` and `python` are these; it remembers where `cd` led."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = self.here = folder
        programs = folder.parent / f"{folder.name}-programs"
        programs.mkdir()
        for name, words in {"karat": "-m karat", "python": "", "pytest": "-m pytest -p no:cacheprovider"}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            (programs / name).chmod(0o755)
        identity = {"NAME": "Ada", "EMAIL": "ada@example.invalid"}
        calm = {
            k: v for k, v in os.environ.items() if not k.startswith(("CI", "GITHUB_", "GITLAB_", "KARAT_", "PYTEST_"))
        }
        self.environment: Mapping[str, str] = {
            **{f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in identity.items()},
            **calm,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "100",
            **environment,
        }

    def run(self, command: str) -> tuple[int, str]:
        """The exit code and all output of a command."""
        place = self.folder.parent / f"{self.folder.name}-programs" / "pwd"
        script = f'{command}\ncode=$?\npwd > "{place}"\nexit $code'
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.here, env=self.environment, capture_output=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self.here = Path(place.read_text(encoding="utf-8").strip())
        return done.returncode, done.stdout.replace(str(self.folder), "/home/me")


def show(page: str, shell: Shell) -> Iterator[tuple[Step, int, str]]:
    """Every command of a page with its exit code and output."""
    for block in blocks(page):
        named = _FILE.match(block.text)
        if block.language in _LANGUAGES and named:
            file = shell.here / named[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for step in steps(block.text):
                yield step, *shell.run(step.command)


def differences(page: str, shell: Shell) -> list[str]:
    """What a page says and its commands do not do."""
    found = []
    for step, code, output in show(page, shell):
        if code != step.code:
            found.append(f"$ {step.command}\nexit code {code}, the page says {step.code}\n{output}")
        elif not fits(step.expected, output):
            found.append(f"$ {step.command}\n--- the page\n{step.expected}--- printed\n{output}")
    return found


def fits(expected: str, printed: str) -> bool:
    """Whether a command printed what a page says, but for what is different on every run."""
    if not expected.strip():
        return True
    lines = _plain(expected).strip("\n").split("\n")
    pattern = "".join("(?:.*\n)*?" if line == "…" else f"{re.escape(line).replace('…', '.*')}\n" for line in lines)
    return re.fullmatch(pattern, _plain(printed).strip("\n") + "\n") is not None


def _plain(text: str) -> str:
    for pattern, instead in _LOOSE:
        text = pattern.sub(instead, text)
    return text
