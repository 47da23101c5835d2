from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from factories.histories import COMMITS, HOUR, NOON, History, hunting, place
from karat.hunts.settings import CheckoutSettings
from karat.hunts.timelines.git import GitTimeline, open_commits
from karat.hunts.timelines.git_mirror import (
    Commit,
    commit_link,
    index_at,
    instants,
    interleave,
    ordered_dates,
    parse_commits,
)

DATES = st.lists(st.integers(min_value=0, max_value=60), max_size=40)


@given(DATES)
def test_believed_dates_never_go_backwards_and_come_from_the_branch(dates: list[int]) -> None:
    found = ordered_dates(dates)
    assert len(found) == len(dates)
    assert found == sorted(found)
    assert set(found) <= set(dates)


@given(DATES)
def test_dates_that_are_in_order_are_all_believed(dates: list[int]) -> None:
    assert ordered_dates(sorted(dates)) == sorted(dates)


@given(DATES, st.integers(0, 39), st.integers(-(10**6), 10**6))
def test_one_wrong_clock_moves_one_commit_only(dates: list[int], where: int, wrong: int) -> None:
    right = sorted(dates)
    if len(right) < 2:
        return
    where %= len(right)
    skewed = [*right[:where], wrong, *right[where + 1 :]]
    others = [i for i in range(len(right)) if i != where]
    changed = [i for i in others if ordered_dates(skewed)[i] != right[i]]
    # Of two neighbours that contradict each other alone, nobody can say which one lies.
    assert len(changed) <= 1


def test_a_clock_in_the_future_does_not_hide_what_came_after() -> None:
    assert ordered_dates([10, 20, 9999, 30, 40]) == [10, 20, 20, 30, 40]


def test_a_commit_with_an_old_date_came_with_the_one_before_it() -> None:
    assert ordered_dates([10, 20, 3, 30, 40]) == [10, 20, 20, 30, 40]


def test_lines_of_git_are_read() -> None:
    commits = parse_commits(["10 aa", "5 bb", "20 cc", "30 dd"])
    assert [c.time for c in commits] in ([10, 10, 20, 30], [5, 5, 20, 30])
    assert parse_commits([]) == []


@given(DATES, st.integers(-1, 61))
def test_the_last_commit_by_a_time(dates: list[int], time: int) -> None:
    commits = [Commit(str(i), date) for i, date in enumerate(sorted(dates))]
    index = index_at(commits, time)
    assert all(c.time <= time for c in commits[: index + 1])
    assert all(c.time > time for c in commits[index + 1 :])


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 300))
def test_instants_begin_and_end_where_they_are_told(start: int, length: int, step: int) -> None:
    found = instants(start, start + length, step)
    assert found[0] == start
    assert found[-1] == start + length
    assert all(0 < b - a <= step for a, b in itertools.pairwise(found))


@given(DATES, DATES)
def test_interleaving_keeps_each_order_and_goes_by_time(ones: list[int], twos: list[int]) -> None:
    lines = {
        name: [Commit(f"{name}{i}", t) for i, t in enumerate(sorted(dates))]
        for name, dates in (("a", ones), ("b", twos))
    }
    moves = interleave(lines)
    assert [c for name, c in moves if name == "a"] == lines["a"]
    assert [c for name, c in moves if name == "b"] == lines["b"]
    assert [c.time for _, c in moves] == sorted([*ones, *twos])


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("https://github.com/openxla/xla", "https://github.com/openxla/xla/commit/C"),
        ("https://github.com/openxla/xla.git/", "https://github.com/openxla/xla/commit/C"),
        ("git@github.com:openxla/xla.git", "https://github.com/openxla/xla/commit/C"),
        ("ssh://git@github.com:22/openxla/xla", "https://github.com/openxla/xla/commit/C"),
        ("https://me:secret@gitlab.com/a/b/c.git", "https://gitlab.com/a/b/c/-/commit/C"),
        ("git@gitlab.example.org:a/b.git", "https://gitlab.example.org/a/b/-/commit/C"),
        ("https://bitbucket.org/a/b", "https://bitbucket.org/a/b/commits/C"),
        ("https://codeberg.org/a/b.git", "https://codeberg.org/a/b/commit/C"),
        ("https://go.googlesource.com/go", "https://go.googlesource.com/go/+/C"),
        ("https://github.com/a/<b>", "https://github.com/a/%3Cb%3E/commit/C"),
        ("https://git.example.org/a/b", ""),
        ("/srv/github.com/a", ""),
        ("file:///srv/github.com/a", ""),
        ("https://[broken", ""),
        ("", ""),
    ],
)
def test_the_page_of_a_commit(url: str, link: str) -> None:
    assert commit_link(url, "C") == link


def opened(history: History, folder: Path, good: str) -> GitTimeline:
    settings = replace(hunting({"r": history.root}), commits=CheckoutSettings(good={"r": good}))
    return open_commits(settings, COMMITS, None, place(folder))


def test_every_commit_between_two_points_with_what_a_person_asks_for(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    history.at(NOON, "root", n="0")
    first = history.at(NOON + HOUR, "quicker: Größe\n\nA body.", n="1")
    second = history.at(NOON + 2 * HOUR, f'Revert "quicker"\n\nThis reverts commit {first}.\n', n="0")
    third = history.at(NOON + 3 * HOUR, "evil \x1b[31mred\x07 \x01 ##[error]", n="2")
    history.git("remote", "add", "origin", "git@github.com:o/r.git")
    timeline = opened(history, tmp_path, "main~3")
    found = timeline.suspects(timeline.points[0], timeline.points[-1])
    assert [s.id for s in found] == [first, second, third]
    assert found[0].title == "quicker: Größe"
    assert found[0].author == "Zoë Ünal"
    assert found[0].when is not None
    assert found[0].when.timestamp() == NOON + HOUR
    # A clone on this disk knows where it came from.
    assert found[0].link == f"https://github.com/o/r/commit/{first}"
    assert found[1].title == 'Revert "quicker"'
    assert found[2].title == "evil \\x1b[31mred\\x07 \\x01 # #[error]"
    assert all(s.part == "r" for s in found)


def test_pages_of_all_commits_between_two() -> None:
    assert commit_link("git@github.com:a/b.git", "N", since="O") == "https://github.com/a/b/compare/O...N"
    assert commit_link("https://gitlab.example/a/b", "N", since="O") == "https://gitlab.example/a/b/-/compare/O...N"
    assert commit_link("https://bitbucket.org/a/b", "N", since="O").endswith("/branches/compare/N..O")
    assert commit_link("https://x.googlesource.com/b", "N", since="O").endswith("/b/+log/O..N")
    assert commit_link("https://example.org/a/b", "N", since="O") == ""
