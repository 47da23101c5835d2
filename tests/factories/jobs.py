"""Jobs of small shell commands, for engines to run."""

from __future__ import annotations

from typing import Any

from karat.engines.job import Command, Job, Role


def shell(text: str, role: Role = "measure", **more: Any) -> Command:
    return Command(role=role, argv=("sh", "-c", text), **more)


def job(*commands: Command | str, key: str = "job", **more: Any) -> Job:
    ready = (shell(each) if isinstance(each, str) else each for each in commands)
    return Job(key=key, commands=tuple(ready), **more)
