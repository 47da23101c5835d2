from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.histories import COMMITS, HOUR, NOON, History, hunting, place
from karat.hunts.settings import CheckoutSettings
from karat.hunts.timelines.git import GitTimeline, open_commits
from karat.hunts.timelines.git_mirror import commit_link


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


def test_a_template_wins() -> None:
    assert commit_link("https://github.com/a/b", "C", "https://x/{commit}?t") == "https://x/C?t"


def opened(history: History, folder: Path, good: str, link: str = "") -> GitTimeline:
    settings = hunting({"r": history.root})
    repository = replace(settings.repositories[0], link=link)
    own = CheckoutSettings(good={"r": good})
    settings = replace(settings, repositories=(repository,), commits=own)
    return open_commits(settings, COMMITS, None, place(folder))


def test_every_commit_between_two_points_with_what_a_person_asks_for(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    history.at(NOON, "root", n="0")
    first = history.at(NOON + HOUR, "quicker: Größe\n\nA body.", n="1")
    second = history.at(
        NOON + 2 * HOUR, f'Revert "quicker"\n\nThis reverts commit {first}.\n', n="0"
    )
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
    assert found[1].title == f'Revert "quicker" (reverts {first[:12]})'
    assert found[2].title == "evil \\x1b[31mred\\x07 \\x01 ## [error]"
    assert all(s.part == "r" for s in found)


def test_a_link_may_be_given(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    history.at(NOON, "root", n="0")
    made = history.at(NOON + HOUR, "one", n="1")
    timeline = opened(history, tmp_path, "main~1", link="https://git.example.org/c/{commit}")
    assert timeline.suspects(*timeline.points)[0].link == f"https://git.example.org/c/{made}"
