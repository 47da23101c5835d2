from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.histories import COMMITS, HOUR, NOON, History, hunting, imported, place, printed, run
from karat.findings import CannotVerify, UsageError
from karat.hunts.model import Point, Window
from karat.hunts.settings import CheckoutSettings
from karat.hunts.timelines.git import GitTimeline, open_commits


def between(old: dict[str, str], new: dict[str, str]) -> Window:
    return Window(old=Point(id="o", label="o", parts=old), new=Point(id="n", label="n", parts=new))


def opened(source: History, old: str, new: str, folder: Path, **own: object) -> GitTimeline:
    settings = replace(hunting({"r": source.root}), commits=CheckoutSettings(**own))  # type: ignore[arg-type]
    return open_commits(settings, COMMITS, between({"r": old}, {"r": new}), place(folder))


def ids(timeline: GitTimeline, name: str = "r") -> list[str]:
    return [point.parts[name] for point in timeline.points]


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path / "mein Prüfstand")
    made.at(NOON, "root", n="0")
    return made


def grown(history: History, *titles: str, start: int = 1) -> list[str]:
    return [history.at(NOON + (start + i) * HOUR, title, n=title) for i, title in enumerate(titles)]


def test_every_commit_after_the_old_one_up_to_the_new_one(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c", "d")
    timeline = opened(history, made[0], made[2], tmp_path)
    assert ids(timeline) == made[:3]
    assert [p.label for p in timeline.points] == [c[:12] for c in made[:3]]
    assert printed(run(timeline, 1, tmp_path / "slot", "cat", "n")) == "b"
    assert timeline.notes == ()


def test_the_root_commit_is_a_point_like_any_other(history: History, tmp_path: Path) -> None:
    made = grown(history, "a")
    root = history.git("rev-parse", f"{made[0]}~1").strip()
    assert ids(opened(history, root, made[0], tmp_path)) == [root, made[0]]


def test_several_repositories_move_one_at_a_time_by_time(tmp_path: Path) -> None:
    ones = imported(tmp_path / "ones", [NOON, NOON + 2 * HOUR, NOON + 4 * HOUR])
    twos = imported(tmp_path / "twos", [NOON, NOON + 1 * HOUR, NOON + 3 * HOUR])
    a, b = (h.git("rev-list", "--reverse", "main").split() for h in (ones, twos))
    settings = hunting({"a": ones.root, "b": twos.root})
    window = between({"a": a[0], "b": b[0]}, {"a": a[2], "b": b[2]})
    timeline = open_commits(settings, COMMITS, window, place(tmp_path))
    assert [(p.parts["a"], p.parts["b"]) for p in timeline.points] == [
        (a[0], b[0]),
        (a[0], b[1]),
        (a[1], b[1]),
        (a[1], b[2]),
        (a[2], b[2]),
    ]
    mixed = timeline.mixed(timeline.points[0], timeline.points[-1], frozenset({"b"}))
    assert mixed is not None
    assert (mixed.parts["a"], mixed.parts["b"], mixed.label) == (a[0], b[2], "new b, old a")
    for taken, whole in ((frozenset[str](), 0), (frozenset({"a", "b"}), -1)):
        assert timeline.mixed(timeline.points[0], timeline.points[-1], taken) is timeline.points[whole]
    assert timeline.mixed(timeline.points[0], timeline.points[-1], frozenset({"c"})) is None
    # One that does not move is never swapped, nor suspected.
    assert {s.part for s in timeline.suspects(timeline.points[1], timeline.points[2])} == {"a"}


def merged(history: History) -> dict[str, str]:
    """A branch of three, merged after the main line went on."""
    base = grown(history, "base")[0]
    history.git("checkout", "--quiet", "-b", "side")
    side = [history.at(NOON + (2 + i) * HOUR, f"side {i}", s=str(i)) for i in range(3)]
    history.git("checkout", "--quiet", "main")
    main = history.at(NOON + 9 * HOUR, "main goes on", m="1")
    merge = history.merge(NOON + 10 * HOUR, "side", message="Merge branch 'side'")
    last = history.at(NOON + 11 * HOUR, "after", m="2")
    return {
        "base": base,
        "main": main,
        "merge": merge,
        "last": last,
        **{f"side{i}": commit for i, commit in enumerate(side)},
    }


def test_a_merge_is_one_step_and_is_looked_into(history: History, tmp_path: Path) -> None:
    c = merged(history)
    timeline = opened(history, c["base"], c["last"], tmp_path)
    assert ids(timeline) == [c["base"], c["main"], c["merge"], c["last"]]
    old, new = timeline.points[1:3]
    assert timeline.finer(old, new)
    assert not timeline.finer(timeline.points[0], old)
    assert [s.title for s in timeline.suspects(old, new)] == ["side 0", "side 1", "side 2", "Merge branch 'side'"]
    inside = opened(history, c["main"], c["merge"], tmp_path)
    assert ids(inside) == [c["base"], c["side0"], c["side1"], c["side2"]]
    assert "is a merge" in inside.notes[0]


def test_a_merge_the_wrong_way_round_is_looked_into(history: History, tmp_path: Path) -> None:
    """`git pull` and push: what the branch was is the second parent."""
    base = grown(history, "base")[0]
    mine = [history.at(NOON + (2 + i) * HOUR, f"mine {i}", mine=str(i)) for i in range(2)]
    history.git("checkout", "--quiet", "-b", "theirs", base)
    theirs = history.at(NOON + 5 * HOUR, "theirs", theirs="1")
    history.git("checkout", "--quiet", "main")
    merge = history.merge(NOON + 6 * HOUR, "theirs")
    timeline = opened(history, theirs, merge, tmp_path)
    assert ids(timeline) == [base, *mine]


def test_wrong_dates_do_not_put_other_commits_on_a_merged_branch(tmp_path: Path) -> None:
    """A dozen commits of a machine without a clock: git, going by dates, lists what it was told to leave out."""
    history = imported(tmp_path / "r", [NOON + i * 60 for i in range(10)])
    history.git("reset", "--quiet", "--hard")
    base = history.git("rev-parse", "HEAD").strip()
    history.git("checkout", "--quiet", "-b", "side")
    side = [history.at(NOON + (1 + i) * HOUR, f"side {i}", s=str(i)) for i in range(2)]
    history.git("checkout", "--quiet", "main")
    main = [history.at(10**9 + i, f"main {i}", m=str(i)) for i in range(12)]
    merge = history.merge(NOON + 9 * HOUR, "side")
    assert ids(opened(history, main[-1], merge, tmp_path)) == [base, *side]


def test_an_octopus_is_one_branch_after_the_other(history: History, tmp_path: Path) -> None:
    base = grown(history, "base")[0]
    tips = {}
    for name in ("one", "two"):
        history.git("checkout", "--quiet", "-b", name, base)
        tips[name] = history.at(NOON + 5 * HOUR, f"on {name}", **{name: "x"})
    history.git("checkout", "--quiet", "main")
    merge = history.merge(NOON + 9 * HOUR, "one", "two")
    timeline = opened(history, base, merge, tmp_path)
    assert ids(timeline) == [base, tips["one"], base, tips["two"]]
    assert list(timeline.breaks) == [2]
    assert len({point.id for point in timeline.points}) == 4
    assert [s.title for s in timeline.suspects(*timeline.points[2:])] == ["on two"]
    assert "so it came with the merge" in timeline.absent


def test_all_lists_what_descends_from_the_old_and_says_what_that_means(history: History, tmp_path: Path) -> None:
    c = merged(history)
    timeline = opened(history, c["base"], c["last"], tmp_path, history="all")
    assert set(ids(timeline)) == set(c.values())
    places = {commit: i for i, commit in enumerate(ids(timeline))}
    assert places[c["side0"]] < places[c["side1"]] < places[c["merge"]] < places[c["last"]]
    assert "not one line" in timeline.notes[0]
    # Commits of a branch that left before the old one do not have it, and are no points.
    later = opened(history, c["main"], c["last"], tmp_path, history="all")
    assert ids(later) == [c["main"], c["merge"], c["last"]]


def test_a_rewritten_branch_goes_back_to_what_both_have(history: History, tmp_path: Path) -> None:
    base, *old = grown(history, "base", "old 1", "old 2")
    history.git("branch", "before")
    history.git("reset", "--quiet", "--hard", base)
    new = grown(history, "new 1", "new 2", start=10)
    timeline = opened(history, old[-1], new[-1], tmp_path)
    assert ids(timeline) == [old[1], old[0], base, *new]
    assert "does not descend" in timeline.notes[0]
    titles = [s.title for s in timeline.suspects(timeline.points[0], timeline.points[-1])]
    assert sorted(titles) == ["new 1", "new 2", "removed: old 1", "removed: old 2"]


def test_a_branch_that_was_set_back(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    timeline = opened(history, made[2], made[0], tmp_path)
    assert ids(timeline) == made[::-1]
    assert "a commit less with each step" in timeline.notes[0]
    assert [p.when for p in timeline.points[1:]] == sorted(p.when for p in timeline.points[1:] if p.when)


def test_unrelated_histories_are_two_points(history: History, tmp_path: Path) -> None:
    old = grown(history, "a")[0]
    history.git("checkout", "--quiet", "--orphan", "fresh")
    new = grown(history, "b")[0]
    timeline = opened(history, old, new, tmp_path)
    assert ids(timeline) == [old, new]
    assert "no history in common" in timeline.notes[0]


def test_an_old_commit_beside_the_line_is_said(history: History, tmp_path: Path) -> None:
    c = merged(history)
    timeline = opened(history, c["side1"], c["last"], tmp_path)
    assert ids(timeline) == [c["side1"], c["merge"], c["last"]]
    assert "not on the first-parent line" in timeline.notes[0]


def test_good_and_bad_are_names_or_ids(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    history.git("tag", "v1", made[0])
    for good, bad in (("v1", "main~1"), (made[0], made[1]), ("v1", made[1])):
        own = CheckoutSettings(good={"r": good}, bad={"r": bad})
        settings = replace(hunting({"r": history.root}), commits=own)
        assert ids(open_commits(settings, COMMITS, None, place(tmp_path))) == made[:2]
    tip = replace(hunting({"r": history.root}), commits=CheckoutSettings(good={"r": "v1"}))
    assert ids(open_commits(tip, COMMITS, None, place(tmp_path))) == made


def test_start_and_end_serve_as_well(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    noon = datetime.fromtimestamp(NOON, tz=UTC)
    own = CheckoutSettings(start=noon + timedelta(hours=1), end=noon + timedelta(hours=2.5))
    settings = replace(hunting({"r": history.root}), commits=own)
    assert ids(open_commits(settings, COMMITS, None, place(tmp_path))) == made[:2]


@pytest.mark.parametrize("name", ["--upload-pack=x", "nope", ":/root", "0" * 40])
def test_what_is_no_commit_cannot_be_verified(history: History, tmp_path: Path, name: str) -> None:
    settings = replace(hunting({"r": history.root}), commits=CheckoutSettings(good={"r": name}))
    with pytest.raises(CannotVerify, match="repository r: expected the commit"):
        open_commits(settings, COMMITS, None, place(tmp_path))


def test_without_a_good_end_there_is_nothing_to_list(history: History, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected good"):
        open_commits(hunting({"r": history.root}), COMMITS, None, place(tmp_path))


def test_a_window_of_times_takes_the_commits_of_then(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    noon = datetime.fromtimestamp(NOON, tz=UTC)
    window = Window(
        old=Point(id="o", label="o", when=noon + timedelta(hours=1)),
        new=Point(id="n", label="n", when=noon + timedelta(hours=2)),
    )
    settings = hunting({"r": history.root})
    assert ids(open_commits(settings, COMMITS, window, place(tmp_path))) == made[:2]
    timeless = Window(old=Point(id="o", label="o"), new=Point(id="n", label="n"))
    with pytest.raises(UsageError, match="points that have a time"):
        open_commits(settings, COMMITS, timeless, place(tmp_path))


def test_a_commit_that_no_branch_has_is_fetched_by_its_id(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b")
    history.git("reset", "--quiet", "--hard", made[0])
    later = grown(history, "c", start=9)[0]
    history.git("config", "uploadpack.allowAnySHA1InWant", "true")
    timeline = opened(history, made[1], later, tmp_path)
    assert ids(timeline) == [made[1], made[0], later]
    assert printed(run(timeline, 0, tmp_path / "slot", "cat", "n")) == "b"


def test_a_recorded_commit_that_nobody_has_is_replaced_by_time(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    noon = datetime.fromtimestamp(NOON, tz=UTC)
    window = Window(
        old=Point(id="o", label="o", when=noon + timedelta(hours=1)),
        new=Point(id="n", label="n", when=noon + timedelta(hours=2)),
        old_identity={"commit.r": "f" * 40},
        new_identity={"commit.r": made[2]},
    )
    timeline = open_commits(hunting({"r": history.root}), COMMITS, window, place(tmp_path))
    assert ids(timeline) == made[:2]
    assert "at that time is used instead" in timeline.notes[0]


def test_short_ids_that_were_recorded_are_believed(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    window = Window(
        old=Point(id="o", label="o"),
        new=Point(id="n", label="n"),
        old_identity={"commit.r": f" {made[0][:8].upper()}\n"},
        new_identity={"commit.r": made[2][:12]},
    )
    timeline = open_commits(hunting({"r": history.root}), COMMITS, window, place(tmp_path))
    assert ids(timeline) == made
    assert not timeline.notes


def test_what_was_recorded_and_is_no_id_is_said(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    noon = datetime.fromtimestamp(NOON, tz=UTC)
    window = Window(
        old=Point(id="o", label="o", when=noon + timedelta(hours=1)),
        new=Point(id="n", label="n", when=noon + timedelta(hours=2)),
        old_identity={"commit.r": "main"},
        new_identity={"commit.r": made[2]},
    )
    timeline = open_commits(hunting({"r": history.root}), COMMITS, window, place(tmp_path))
    assert ids(timeline) == made[:2]
    assert "expected commit.r to be a commit id, found 'main'" in timeline.notes[0]


def test_a_window_in_which_nothing_moved_says_so(history: History, tmp_path: Path) -> None:
    made = grown(history, "a")
    timeline = opened(history, made[0], made[0], tmp_path)
    assert ids(timeline) == made
    assert "r did not move between the two points" in timeline.notes[0]


def test_a_commit_that_was_pushed_meanwhile_is_fetched(history: History, tmp_path: Path) -> None:
    made = grown(history, "a")
    opened(history, made[0], made[0], tmp_path)
    later = grown(history, "b", start=5)[0]
    assert ids(opened(history, made[0], later, tmp_path)) == [made[0], later]


def test_a_branch_wins_over_a_tag_of_its_name(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b")
    history.git("tag", "main", made[0])
    settings = replace(hunting({"r": history.root}), commits=CheckoutSettings(good={"r": made[0]}))
    assert ids(open_commits(settings, COMMITS, None, place(tmp_path))) == made


def test_an_unrelated_history_that_was_merged_begins_with_its_first(history: History, tmp_path: Path) -> None:
    old = grown(history, "a")[0]
    history.git("checkout", "--quiet", "--orphan", "fresh")
    history.git("rm", "-r", "--quiet", "--force", ".")
    other = [history.at(NOON + (5 + i) * HOUR, f"x{i}", x=str(i)) for i in range(2)]
    history.git("checkout", "--quiet", "main")
    tip = history.git("commit-tree", "-p", old, "-p", other[1], "-m", "m", f"{old}^{{tree}}").strip()
    history.git("reset", "--quiet", "--hard", tip)
    assert ids(opened(history, old, tip, tmp_path)) == other


def test_what_was_under_test_is_believed_before_what_was_meant(history: History, tmp_path: Path) -> None:
    made = grown(history, "a", "b", "c")
    meant = between({"r": made[0]}, {"r": made[1]})
    window = Window(old=meant.old, new=meant.new, new_identity={"commit.r": made[2]})
    timeline = open_commits(hunting({"r": history.root}), COMMITS, window, place(tmp_path))
    assert ids(timeline) == made


def test_a_lock_that_a_killed_fetch_left_is_no_hindrance(history: History, tmp_path: Path) -> None:
    made = grown(history, "a")
    opened(history, made[0], made[0], tmp_path)
    (mirror,) = (tmp_path / "work" / "mirrors").glob("*.git")
    (mirror / "refs" / "heads" / "main.lock").write_text("")
    later = grown(history, "b", start=5)[0]
    assert ids(opened(history, made[0], later, tmp_path)) == [made[0], later]
