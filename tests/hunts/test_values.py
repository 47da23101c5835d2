from __future__ import annotations

from pathlib import Path

import pytest

from factories.hunt_files import place, settings
from karat.engines.job import JobCommand
from karat.findings import UsageError
from karat.hunts.model import Point, Window
from karat.hunts.settings import HuntSettings, stages
from karat.hunts.timelines.timeline import Timeline, open_timeline


def opened(hunt: HuntSettings, root: Path, window: Window | None = None) -> Timeline:
    return open_timeline(hunt, stages(hunt)[0], window, place(root))


def test_values_in_their_order(tmp_path: Path) -> None:
    timeline = opened(settings(), tmp_path)
    assert [point.id for point in timeline.points] == ["a", "b", "c"]
    wrapped = timeline.command(
        timeline.points[1], JobCommand(role="measure", argv=("x", "--n={value}"), env={"A": "b"})
    )
    assert wrapped.argv == ("x", "--n=b")
    assert wrapped.env == {"A": "b", "KARAT_VALUE": "b"}
    assert wrapped.cwd == str(tmp_path)
    assert timeline.prepare(timeline.points[0]) == ()
    assert timeline.identity(timeline.points[0]) == {"value": "a"}
    assert timeline.mixed(timeline.points[0], timeline.points[1], frozenset({"value"})) is None
    assert [s.id for s in timeline.suspects(timeline.points[0], timeline.points[1])] == ["b"]
    # Where the one between them could not be tried, it may be that one as well.
    assert [s.id for s in timeline.suspects(timeline.points[0], timeline.points[2])] == ["b", "c"]
    timeline.ahead(timeline.points)
    timeline.close()


def test_a_value_twice_would_be_one_point(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found 'a' twice"):
        opened(settings(rest='[values]\nlist = ["a", "b", "a"]\n'), tmp_path)


def test_a_value_that_no_program_can_be_given() -> None:
    with pytest.raises(UsageError, match="expected a text without NUL"):
        settings(rest='[values]\nlist = ["a", "b\\u0000"]\n')


def test_a_golden_that_is_not_there_is_said_before_anything_is_run(tmp_path: Path) -> None:
    hunt = settings('[[probe.metrics]]\nname = "loss"\ngolden = "g.json"\nfile = "r.json"\n')
    with pytest.raises(UsageError, match=r"number 1 \(loss\): expected a golden in .*g\.json"):
        opened(hunt, tmp_path)
    (tmp_path / "g.json").touch()
    assert opened(hunt, tmp_path).points


def test_within_a_window(tmp_path: Path) -> None:
    hunt = settings(rest='[values]\nlist = ["a", "b", "c", "d"]\n')
    window = Window(old=Point(id="b", label="b"), new=Point(id="c", label="c"))
    assert [point.id for point in opened(hunt, tmp_path, window).points] == ["b", "c"]


PLUGIN = """
from karat.hunts.timelines.values import Values


def opened(settings, stage, window, place):
    return Values([f"{settings.options['moons']['planet']}-{stage.step}"], place.root)
"""


def test_a_third_partys_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moons_of_a_test.py").write_text(PLUGIN, encoding="utf-8")
    info = tmp_path / "moons_of_a_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moons-of-a-test\nVersion: 1\n", encoding="utf-8")
    points = "[karat.timelines]\nmoons = moons_of_a_test:opened\nbad_moons = moons_of_a_test:gone\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    told = '[options.moons]\nplanet = "mars"\n'
    hunt = settings(rest=f'stages = ["moons by hour"]\n{told}')
    assert [point.id for point in opened(hunt, tmp_path).points] == ["mars-3600.0"]
    with pytest.raises(UsageError, match="cannot be imported"):
        opened(settings(rest=f'stages = ["bad_moons"]\n{told}'), tmp_path)
