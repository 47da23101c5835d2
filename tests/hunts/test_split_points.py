"""The points of a split, and what it looks into next; nothing is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from conftest import missing
from factories.histories import HOUR, NOON, History, place
from karat.findings import UsageError
from karat.hunts.model import Window
from karat.hunts.settings import CheckoutSettings, HuntSettings, ProbeSettings, RepositorySettings, SplitSettings, Stage
from karat.hunts.timelines.split import ABSENT, Split, open_split

if importlib.util.find_spec("uv") is None:
    missing("uv (pip install 'karat[hunt]')")
STAGE = Stage(timeline="split", text="split")
OLD = {"numpy": "1.26.4", "six": "1.16.0", "gone": "1.0"}
NEW = {"numpy": "2.0.0", "six": "1.16.0", "tool": "@ https://example.com/tool.zip"}


def opened(
    tmp_path: Path, window: Window | None = None, name: str = "code", new: dict[str, str] | None = None
) -> Split:
    if not (tmp_path / "r").exists():
        history = History(tmp_path / "r")
        for number in range(3):
            history.at(NOON + number * HOUR, f"c{number}", n=str(number))
    settings = HuntSettings(
        stages=("split",),
        probe=ProbeSettings(command=("true",)),
        repositories=(RepositorySettings(name=name, url=str(tmp_path / "r")),),
        commits=CheckoutSettings(good={name: "main~2"}, bad={name: "main"}),
        split=SplitSettings(old=OLD, new=NEW if new is None else new, index="http://127.0.0.1:1/simple"),
    )
    return open_split(settings, STAGE, window, place(tmp_path))


def test_the_four_cells(tmp_path: Path) -> None:
    split = opened(tmp_path)
    old, new = split.points
    mixes = [
        split.mixed(old, new, frozenset(taken)) for taken in ([], ["code"], ["environment"], ["code", "environment"])
    ]
    assert [mix.id for mix in mixes if mix] == ["old", "new-code", "new-environment", "new"]
    assert len({split.identity(mix)["packages"] for mix in mixes if mix}) == 2
    assert split.finer(old, new)
    titles = [suspect.title for suspect in split.suspects(old, new)]
    assert titles == ["c1", "c2", "was 1.0", "was 1.26.4", "new"]


def test_code_alone_is_looked_into_commit_by_commit_in_the_old_packages(tmp_path: Path) -> None:
    split = opened(tmp_path)
    old, new = split.points
    mixed = split.mixed(old, new, frozenset({"code"}))
    assert mixed is not None
    commits = opened(tmp_path, Window(old=old, new=mixed))
    assert (commits.name, len(commits.points)) == ("commits", 3)
    assert {point.parts["environment"] for point in commits.points} == {"old"}
    assert not commits.finer(*commits.points[:2])


def test_packages_that_moved_are_parts_and_one_that_came_or_went_has_no_releases(tmp_path: Path) -> None:
    split = opened(tmp_path)
    old, new = split.points
    mixed = split.mixed(old, new, frozenset({"environment"}))
    assert mixed is not None
    packages = opened(tmp_path, Window(old=old, new=mixed))
    first, last = packages.points
    assert {name: (first.parts[name], last.parts[name]) for name in ("gone", "numpy", "tool")} == {
        "gone": ("1.0", ABSENT),
        "numpy": ("1.26.4", "2.0.0"),
        "tool": (ABSENT, NEW["tool"]),
    }
    assert "six" not in first.parts
    for name, finer in (("numpy", True), ("gone", False), ("tool", False)):
        one = packages.mixed(first, last, frozenset({name}))
        assert one is not None
        assert packages.finer(first, one) == finer
        install = next(command for command in packages.prepare(one) if command.name == "install")
        assert ("numpy==2.0.0" in install.argv, "gone==1.0" in install.argv) == (name == "numpy", name != "gone")
        assert "six==1.16.0" in install.argv


def test_what_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected other names than those of packages, found numpy"):
        opened(tmp_path, name="numpy")
    fixed = opened(tmp_path, new=OLD)
    assert [point.parts["environment"] for point in fixed.points] == ["old", "old"]
