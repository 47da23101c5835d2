"""Jobs of small shell commands, for engines to run."""

from __future__ import annotations

from typing import Any

from karat.engines.job import Job, JobCommand, Role


def shell(text: str, role: Role = "measure", **more: Any) -> JobCommand:
    return JobCommand(role=role, argv=("sh", "-c", text), **more)


def job(*commands: JobCommand | str, key: str = "job", **more: Any) -> Job:
    ready = (shell(each) if isinstance(each, str) else each for each in commands)
    return Job(key=key, commands=tuple(ready), **more)
