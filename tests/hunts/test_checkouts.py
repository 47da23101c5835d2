from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.histories import HOUR, HOURS, NOON, History, hunting, imported, place, printed, run, run_point
from karat.findings import CannotVerify, UsageError
from karat.hunts.model import Point, Window
from karat.hunts.settings import CheckoutSettings, ContainerSettings, HuntSettings
from karat.hunts.timelines.git import open_checkouts

START = datetime.fromtimestamp(NOON, tz=UTC)


def by_hour(hours: float) -> CheckoutSettings:
    return CheckoutSettings(start=START, end=START + timedelta(hours=hours))


@pytest.fixture
def two(tmp_path: Path) -> dict[str, History]:
    """Two repositories; their paths have a space and letters beyond ASCII."""
    xla, jax = History(tmp_path / "Quellen ä" / "xla"), History(tmp_path / "Quellen ä" / "jax")
    for number in range(4):
        xla.at(NOON - 60 + number * HOUR, f"xla {number}", n=f"xla {number}")
    jax.at(NOON - 120, "jax 0", n="jax 0")
    jax.at(NOON + HOUR + 60, "jax 1", n="jax 1")
    return {"xla": xla, "jax": jax}


def commits_of(history: History) -> list[str]:
    return history.git("rev-list", "--reverse", "main").split()


def test_each_instant_has_the_last_commit_before_it_of_each(two: dict[str, History], tmp_path: Path) -> None:
    settings = hunting({n: h.root for n, h in two.items()}, checkouts=by_hour(4))
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    xla, jax = commits_of(two["xla"]), commits_of(two["jax"])
    assert [(p.parts["xla"], p.parts["jax"]) for p in timeline.points] == [
        (xla[0], jax[0]),
        (xla[1], jax[0]),
        (xla[2], jax[1]),
        (xla[3], jax[1]),
    ]
    assert [p.label for p in timeline.points] == [f"2023-08-24 {h}:00" for h in (12, 13, 14, 15)]
    assert timeline.points[0].when == START
    assert timeline.points[0].id == f"xla@{xla[0][:12]} jax@{jax[0][:12]}"
    assert timeline.identity(timeline.points[1]) == {"commit.xla": xla[1], "commit.jax": jax[0]}


@pytest.mark.slow
def test_points_are_checked_out_in_a_kept_area(two: dict[str, History], tmp_path: Path) -> None:
    settings = hunting({n: h.root for n, h in two.items()}, checkouts=by_hour(4))
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    area = tmp_path / "slot 0"
    assert printed(run(timeline, 3, area, "cat", "xla/n", "jax/n")) == "xla 3jax 1"
    (area / "xla" / "built.o").write_text("kept")
    (area / "xla" / "n").write_text("a build changed a file of git's")
    assert printed(run(timeline, 0, area, "cat", "xla/n", "jax/n", "xla/built.o")) == "xla 0jax 0kept"


def test_a_commit_before_the_first_is_missing(two: dict[str, History], tmp_path: Path) -> None:
    early = CheckoutSettings(start=START - timedelta(hours=1), end=START)
    settings = hunting({n: h.root for n, h in two.items()}, checkouts=early)
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    assert timeline.points[0].missing == "xla and jax had no commit yet"
    assert not timeline.points[1].missing


def test_a_window_with_commits_begins_and_ends_exactly_there(two: dict[str, History], tmp_path: Path) -> None:
    xla, jax = commits_of(two["xla"]), commits_of(two["jax"])
    window = Window(
        old=Point(id="a", label="a", when=START, parts={"image": "i:a"}),
        new=Point(id="b", label="b", when=START + timedelta(days=1), parts={"image": "i:b"}),
        old_identity={"commit.xla": xla[1], "commit.jax": jax[0]},
        new_identity={"commit.xla": xla[3], "commit.jax": jax[1]},
    )
    settings = hunting({n: h.root for n, h in two.items()})
    timeline = open_checkouts(settings, HOURS, window, place(tmp_path))
    assert timeline.points[0].parts == {"xla": xla[1], "jax": jax[0]}
    assert timeline.points[-1].parts == {"xla": xla[3], "jax": jax[1]}
    # Round hours between the two ends.
    assert [p.label for p in timeline.points[1:-1]] == ["2023-08-24 14:00"]


@pytest.mark.parametrize("zone", [-12, -8, 0, 9, 14])
def test_a_night_is_looked_for_wherever_on_earth_it_was_built(tmp_path: Path, zone: int) -> None:
    """Images of two days that tell no commits, built in the first or last minute of their day, in a zone of its own."""
    history = imported(tmp_path / "r", [NOON + i * HOUR for i in range(-96, 96)])
    commits = commits_of(history)
    days = [datetime(2023, 8, day, tzinfo=UTC) for day in (23, 24)]
    old, new = (Point(id=f"{d}", label="d", when=d, parts={"image": f"i:{d.day}"}) for d in days)
    settings = replace(
        hunting({"r": history.root}, checkouts=CheckoutSettings()),
        containers=ContainerSettings(image="i:{date:%Y-%m-%d}"),
    )
    timeline = open_checkouts(settings, HOURS, Window(old=old, new=new), place(tmp_path))
    places = [commits.index(point.parts["r"]) for point in timeline.points]
    first_minute = days[0].timestamp() - zone * HOUR
    last_minute = days[1].timestamp() - zone * HOUR + 24 * HOUR
    assert NOON + (places[0] - 96) * HOUR <= first_minute
    assert NOON + (places[-1] - 96) * HOUR >= last_minute - HOUR
    assert places == list(range(places[0], places[-1] + 1))


def test_between_moments_that_are_known_nothing_is_added(tmp_path: Path) -> None:
    history = imported(tmp_path / "r", [NOON + i * HOUR for i in range(-9, 9)])
    moments = [Point(id=f"{h}", label="h", when=START + timedelta(hours=h)) for h in (0, 2)]
    window = Window(old=moments[0], new=moments[1])
    timeline = open_checkouts(hunting({"r": history.root}), HOURS, window, place(tmp_path))
    commits = commits_of(history)
    assert [p.parts["r"] for p in timeline.points] == commits[9:12]


def test_a_wrong_clock_does_not_change_the_order_of_the_branch(tmp_path: Path) -> None:
    right = [NOON + i * HOUR for i in range(10)]
    skewed = [*right[:5], NOON + 1000 * HOUR, *right[6:]]
    history = imported(tmp_path / "r", skewed)
    settings = hunting({"r": history.root}, checkouts=by_hour(9))
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    commits = commits_of(history)
    places = [commits.index(p.parts["r"]) for p in timeline.points]
    assert places == sorted(places)
    assert places == [0, 1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.slow
def test_git_is_asked_as_often_for_three_thousand_commits_as_for_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for count in (3, 3000):
        history = imported(tmp_path / str(count), [NOON + i * 60 for i in range(count)])
        settings = hunting({"r": history.root}, checkouts=by_hour(50))
        trace = tmp_path / f"{count}.trace"
        with monkeypatch.context() as patched:
            patched.setenv("GIT_TRACE2_EVENT", str(trace))
            timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
        asked.append(trace.read_text(encoding="utf-8").count('"event":"start"'))
    assert len(timeline.points) == 51
    assert asked[1] == asked[0] < 20


@pytest.mark.slow
def test_a_hunt_begins_with_a_fetch_and_goes_on_without(two: dict[str, History], tmp_path: Path) -> None:
    settings = hunting({n: h.root for n, h in two.items()}, checkouts=CheckoutSettings(start=START))
    before = open_checkouts(settings, HOURS, None, place(tmp_path))
    window = Window(
        old=Point(id="a", label="a", when=START), new=Point(id="b", label="b", when=START + timedelta(hours=20))
    )
    two["xla"].at(NOON + 9 * HOUR, "later")
    two["jax"].git("reset", "--quiet", "--hard", "HEAD~1")  # and a branch is rewritten
    two["jax"].at(NOON + 9 * HOUR, "instead")
    zoom = open_checkouts(settings, HOURS, window, place(tmp_path))
    assert zoom.points[-1].parts == before.points[-1].parts
    newer = open_checkouts(settings, HOURS, None, place(tmp_path))
    assert newer.points[-1].parts["xla"] == commits_of(two["xla"])[-1]
    assert newer.points[-1].parts["jax"] == commits_of(two["jax"])[-1]
    # What a journal still names can be put under test, although no branch has it any more.
    old = run_point(newer, before.points[-1], tmp_path / "slot", "cat", "jax/n")
    assert printed(old) == "jax 1"


def test_a_source_that_is_gone_leaves_what_was_fetched(two: dict[str, History], tmp_path: Path) -> None:
    settings = hunting({"xla": two["xla"].root}, checkouts=by_hour(4))
    before = open_checkouts(settings, HOURS, None, place(tmp_path)).points
    two["xla"].root.rename(tmp_path / "gone")
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    assert timeline.points == before
    (note,) = timeline.notes
    assert "using what was fetched before" in note
    assert printed(run(timeline, 1, tmp_path / "slot", "cat", "n")) == "xla 1"


def test_a_branch_that_became_a_folder_of_branches(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    history.at(NOON, "root", n="0")
    history.git("branch", "topic")
    settings = hunting({"r": history.root}, checkouts=by_hour(4))
    open_checkouts(settings, HOURS, None, place(tmp_path))
    history.git("branch", "--move", "topic", "topic/one")
    last = history.at(NOON + HOUR, "more", n="1")
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    assert timeline.points[-1].parts["r"] == last
    assert not timeline.notes


def test_a_branch_that_is_gone_serves_a_hunt_that_began_with_it(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    history.at(NOON, "root", n="0")
    history.git("branch", "topic")
    settings = hunting({"r": history.root}, checkouts=by_hour(4), branch="topic")
    before = open_checkouts(settings, HOURS, None, place(tmp_path)).points
    history.git("branch", "--delete", "--force", "topic")
    assert open_checkouts(settings, HOURS, None, place(tmp_path)).points == before


@pytest.mark.slow
def test_what_the_user_wants_of_new_repositories_is_not_for_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "r")
    for number in range(3):
        history.at(NOON + number * HOUR, f"c{number}", n=str(number))
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    timeline = open_checkouts(hunting({"r": history.root}, checkouts=by_hour(2)), HOURS, None, place(tmp_path))
    assert printed(run(timeline, -1, tmp_path / "slot", "cat", "n")) == "2"


@pytest.mark.parametrize("branch", ["main", "origin/main", "refs/heads/main", "v1"])
def test_branches_go_by_several_names(two: dict[str, History], tmp_path: Path, branch: str) -> None:
    two["xla"].git("tag", "-m", "release", "v1")
    clone = tmp_path / "clone"
    two["xla"].git("clone", "--quiet", str(two["xla"].root), str(clone))
    settings = hunting({"xla": clone}, checkouts=by_hour(4), branch=branch)
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    assert timeline.points[-1].parts["xla"] == commits_of(two["xla"])[-1]


def test_a_branch_that_is_not_there_is_named_with_those_that_are(two: dict[str, History], tmp_path: Path) -> None:
    settings = hunting({"xla": two["xla"].root}, checkouts=by_hour(4), branch="mian")
    with pytest.raises(UsageError, match=r"branch or tag 'mian'.*did you mean 'main'"):
        open_checkouts(settings, HOURS, None, place(tmp_path))


def test_a_shallow_source_is_said(two: dict[str, History], tmp_path: Path) -> None:
    two["xla"].git("clone", "--quiet", "--depth=2", f"file://{two['xla'].root}", str(tmp_path / "shallow"))
    settings = hunting({"xla": tmp_path / "shallow"}, checkouts=by_hour(4))
    timeline = open_checkouts(settings, HOURS, None, place(tmp_path))
    (note,) = timeline.notes
    assert "shallow" in note
    assert timeline.points[0].missing


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (hunting({"a": "--upload-pack=evil"}), "a URL or a path"),
        (hunting({"a": "https://me:ghp_Planted@example.invalid/r"}), "without a password"),
        (hunting({"a": "https://ghp_Planted@example.invalid/r"}), "without a password"),
        (hunting({"a": "https://example.invalid/r?private_token=Planted"}), "without a password"),
    ],
)
def test_what_cannot_work_is_refused(settings: HuntSettings, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        open_checkouts(settings, HOURS, None, place(tmp_path))
    assert "Planted" not in str(caught.value)


def test_a_start_is_needed(two: dict[str, History], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected start"):
        open_checkouts(hunting({"xla": two["xla"].root}), HOURS, None, place(tmp_path))


def test_a_repository_that_is_not_there_cannot_be_verified(tmp_path: Path) -> None:
    settings = hunting({"gone": tmp_path / "not here"}, checkouts=by_hour(1))
    with pytest.raises(CannotVerify, match="repository gone: git fetch failed") as caught:
        open_checkouts(settings, HOURS, None, place(tmp_path))
    assert caught.value.next_command == f"git ls-remote '{tmp_path / 'not here'}'"


def test_a_work_folder_that_cannot_be_written(two: dict[str, History], tmp_path: Path) -> None:
    # Not by permissions: root may write anywhere.
    (tmp_path / "work").write_text("a file where the folder should be")
    settings = hunting({"xla": two["xla"].root}, checkouts=by_hour(1))
    with pytest.raises(CannotVerify, match="cannot keep a clone of xla") as caught:
        open_checkouts(settings, HOURS, None, place(tmp_path))
    assert "work =" in caught.value.next_command


class Locked(BaseHTTPRequestHandler):
    """Wants a password of everyone."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="karat"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_wants_a_password_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A program that would open a window, as desktops set it.
    asked = tmp_path / "asked"
    program = tmp_path / "ask"
    program.write_text(f"#!/bin/sh\ntouch '{asked}'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("SSH_ASKPASS", str(program))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("GIT_ASKPASS", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    with ThreadingHTTPServer(("127.0.0.1", 0), Locked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/o/r.git"
        with pytest.raises(CannotVerify, match="repository r: git fetch failed") as caught:
            open_checkouts(hunting({"r": url}, checkouts=by_hour(1)), HOURS, None, place(tmp_path))
        server.shutdown()
    assert "terminal prompts disabled" in str(caught.value)
    assert not asked.exists()


@pytest.mark.parametrize("later", [0, HOUR])
def test_known_ends_are_the_ends_also_among_commits_of_one_second(later: int, tmp_path: Path) -> None:
    history = imported(tmp_path / "r", [NOON, NOON, NOON, NOON + later, NOON + later])
    commits = commits_of(history)
    old, new = (Point(id=c, label=c, parts={"r": c}) for c in (commits[0], commits[-1]))
    window = Window(old=old, new=new)
    points = open_checkouts(hunting({"r": history.root}), HOURS, window, place(tmp_path)).points
    assert (points[0].parts["r"], points[-1].parts["r"]) == (commits[0], commits[-1])
