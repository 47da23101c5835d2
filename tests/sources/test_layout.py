"""Which files make up which artifact."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from karat.sources.folder import Group, StoredFile, group_files

PARTS = st.text(st.sampled_from("ab.Zé -"), min_size=1, max_size=4).filter(lambda part: part not in {".", ".."})
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
ZIPS = st.builds(lambda name, end: name + end, NAMES, st.sampled_from([".zip", ".ZIP"]))
ENTRIES = st.lists(
    st.builds(StoredFile, name=NAMES | ZIPS, size=st.integers(0, 99), modified=st.none() | st.floats(0, 9)),
    max_size=12,
    unique_by=lambda entry: entry.name,
)


def whole(group: Group, entry: StoredFile) -> str:
    """An entry's name, from its artifact's and its own."""
    if group.packed:
        return group.name
    member = group.member(entry)
    return member if group.name == "." else f"{group.name}/{member}"


@pytest.mark.slow
@given(ENTRIES)
def test_every_file_is_in_one_artifact_and_can_be_found_again(entries: list[StoredFile]) -> None:
    groups = group_files(entries)
    assert sorted(e.name for g in groups for e in g.entries) == sorted(e.name for e in entries)
    assert all(whole(group, entry) == entry.name for group in groups for entry in group.entries)
    assert len({group.id for group in groups}) == len(groups)
    for group in groups:
        names = [group.member(entry) for entry in group.entries]
        assert len(set(names)) == len(names)
        archives = [entry.name.lower().endswith(".zip") for entry in group.entries]
        assert archives == [True] if group.packed else not any(archives)


@pytest.mark.slow
@given(ENTRIES, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(entries: list[StoredFile], chance: random.Random) -> None:
    shuffled = chance.sample(entries, len(entries))
    assert group_files(entries) == group_files(shuffled)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], {}),
        (["a.json"], {".": ["a.json"]}),
        (["logs/a.json", "logs/deep/b.json"], {"logs": ["a.json", "deep/b.json"]}),
        (["logs/a.json", "logs/b.zip"], {"logs": ["a.json"], "logs/b.zip": ["b.zip"]}),
        (["x.zip", "x.zip/y"], {"x.zip": ["x.zip"], "x.zip/": ["y"]}),
        (["UP.ZIP"], {"UP.ZIP": ["UP.ZIP"]}),
    ],
)
def test_the_rule(names: list[str], expected: dict[str, list[str]]) -> None:
    found = {}
    for group in group_files(StoredFile(name=name) for name in names):
        key = group.id if group.id in expected else group.name
        found[key] = [entry.name.rpartition("/")[2] if group.packed else group.member(entry) for entry in group.entries]
    assert found == expected


def test_an_artifact_is_as_big_as_its_files_and_as_old_as_the_newest() -> None:
    entries = [
        StoredFile(name="logs/a", size=3, modified=5.0),
        StoredFile(name="logs/b", size=4, modified=9.0),
        StoredFile(name="logs/c", size=0),
    ]
    (group,) = group_files(entries)
    artifact = group.artifact()
    assert (artifact.name, artifact.size, artifact.created) == ("logs", 7, 9.0)
    assert artifact.job_id is None
