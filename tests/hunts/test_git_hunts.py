"""Whole hunts over git histories: what only shows when everything works together."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from factories.histories import HOUR, NOON, History
from karat.engines.job import EngineSettings, open_engine
from karat.hunts import hunt_toml
from karat.hunts.driver import run_hunt
from karat.hunts.hunt import hunt_row
from karat.hunts.hunt_toml import workspace_of
from karat.hunts.journal import Journal
from karat.hunts.model import HuntReport
from karat.hunts.report.terminal import Listener
from karat.hunts.settings import CheckoutSettings, RepositorySettings

PROBE = """
[probe]
command = {command}
[[probe.metrics]]
name = "speed"
regex = '([0-9.]+)'
better = "higher"
"""


def hunted(folder: Path, text: str, command: str, *sources: History) -> HuntReport:
    file = folder / "hunt.toml"
    listed = "".join(f"[[repositories]]\nname = '{s.root.name}'\nurl = '{s.root}'\n" for s in sources)
    file.write_text(text + PROBE.format(command=command) + listed, encoding="utf-8")
    settings = hunt_toml.read(file)
    place = workspace_of(file, settings)
    with (
        Journal.create(folder / "j.hunt", hunt_row(file, settings, place)) as journal,
        closing(open_engine(EngineSettings(slots=2), place.work)) as engine,
    ):
        return run_hunt(settings, place, engine, journal, Listener())


@pytest.mark.slow
def test_a_merge_is_followed_and_commits_that_do_not_build_are_a_range(tmp_path: Path) -> None:
    source = History(tmp_path / "r")
    source.at(NOON, "root", v="100", build="true")
    source.at(NOON + HOUR, "fine", w="1")
    source.git("checkout", "--quiet", "-b", "side")
    source.at(NOON + 2 * HOUR, "side 0", s="0")
    slow = source.at(NOON + 3 * HOUR, "side 1: slower", v="90")
    source.at(NOON + 4 * HOUR, "side 2", s="2")
    source.git("checkout", "--quiet", "main")
    source.at(NOON + 5 * HOUR, "meanwhile", w="2")
    source.merge(NOON + 6 * HOUR, "side")
    source.at(NOON + 7 * HOUR, "after", w="3")
    broken = [source.at(NOON + (8 + i) * HOUR, f"no build {i}", build="false") for i in range(2)]
    fixed = source.at(NOON + 10 * HOUR, "builds again", build="true", v="80")
    source.at(NOON + 11 * HOUR, "last", w="4")
    own = "stages = ['commits']\n[commits]\ngood = { r = 'main~7' }\nbad = { r = 'main' }\nbuild = 'sh build'\n"
    report = hunted(tmp_path, own, '["cat", "v"]', source)
    first, second = report.culprits
    assert [s.id for s in first.suspects] == [slow]
    assert first.change.verdict.confirmed
    assert [s.id for s in second.suspects] == [*broken, fixed]
    assert second.change.old.label != second.change.new.label


@pytest.mark.slow
def test_a_change_that_the_merge_itself_made_is_said_to_be_so(tmp_path: Path) -> None:
    source = History(tmp_path / "r")
    source.at(NOON, "root", v="100")
    source.git("checkout", "--quiet", "-b", "side")
    source.at(NOON + HOUR, "side", s="1")
    source.git("checkout", "--quiet", "main")
    source.at(NOON + 2 * HOUR, "meanwhile", w="1")
    source.git("merge", "--quiet", "--no-ff", "--no-commit", "side")
    merge = source.at(NOON + 3 * HOUR, "merge, and more", v="90")
    source.at(NOON + 4 * HOUR, "after", w="2")
    own = "stages = ['commits']\n[commits]\ngood = { r = 'main~3' }\n"
    report = hunted(tmp_path, own, '["cat", "v"]', source)
    (culprit,) = report.culprits
    assert culprit.change.verdict.confirmed
    assert [suspect.id for suspect in culprit.suspects] == [merge]
    (said,) = [note for stage in report.stages for note in stage.notes if "does not show" in note]
    assert f"it came with the merge {merge[:12]} itself" in said
    assert "rebuilt" not in said


@pytest.mark.slow
def test_what_takes_two_repositories_is_said_to(tmp_path: Path) -> None:
    ones, twos = History(tmp_path / "ones"), History(tmp_path / "twos")
    for source, late in ((ones, 0), (twos, 1)):
        source.at(NOON, "root", v="0")
        source.at(NOON + 3 * HOUR + late, "new", v="1")
        source.at(NOON + 6 * HOUR + late, "later", w="1")
    own = "stages = ['checkouts by 2 h']\n[checkouts]\nstart = 2023-08-24T12:00:00Z\nend = 2023-08-24T19:00:00Z\n"
    command = """["sh", "-c", "test $(cat ones/v)$(cat twos/v) = 11 && echo 90 || echo 100"]"""
    report = hunted(tmp_path, own, command, ones, twos)
    assert len(report.culprits) == 1
    verdict = report.culprits[0].change.verdict
    assert verdict.interaction
    assert verdict.parts == ("ones", "twos")
    assert verdict.message == "it takes ones and twos together: none alone causes it"
    assert {s.part for s in report.culprits[0].suspects} == {"ones", "twos"}


def test_the_page_names_every_key_and_its_example_is_one() -> None:
    page = Path(__file__).parents[2] / "docs" / "hunt-checkouts.md"
    text = page.read_text(encoding="utf-8")
    keys = {*RepositorySettings.__struct_fields__, *CheckoutSettings.__struct_fields__}
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []
    example = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]
    assert [r.name for r in hunt_toml.parse(example, page).repositories] == ["xla", "jax"]
