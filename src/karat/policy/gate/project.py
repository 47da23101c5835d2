"""Where the gate finds what it needs: exemptions, baseline and namespaces of a project."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

from karat.config import Config
from karat.policy import exemptions
from karat.policy.gate import baseline
from karat.policy.gate.decision import Asked
from karat.policy.gate.operators import walk


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """What a project says about its policy, read."""

    root: Path
    asked: Asked

    @property
    def baseline(self) -> Path:
        """The file of the ratchet."""
        return self.root / self.asked.ratchet.path


def project(
    config: Config, folder: Path, *, today: date, complete: bool, again: str | None = None
) -> Project:
    """The policy that holds in a folder; namespaces are walked only where all of them are judged."""
    settings = config.policy
    root = config.file.parent if config.file else folder
    walked = walk(settings.namespaces if complete else (), folder=root, exclude=settings.exclude)
    held = baseline.Ratchet(
        ops=walked.ops,
        aliases=walked.aliases,
        baseline=baseline.read(root / settings.baseline, settings.baseline),
        sure=not walked.findings,
        path=settings.baseline,
    )
    asked = Asked(
        exemptions=exemptions.read(root / settings.exemptions, settings.exemptions),
        devices=settings.devices,
        today=today,
        complete=complete,
        ratchet=msgspec.structs.replace(held, again=again) if again else held,
        findings=walked.findings,
    )
    return Project(root=root, asked=asked)


def places(words: Sequence[str], config: Config) -> list[Path]:
    """The folders with journals that were named, or the one that the configuration names."""
    if words or config.file is None:
        return [Path(word) for word in words or (config.policy.evidence,)]
    return [Path(os.path.relpath(config.file.parent / config.policy.evidence))]
