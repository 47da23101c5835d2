from __future__ import annotations

import numpy as np

from factories.curves import series
from karat.compare.change import Change
from karat.compare.pairs import GoldenPair, compare
from karat.compare.rules import RuleBook
from karat.diffs.result import Diff, groups_of, labels
from karat.findings import Severity
from karat.goldens.paths import identity_of
from karat.goldens.shapes import Reading, Series


def change(path: str, platform: str, factor: float, **identity: str) -> Change:
    old = np.full(20, 10.0)
    return compare(
        GoldenPair(
            path=path,
            old=Reading(series(lm_loss=old.tolist())),
            new=Reading(series(lm_loss=(old * factor).tolist())),
            identity={"platform": platform, **identity},
        )
    )


def test_one_family_one_way_one_platform_is_one_group() -> None:
    changes = [change(f"{i}.json", "h100", 1.004 + i * 1e-4) for i in range(72)]
    (group,) = groups_of(changes, RuleBook())
    assert group.title == "loss up: all 72 goldens on h100"
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


def test_a_group_says_what_its_members_have_in_common() -> None:
    def case(model: str, name: str, factor: float, platform: str = "gb200") -> Change:
        return change(f"{model}/{name}/{platform}.json", platform, factor, model=model, case=name)

    def titles(*changes: Change, unchanged: int = 0) -> list[str]:
        return [g.title for g in groups_of(changes, RuleBook(), unchanged=unchanged)]

    moe = [case("moe", f"ep{i}", 1.004) for i in range(17)]
    calm = [case("gpt", f"tp{i}", 1.0) for i in range(30)]
    assert titles(*moe, *calm) == ["loss up: all 17 moe cases on gb200"]
    assert titles(*moe, *calm, unchanged=1) == ["loss up: all 17 changed moe cases on gb200"], (
        "the others are not known"
    )
    assert titles(*moe, case("moe", "x", 1.0), *calm) == ["loss up: 17 of 18 moe cases on gb200"]
    muon = [case("gpt", f"tp{i}_muon", 1.004) for i in range(3)]
    assert titles(*muon, *calm) == ["loss up: all 3 cases with muon on gb200"]
    assert titles(*moe[:2], *calm, *(case("moe", f"y{i}", 1.0) for i in range(9))) == [
        "loss up: 2 of 41 goldens on gb200, all moe cases"
    ]
    assert titles(moe[0], muon[0], *calm) == ["loss up: 2 of 32 goldens on gb200"]
    assert titles(moe[0], *calm) == ["loss up: moe/ep0 on gb200"]


def test_the_answer_counts_names_and_speaks_of_the_loss() -> None:
    broken = [change(f"{i}/golden.json", "h100", 2.0) for i in range(4)]
    calm = [change(f"calm{i}.json", "h100", 1.0 + 1e-9 * i) for i in range(3)]
    drift = [change("d.json", "h100", 0.996)]

    def answer(*changes: Change, unchanged: int = 0) -> str:
        return Diff(old="a", new="b", changes=changes, unchanged=unchanged).answer()

    assert answer(*calm) == "None of 3 goldens needs a look; no loss moved"
    assert answer(calm[1]) == "1 golden, no need to look; no loss moved"
    assert answer(calm[0]) == "1 golden, the same on both sides; no loss moved"
    assert answer(*drift, *calm) == "1 of 4 goldens needs a look; loss down in 1"
    assert answer(*broken, *drift, *calm) == (
        "5 of 8 goldens need a look; 4 must not be merged: 4 value-drift; loss up in 4, down in 1"
    )
    assert answer(*broken[:2], *calm).startswith(
        "2 of 5 goldens need a look; 2 must not be merged: 0/golden.json (value-drift), 1/golden.json (value-drift); "
    )
    assert answer(unchanged=7) == "No golden changed; 7 unchanged"
    slight = change("s.json", "h100", 1.0005)
    assert answer(slight) == "1 golden, no need to look; no loss moved beyond its threshold"
    whole, cut = ([10.0] * 20, [10.0] * 3 + [float("nan")] * 17)
    died = compare(
        GoldenPair(path="x.json", old=Reading(series(lm_loss=whole)), new=Reading(series(lm_loss=cut)), identity={})
    )
    assert answer(died) == "1 of 1 golden needs a look; 1 must not be merged: x.json (truncated); loss not judged in 1"
    assert answer(died, calm[0]).endswith("; no loss moved, not judged in 1")


def test_quiet_changes_make_no_group() -> None:
    assert groups_of([change("a", "h100", 1.0)], RuleBook()) == ()
    assert groups_of([], RuleBook()) == ()


def test_every_member_is_a_changed_file() -> None:
    lost = compare(GoldenPair(path="x", old=Reading(series(a=[1.0], b=[1.0])), new=Reading(Series({}))))
    groups = groups_of([lost], RuleBook())
    assert {path for g in groups for path, _ in g.members} == {"x"}
    assert {g.kind for g in groups} >= {"lost-metric"}


def test_the_second_golden_of_a_test_is_of_the_same_platform_under_a_name_of_its_own() -> None:
    paths = [f"gpt/a/golden_values_dev_dgx_h100{again}.json" for again in ("", "_2nd")]
    identities = [identity_of(path, ["{model}/{case}/golden_values_{lane}_{platform}.json"]) for path in paths]
    changes = [change(path, factor=1.004, **identity) for path, identity in zip(paths, identities, strict=True)]
    (group,) = groups_of(changes, RuleBook())
    assert group.platform == "dgx_h100"
    assert labels(changes, "") == {paths[0]: "gpt/a", paths[1]: "gpt/a_2nd"}
