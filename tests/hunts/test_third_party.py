"""A timeline of a third party: a package that knows karat by its public structs only, found by its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.commands import karat

PACKAGE = """
import msgspec

from karat.hunts.model import Point, Suspect
from karat.hunts.timelines.timeline import Timeline


class Moons(Timeline):
    name = "moons"

    def __init__(self, ids, root):
        self.points = [Point(id=one, label=one, parts={"moon": one}) for one in ids]
        self.root = str(root)

    def identity(self, point):
        return {"moon": point.id}

    def prepare(self, point):
        return ()

    def command(self, point, command):
        return msgspec.structs.replace(command, env={**command.env, "MOON": point.id}, cwd=self.root)

    def suspects(self, old, new):
        return (Suspect(part="moon", id=new.id, title="a moon"),)


def opened(settings, stage, window, place):
    if window is None:
        return Moons([f"{n:02}" for n in range(int(settings.options["moons"]["count"]))], place.root)
    return Moons([window.old.id, f"{window.old.id}.5", f"{window.old.id}.7", window.new.id], place.root)
"""
HUNT = """
name = "moons"
stages = ["moons by day", "moons by hour"]

[options.moons]
count = "12"

[probe]
command = ["sh", "-c", "case $MOON in 0[0-6]|06.5) echo V: 100;; *) echo V: 90;; esac"]

[[probe.metrics]]
name = "V"
regex = 'V: ([0-9.]+)'
better = "higher"
"""


@pytest.mark.slow
def test_a_hunt_over_a_third_partys_timeline_goes_from_stage_to_stage(tmp_path: Path) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "hunt"
    info = installed / "moons_of_a_test-1.dist-info"
    info.mkdir(parents=True)
    folder.mkdir()
    (installed / "moons_of_a_test.py").write_text(PACKAGE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moons-of-a-test\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[karat.timelines]\nmoons = moons_of_a_test:opened\n")
    (folder / "hunt.toml").write_text(HUNT, encoding="utf-8")
    done = karat("hunt", "run", "--json", "r.json", cwd=folder, PYTHONPATH=str(installed))
    assert done.code == 1, done.err
    report = json.loads((folder / "r.json").read_text(encoding="utf-8"))
    (culprit,) = report["culprits"]
    assert culprit["change"]["old"]["id"] == "06.5"
    assert [(one["part"], one["id"]) for one in culprit["suspects"]] == [("moon", "06.7")]
    assert [stage["timeline"] for stage in report["stages"]] == ["moons", "moons"]
    assert "karat hunt try 06.7 --stage 0.0/1" in done.out, "nobody knows a line for theirs"
    # What was found can be read where their package is not.
    assert karat("hunt", "report", ".karat/hunt/moons.hunt", cwd=folder).out == done.out
    missing = karat("hunt", "run", "--fresh", cwd=folder)
    assert (missing.code, "no timeline is called 'moons'" in missing.err) == (2, True)
