from __future__ import annotations

import re

import msgspec
from hypothesis import example, given, strategies as st

from karat.bundles.manifest import LONGEST, Identity, case_path, safe_name

TEXT = st.text(st.characters(), max_size=400)
IDENTITIES = st.builds(Identity, suite=TEXT, flow=TEXT, test=TEXT, subtest=TEXT)


@given(IDENTITIES)
@example(Identity(suite="=x", flow="+", test="@", subtest=""))
def test_a_path_is_three_plain_names(identity: Identity) -> None:
    parts = case_path(identity).split("/")
    assert len(parts) == 3
    for part in parts:
        assert 0 < len(part.encode()) <= LONGEST
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+=,@~-]*", part)
        assert not part.endswith(".")
        assert part.split(".")[0].upper() not in {"CON", "NUL", "PRN", "AUX", "COM1", "LPT9"}


@given(IDENTITIES, IDENTITIES)
def test_two_identities_never_share_a_path_also_where_case_is_ignored(one: Identity, other: Identity) -> None:
    assert (case_path(one).lower() == case_path(other).lower()) == (one == other)


@given(IDENTITIES, st.sampled_from(["suite", "flow", "test", "subtest"]))
def test_every_part_counts(identity: Identity, part: str) -> None:
    changed = msgspec.structs.replace(identity, **{part: getattr(identity, part) + "x"})
    assert case_path(changed).split("-")[-1] != case_path(identity).split("-")[-1]


def test_parts_do_not_run_into_each_other() -> None:
    one = Identity(suite="a", flow="b", test="c-d", subtest="")
    other = Identity(suite="a", flow="b", test="c", subtest="d")
    assert case_path(one) != case_path(other)


def test_a_path_can_be_read_and_does_not_change_between_versions() -> None:
    identity = Identity(suite="models", flow="xnnpack", test="t/test_m.py::test_x[dynamic-1]")
    assert case_path(identity) == ("models/xnnpack/t_test_m.py_test_x_dynamic-1_-" + case_path(identity)[-16:])
    assert case_path(identity)[-16:] == "ee724af719b883f2"


def test_a_long_name_keeps_both_ends() -> None:
    name = safe_name("start" + "x" * 500 + "[params]")
    assert name.startswith("start")
    assert name.endswith("params_")


def test_names_that_mean_something_to_a_system_are_changed() -> None:
    assert safe_name("nul.txt") == "_nul.txt"
    assert safe_name("Index.json") == "_Index.json", "beside the suites lies the index of a zip"
    assert safe_name(".karat") == "_.karat"
    assert safe_name("..") == "_"
    assert safe_name("-rf") == "_-rf"
    assert safe_name("") == "_"
