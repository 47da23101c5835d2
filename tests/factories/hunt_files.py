"""hunt.toml in a few words: settings with what a test cares for, and defaults for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from karat.engines.job import JobResult, Ran
from karat.hunts.hunt_toml import parse
from karat.hunts.model import Point
from karat.hunts.settings import HuntSettings
from karat.hunts.timelines.timeline import Workspace

POINT = Point(id="a", label="a", parts={"value": "a"})


def settings(probe: str = "", rest: str = "", *, command: str = '"probe"') -> HuntSettings:
    """A hunt over three values; `probe` goes into [probe] and below."""
    return parse(text(probe, rest, command=command), Path("hunt.toml"))


def text(probe: str = "", rest: str = "", *, command: str = '"probe"') -> str:
    """The same, as hunt.toml."""
    looked_at = "" if "probe." in probe else '[[probe.metrics]]\nname = "speed"\nregex = "SPEED: (.*)"\n'
    values = "" if "[values]" in rest else '[values]\nlist = ["a", "b", "c"]\n'
    stages = "" if "stages" in rest else 'stages = ["values"]\n'
    return f"{stages}{rest}\n{values}[probe]\ncommand = {command}\n{probe}\n{looked_at}"


def place(root: Path) -> Workspace:
    """Where a hunt of a test works."""
    return Workspace(root=root, work=root / "work", hunt="test")


def ran(output: str | bytes = "", **fields: Any) -> Ran:
    """One measured run that succeeded, but for what is said."""
    data = output.encode() if isinstance(output, str) else output
    return msgspec.structs.replace(Ran(role="measure", exit_code=0, output=data, seconds=1.5), **fields)


def result(*runs: Ran, **fields: Any) -> JobResult:
    """What came of a job with these commands."""
    made = JobResult(key="k", ran=runs, started=1000.0, seconds=2.0, where="here")
    return msgspec.structs.replace(made, **fields)
