from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.container_engines import Podman
from factories.histories import COMMITS, HOUR, HOURS, NOON, History, hunting, place, printed, run
from factories.registries import Image, Registry
from karat.engines.job import EngineSettings
from karat.findings import CannotVerify, UsageError
from karat.hunts.model import Point, Window
from karat.hunts.settings import CheckoutSettings, ContainerSettings
from karat.hunts.timelines.git import open_checkouts, open_commits


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry(tmp_path / "registry") as made:
        yield made


@pytest.fixture
def podman(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Podman]:
    # After the registry, which takes podman's REGISTRY_AUTH_FILE for a setting of its own.
    assert registry.url
    with Podman() as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path / "mein Prüfstand")
    for number in range(3):
        made.at(NOON + number * HOUR, f"c{number}", n=str(number))
    return made


def window(history: History, image: str) -> Window:
    when = datetime.fromtimestamp(NOON, tz=UTC)
    commits = history.git("rev-list", "--reverse", "main").split()
    return Window(
        old=Point(id="a", label="a", when=when, parts={"image": image}),
        new=Point(id="b", label="b", when=when, parts={"image": "other"}),
        old_identity={"commit.r": commits[0]},
        new_identity={"commit.r": commits[-1]},
    )


def test_last_good_needs_a_stage_of_containers(history: History, tmp_path: Path) -> None:
    own = CheckoutSettings(container="last good", good={"r": "main~1"})
    settings = replace(hunting({"r": history.root}), commits=own)
    with pytest.raises(UsageError, match="a containers stage before this one"):
        open_commits(settings, COMMITS, None, place(tmp_path))


def test_on_a_cluster_the_engine_that_builds_need_not_be_here(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = CheckoutSettings(container="r.io/toy:a", good={"r": "main~1"}, build=("make",))
    named = ContainerSettings(image="x:{date:%Y}", engine="docker")
    hunt = replace(hunting({"r": history.root}), commits=own, containers=named)
    git = Path(shutil.which("git") or "").parent
    only = tmp_path / "bin"
    only.mkdir()
    (only / "git").symlink_to(git / "git")
    monkeypatch.setenv("PATH", str(only))
    with pytest.raises(CannotVerify, match="docker: not installed"):
        open_commits(hunt, COMMITS, None, place(tmp_path))
    elsewhere = replace(hunt, engine=EngineSettings(kind="ray"))
    made = open_commits(elsewhere, COMMITS, None, place(tmp_path))
    argv = [command.argv[0] for command in made.prepare(made.points[0])]
    made.close()
    assert "docker" in argv


@pytest.mark.slow
def test_builds_are_incremental_in_one_kept_container(
    history: History, tmp_path: Path, registry: Registry, podman: Podman
) -> None:
    registry.push("toy", "nightly", Image())
    image = f"{registry.host}/toy:nightly"
    build = ("sh", "-c", "cat n >> built; echo $KARAT_COMMIT_R >> /tmp/inside")
    own = CheckoutSettings(container="last good", build=build)
    settings = replace(
        hunting({"r": history.root}, checkouts=own),
        containers=ContainerSettings(image="x:{date:%Y}", engine="podman", env={"X": "y"}),
    )
    timeline = open_checkouts(settings, HOURS, window(history, image), place(tmp_path))
    area = tmp_path / "slot"
    assert {p.parts["image"] for p in timeline.points} == {image}
    assert timeline.identity(timeline.points[0])["image"] == image
    run(timeline, 0, area)
    script = 'cat built; wc -l < /tmp/inside; echo "$X"; pwd; echo 1 > "$KARAT_OUT/f"; cat "$KARAT_OUT/f"'
    lines = printed(run(timeline, 1, area, "sh", "-c", script)).splitlines()
    assert lines == ["012", "y", str(area / "r"), "1"]
    assert len(podman.names()) == 1
    timeline.close()
    assert podman.names() == []
    # The next stage finds the image in the points of this one.
    later = Window(old=timeline.points[0], new=timeline.points[1])
    finer = open_commits(settings, COMMITS, later, place(tmp_path))
    assert finer.points[0].parts["image"] == image
    finer.close()
