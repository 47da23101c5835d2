"""The hunts of examples/hunts can be read, and say what they must find; `make hunts` runs them on the package index."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from karat.hunts.hunt_toml import read
from karat.hunts.settings import split_command

HUNTS = sorted((Path(__file__).parents[2] / "examples" / "hunts").iterdir())


def test_there_are_at_least_eight() -> None:
    assert len(HUNTS) >= 8


@pytest.mark.parametrize("folder", HUNTS, ids=lambda folder: folder.name)
def test_a_hunt_names_its_issue_and_what_it_must_find(folder: Path) -> None:
    settings, text = read(folder / "hunt.toml"), (folder / "hunt.toml").read_text(encoding="utf-8")
    expected = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    assert settings.name == folder.name
    assert settings.packages is not None
    assert (folder / split_command(settings.probe.command)[1]).is_file()
    assert expected["issue"] in text.splitlines()[0]
    metrics = {metric.name for metric in settings.probe.metrics} or {"crash"}
    assert expected["changes"]
    assert {metric for metric, _, _ in expected["changes"]} <= metrics
