"""Identities: read off names, compared, and filled into paths."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.goldens.paths import pattern_regex
from karat.refreshes.identity import (
    clashes,
    fill,
    in_common,
    is_wanted,
    read_identity,
    renamed,
)

NAMES = st.text(
    st.characters(blacklist_characters="/{}*", blacklist_categories=("Cs", "Cc")),
    min_size=1,
    max_size=12,
)


def test_a_run_id_in_a_name_is_the_run_s_and_no_other_number() -> None:
    name = "logs-gpt3-8-experts-7-1234-0a1b-2c"
    assert read_identity([name], ["logs-{case}-{run_id}-{uuid}"], {"run_id": "1234"}) == {
        "case": "gpt3-8-experts-7",
        "run_id": "1234",
        "uuid": "0a1b-2c",
    }
    assert read_identity([name], ["logs-{case}-{run_id}-{uuid}"], {"run_id": "99"}) is None


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("{model}/{case} - {lane}", "gpt/gpt3_tp2 - dev", {"model": "gpt", "case": "gpt3_tp2", "lane": "dev"}),
        (
            "test-reports-test-{suite}-{shard}-{num_shards}-{machine}_{job_id}.zip",
            "test-reports-test-dynamic_inductor_timm-2-10-linux.g5.4xlarge_4711.zip",
            {"suite": "dynamic_inductor_timm", "shard": "2", "num_shards": "10", "machine": "linux.g5.4xlarge", "job_id": "4711"},
        ),
        ("**/golden_values_{lane}_{platform}{again}.json", "a/b/golden_values_dev_dgx_h100_2nd.json", {"lane": "dev", "platform": "dgx_h100", "again": "_2nd"}),
        ("**/golden_values_{lane}_{platform}{again}.json", "golden_values_dev_dgx_h100.json", {"lane": "dev", "platform": "dgx_h100", "again": ""}),
    ],
)  # fmt: skip
def test_names_of_the_field_are_read(pattern: str, text: str, expected: dict[str, str]) -> None:
    assert read_identity([text], [pattern]) == expected


def test_the_first_pattern_that_fits_any_text_wins() -> None:
    assert read_identity(["x/y", "dev/x/y"], ["{lane}/{model}/{case}", "{model}/{case}"]) == {
        "lane": "dev",
        "model": "x",
        "case": "y",
    }


@given(st.dictionaries(st.sampled_from(["model", "case", "lane"]), NAMES, min_size=3))
def test_what_is_filled_in_can_be_read_back(identity: dict[str, str]) -> None:
    filled = fill("{model}/{case}/{lane}.json", identity)
    if filled.path is None:
        assert filled.unsafe
    else:
        assert pattern_regex("{model}/{case}/{lane}.json").fullmatch(filled.path)
        assert len(filled.path.split("/")) == 3


@pytest.mark.parametrize("value", ["..", ".", "a/b", "a\\b", "a\nb", "\x00"])
def test_a_value_that_could_leave_its_folder_is_refused(value: str) -> None:
    assert fill("tests/{case}/g.json", {"case": value}).unsafe == ("case",)


def test_what_is_missing_is_named() -> None:
    assert fill("{model}/{case}{again}.json", {"model": "m"}).missing == ("case",)


def test_case_does_not_matter_and_incidental_names_tell_nothing() -> None:
    assert not clashes({"case": "GPT3", "uuid": "a"}, {"case": "gpt3", "uuid": "b"})
    assert clashes({"platform": "h100"}, {"platform": "gb200"}) == ["platform"]
    assert not in_common({"uuid": "a", "run_id": "1"}, {"uuid": "a", "run_id": "1"})
    assert in_common({"case": "a"}, {"case": "b"})


def test_a_subsuite_is_the_suite_s_last_part_in_the_members_spelling() -> None:
    rename = {"subsuite": {"timm": "timm_models"}}
    assert renamed({"suite": "cpu_inductor_timm"}, rename)["subsuite"] == "timm_models"
    assert renamed({"suite": "inductor_huggingface"}, rename)["subsuite"] == "huggingface"
    assert "subsuite" not in renamed({"suite": "inductor_timm"}, {})


def test_only_wanted_values_are_taken() -> None:
    values = {"suite": ("*_timm", "*_huggingface")}
    assert is_wanted({"suite": "inductor_timm"}, values)
    assert is_wanted({"case": "x"}, values)
    assert not is_wanted({"suite": "default"}, values)


def test_a_name_that_no_file_could_have_is_not_even_read() -> None:
    pattern = "**/golden_values_{lane}_{platform}{again}.json"
    longest = f"golden_values_dev_{'h' * 232}.json"
    assert len(longest) == 255
    assert read_identity([f"a/{longest}"], [pattern]) is not None
    assert read_identity([f"a/{longest[:-5]}h.json"], [pattern]) is None
    # Read, this would take minutes; twenty thousand such names fit into one archive.
    assert read_identity([f"golden_values_{'_' * 60_000}.json"], [pattern]) is None
