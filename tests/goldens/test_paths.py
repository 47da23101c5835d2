from __future__ import annotations

import pytest

from karat.goldens.paths import DEFAULT_GLOBS, PathFilter, common_root, glob_matcher, identity_of, narrow


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("**/golden_values*.json", "golden_values_a.json", True),
        ("**/golden_values*.json", "a/b c/golden_values_ä.json", True),
        ("**/golden_values*.json", "a/golden_values/x.json", False),
        ("a/*.json", "a/b/c.json", False),
        ("a/**", "a/b/c.json", True),
        ("a/**/c.json", "a/c.json", True),
        ("a/**/c.json", "ab/c.json", False),
        ("**/b.json", "ab.json", False),
        ("?.{json,csv}", "x.csv", True),
        ("?.{json,csv}", "xy.csv", False),
        ("a.json", "aXjson", False),
        ("a[1].json", "a[1].json", True),
    ],
)
def test_globs(glob: str, path: str, fits: bool) -> None:  # noqa: FBT001 - a table
    assert bool(glob_matcher(glob).fullmatch(path)) is fits


def test_karats_own_files_are_never_goldens() -> None:
    wanted = PathFilter(["**/*"], ["old/**"])
    assert wanted("a/b.json")
    assert not wanted("a/goldens.lock.json")
    assert not wanted("karat.toml")
    assert not wanted("old/b.json")


@pytest.mark.parametrize(
    "path",
    [
        "tests/functional_tests/test_cases/gpt/x/golden_values_dev_dgx_h100.json",
        "benchmarks/dynamo/ci_expected_accuracy/rocm/inductor_training.csv",
        "benchmarks/dynamo/pr_time_benchmarks/expected_results.csv",
        "goldens/a/b.json",
        "loss_golden.txt",
    ],
)
def test_goldens_are_found_without_a_configuration(path: str) -> None:
    assert PathFilter(DEFAULT_GLOBS)(path)


def test_ordinary_files_are_not_goldens() -> None:
    wanted = PathFilter(DEFAULT_GLOBS)
    assert not any(map(wanted, ["package.json", "data.csv", "README.md", "src/golden.py"]))


def test_identity_is_read_off_the_path() -> None:
    pattern = "**/{model}/{case}/golden_values_{lane}_{platform}.json"
    found = identity_of("tests/t/gpt/gpt3_tp1/golden_values_dev_dgx_h100.json", [pattern])
    assert found == {"model": "gpt", "case": "gpt3_tp1", "lane": "dev", "platform": "dgx_h100"}
    assert identity_of("elsewhere.json", [pattern]) == {}


def test_narrowing() -> None:
    path = "a/b/golden_h100.json"
    assert all(narrow(path, [item]) for item in (path, "a", "a/", "a/b", "b", "*h100*", "b/*", "**/*.json"))
    assert not any(narrow(path, [item]) for item in ("c", "a/b/golden", "*gb200*"))
    assert narrow(path, [])


def test_common_root() -> None:
    assert common_root([]) == ""
    assert common_root(["a/b/c.json"]) == "a/b"
    assert common_root(["a/b/c.json", "a/d.json"]) == "a"
    assert common_root(["a.json", "b/c.json"]) == ""


@pytest.mark.parametrize(
    "pattern", ["**/golden_values_{lane}_{platform}.json", "**/golden_values_{lane}_{platform}{again}.json"]
)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("golden_values_dev_dgx_h100_2nd", {"lane": "dev", "platform": "dgx_h100", "again": "_2nd"}),
        ("golden_values_dev_dgx_h100_11th", {"lane": "dev", "platform": "dgx_h100", "again": "_11th"}),
        ("golden_values_dev_dgx_h100", {"lane": "dev", "platform": "dgx_h100"}),
    ],
)
def test_a_second_run_of_a_test_is_no_platform(pattern: str, name: str, expected: dict[str, str]) -> None:
    assert identity_of(f"gpt/a/{name}.json", [pattern]) == expected
