"""Environments: one uv environment per version, kept in the slot that made it.

Three commands make one: an empty environment, the installation, and a mark that it is whole. A slot is nobody else's, so
nobody sees a half of one; one that was killed half-way has no mark, and is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from karat.engines.job import Command
from karat.findings import UsageError
from karat.hunt import installed_versions
from karat.hunt.index_address import plain_name

_SECONDS = 1800.0
_MARK = "karat-is-whole"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment holds, and where it is in a slot."""

    requirements: tuple[str, ...]
    python: str
    before: str = ""
    """Nothing that was uploaded later is taken; empty: anything is."""

    @property
    def key(self) -> str:
        """The same for the same contents."""
        said = json.dumps([self.requirements, self.python, self.before])
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def folder(self) -> str:
        """Where it is."""
        return f"@AREA@/environments/{self.key}"

    @property
    def program(self) -> str:
        """Its Python."""
        return f"{self.folder}/bin/python"

    def commands(self, uv: Sequence[str], env: Mapping[str, str]) -> tuple[Command, ...]:
        """What makes it, unless it is there, and tells what is in it."""
        mark = f"{self.folder}/{_MARK}"
        newest = ("--exclude-newer", self.before) if self.before else ()
        steps = (
            ("environment", (*uv, "venv", "--python", self.python, self.folder)),
            ("install", (*uv, "pip", "install", "--python", self.program, *newest, "--", *self.requirements)),
            ("mark", ("touch", mark)),
        )  # fmt: skip
        return (
            *(
                Command(role="prepare", name=name, argv=argv, env=env, timeout=_SECONDS, unless=("test", "-e", mark))
                for name, argv in steps
            ),
            Command(role="identify", name="versions", argv=(self.program, "-I", *installed_versions.words()), timeout=_SECONDS),
        )  # fmt: skip

    def around(self, command: Command, root: Path) -> Command:
        """A command with this environment before all others, in hunt.toml's folder."""
        path = command.env.get("PATH", os.environ.get("PATH", os.defpath))
        argv = command.argv
        if argv[0] in {"python", "python3"}:
            argv = (self.program, *argv[1:])
        return msgspec.structs.replace(
            command,
            argv=argv,
            cwd=str(root),
            env={
                # Empty is unset for these two: what they name would be imported before what is installed.
                "PYTHONPATH": "",
                "PYTHONHOME": "",
                **command.env,
                "VIRTUAL_ENV": self.folder,
                "PATH": f"{self.folder}/bin{os.pathsep}{path}",
            },
        )

    def installed(self, work: Path) -> Mapping[str, str]:
        """Package → version, as any slot below `work` has it; nothing where none has."""
        for mark in sorted(work.glob(f"*/environments/{self.key}/{_MARK}")):
            found = mark.parent.glob("lib/python*/site-packages/*.dist-info")
            names = [path.name.removesuffix(".dist-info").rpartition("-") for path in found]
            return {plain_name(name): version for name, _, version in names}
        return {}


def find_uv() -> tuple[str, ...]:
    """The words that begin a uv command."""
    if shutil.which("uv"):
        return ("uv",)
    from importlib.util import find_spec  # noqa: PLC0415 - only without uv on the PATH

    if find_spec("uv") is not None:
        return (sys.executable, "-m", "uv")
    raise UsageError(
        "the packages timeline needs uv, found none on the PATH and none beside karat",
        next_command="pip install 'karat[hunt]'",
    )
