from __future__ import annotations

import numpy as np

from factories.curves import series
from karat.compare.change import Change
from karat.compare.pairs import GoldenPair, compare
from karat.compare.rules import RuleBook
from karat.diffs.result import groups_of
from karat.findings import Severity
from karat.goldens.shapes import Reading, Series


def change(path: str, platform: str, factor: float) -> Change:
    old = np.full(20, 10.0)
    return compare(
        GoldenPair(
            path=path,
            old=Reading(series(lm_loss=old.tolist())),
            new=Reading(series(lm_loss=(old * factor).tolist())),
            identity={"platform": platform},
        )
    )


def test_one_family_one_way_one_platform_is_one_group() -> None:
    changes = [change(f"{i}.json", "h100", 1.004 + i * 1e-4) for i in range(72)]
    (group,) = groups_of(changes, RuleBook())
    assert group.title == "loss up on h100: 72 files"
    assert len(group.members) == 72
    assert group.members[0] == ("71.json", "lm loss"), "largest first"
    assert group.low is not None
    assert group.high is not None
    assert group.low < group.high


def test_directions_and_platforms_stand_apart() -> None:
    changes = [change("a", "h100", 1.004), change("b", "h100", 0.996), change("c", "gb200", 1.004)]
    assert {(g.platform, g.direction) for g in groups_of(changes, RuleBook())} == {
        ("h100", "up"),
        ("h100", "down"),
        ("gb200", "up"),
    }


def test_grave_groups_come_first() -> None:
    changes = [change(f"{i}", "h100", 1.004) for i in range(5)] + [change("broken", "h100", 2.0)]
    assert [g.severity for g in groups_of(changes, RuleBook())] == [Severity.FAIL, Severity.WARN]


def test_quiet_changes_make_no_group() -> None:
    assert groups_of([change("a", "h100", 1.0)], RuleBook()) == ()
    assert groups_of([], RuleBook()) == ()


def test_every_member_is_a_changed_file() -> None:
    lost = compare(GoldenPair(path="x", old=Reading(series(a=[1.0], b=[1.0])), new=Reading(Series({}))))
    groups = groups_of([lost], RuleBook())
    assert {path for g in groups for path, _ in g.members} == {"x"}
    assert {g.kind for g in groups} >= {"lost-metric"}
