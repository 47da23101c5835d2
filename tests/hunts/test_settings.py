from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.engines.job import parse_size
from karat.findings import UsageError
from karat.hunts.settings import RepositorySettings, check_repositories, parse_duration, parse_step, split_command


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, 5),
        (0.5, 0.5),
        ("90 s", 90),
        ("10min", 600),
        ("1.5 h", 5400),
        ("1 h 30 min", 5400),
        ("2 Days", 172800),
        ("1 week", 604800),
        ("250 ms", 0.25),
        ("2 m", 120),
        (" 1 d ", 86400),
    ],
)
def test_durations(value: str | float, found: float) -> None:
    assert parse_duration(value) == pytest.approx(found)


@pytest.mark.parametrize(
    "value", ["", "5", "h", "5 parsecs", "1 h and", "-1 s", -1, float("nan"), float("inf"), "1 h x"]
)
def test_what_is_no_duration(value: str | float) -> None:
    with pytest.raises(UsageError, match="expected a duration"):
        parse_duration(value)


@given(st.floats(0, 3e4, allow_nan=False), st.sampled_from(["s", "min", "hours", "day"]))
def test_a_unit_is_a_factor(value: float, unit: str) -> None:
    assert parse_duration(f"{value:.6f} {unit}") == pytest.approx(float(f"{value:.6f}") * parse_duration(f"1 {unit}"))


@pytest.mark.parametrize(
    ("text", "found"), [("day", 86400), ("2 hours", 7200), ("30 min", 1800), ("moon", None), ("0 s", None), ("", None)]
)
def test_steps(text: str, found: float | None) -> None:
    assert parse_step(text) == found


@pytest.mark.parametrize(
    ("text", "found"), [("", 0), ("1000", 1000), ("50 GB", 50 * 10**9), ("1.5kib", 1536), ("2 MiB", 2 << 20)]
)
def test_sizes(text: str, found: int) -> None:
    assert parse_size(text) == found


@pytest.mark.parametrize("text", ["GB", "-1", "5 G", "5 gigabytes", "1e3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="expected a size"):
        parse_size(text)


def test_words_are_split_as_a_shell_would_and_no_more() -> None:
    assert split_command("python 'a b.py' --x=$HOME | cat") == ("python", "a b.py", "--x=$HOME", "|", "cat")
    assert split_command(("a b", "c")) == ("a b", "c")
    assert split_command("") == ()
    with pytest.raises(UsageError, match="closed quotes"):
        split_command("python 'a")


@pytest.mark.parametrize(
    ("names", "complaint"),
    [(("a b",), "a name of letters"), (("image",), "a name of letters"), (("a-b", "a_b"), "KARAT_COMMIT_A_B' 2 times")],
)
def test_names_of_repositories_that_cannot_be_told_apart_are_refused(names: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        check_repositories([RepositorySettings(name=name, url="x") for name in names])
