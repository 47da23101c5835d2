"""Identities: read off names, compared, and filled into paths."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.findings import Finding
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter, case_pattern
from karat.refreshes.identity import Lookup, Targets, clashes, fill, in_common, is_wanted, read_identity, renamed
from karat.settings import RefreshSettings

NAMES = st.text(st.characters(blacklist_characters="/{}*", blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)


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
            {
                "suite": "dynamic_inductor_timm",
                "shard": "2",
                "num_shards": "10",
                "machine": "linux.g5.4xlarge",
                "job_id": "4711",
            },
        ),
        (
            "**/golden_values_{lane}_{platform}{again}.json",
            "a/b/golden_values_dev_dgx_h100_2nd.json",
            {"lane": "dev", "platform": "dgx_h100", "again": "_2nd"},
        ),
        (
            "**/golden_values_{lane}_{platform}{again}.json",
            "golden_values_dev_dgx_h100.json",
            {"lane": "dev", "platform": "dgx_h100", "again": ""},
        ),
    ],
)
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
        assert case_pattern("{model}/{case}/{lane}.json").match(filled.path)
        assert len(filled.path.split("/")) == 3


@pytest.mark.parametrize("value", ["..", ".", "a/b", "a\\b", "a\nb", "\x00"])
def test_a_value_that_could_leave_its_folder_is_refused(value: str) -> None:
    filled = fill("tests/{case}/g.json", {"case": value})
    assert filled.path is None
    assert filled.unsafe


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


G = "golden_values.json"
BERT, GPT = f"tests/bert/tp1/{G}", f"tests/gpt/tp2/{G}"


def found(member: str, artifact: str, *known: str, cases: tuple[str, ...] = ()) -> str | None:
    targets = Targets(RefreshSettings(), PathFilter(DEFAULT_GLOBS), known, cases)
    target = targets.find(member, artifact, {"case": "x"} if cases else {})
    return None if isinstance(target, Finding) else target


@pytest.mark.parametrize(
    ("member", "artifact"),
    [
        (BERT, "."),
        (BERT, "logs-7"),
        (f"bert/tp1/{G}", "tests"),
        (f"bert/tp1/{G}", "."),
        (f"tp1/{G}", "bert"),
        (f"work/repo/{BERT}", "logs-7"),
    ],
)
def test_a_path_that_ends_as_the_golden_s_does(member: str, artifact: str) -> None:
    assert found(member, artifact, BERT, GPT) == BERT


@pytest.mark.parametrize(
    ("member", "artifact"),
    [
        (f"t5/tp1/{G}", "tests"),
        (f"t5/tp1/{G}", "."),
        (f"tp1/{G}", "t5"),
        (f"x/tests/t5/tp1/{G}", "logs-7"),
        (G, "bert"),
        (G, "logs-7"),
        (f"tp3/{G}", "."),
    ],
)
def test_a_folder_of_another_name_is_another_case(member: str, artifact: str) -> None:
    assert found(member, artifact, BERT, GPT) is None


def test_an_artifact_s_name_may_disagree_where_the_file_s_name_is_the_only_one() -> None:
    assert found("goldens/loss.json", "results", "tests/goldens/loss.json") == ("tests/goldens/loss.json")
    assert found("goldens/loss.json", "results/other", "tests/goldens/loss.json") is not None
    assert found("other/loss.json", "results", "tests/goldens/loss.json") is None


def test_a_name_alone_does_only_where_nothing_else_was_given() -> None:
    assert found(G, ".", BERT) == BERT
    assert found(G, ".", BERT, GPT) is None
    assert found(G, "logs-7", BERT) is None


def test_two_goldens_that_fit_alike_are_not_guessed_between() -> None:
    known = (f"one/tp1/{G}", f"two/tp1/{G}")
    assert found(f"tp1/{G}", ".", *known) is None
    assert found(f"two/tp1/{G}", ".", *known) == known[1]
    assert found(f"tp1/{G}", "two", *known) == known[1]


def test_a_golden_that_says_another_identity_is_not_it() -> None:
    assert found(BERT, ".", BERT, cases=("tests/{model}/{case}/golden_values.json",)) is None


KEYS = st.sampled_from(["case", "model", "run_id", "uuid", "attempt", "job_id", "shard"])
IDENTITIES = st.dictionaries(KEYS, st.sampled_from(["a", "A", "b", "1"]), max_size=4)


@given(st.lists(IDENTITIES, max_size=8), IDENTITIES)
def test_it_agrees_with_asking_each(known: list[dict[str, str]], asked: dict[str, str]) -> None:
    lookup = Lookup((identity, i) for i, identity in enumerate(known))
    expected = [i for i, one in enumerate(known) if in_common(asked, one) and not clashes(asked, one)]
    assert list(lookup.agreeing(asked)) == expected


def test_among_thousands_only_the_near_ones_are_looked_at() -> None:
    looked: list[int] = []

    class Watched(dict[str, str]):
        def __and__(self, other: object) -> None: ...

        def keys(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
            looked.append(1)
            return super().keys()

    lookup = Lookup((Watched(model="gpt", case=f"c{i}"), i) for i in range(2000))
    looked.clear()
    assert lookup.agreeing({"model": "gpt", "case": "C7"}) == (7,)
    assert len(looked) < 20
