from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from factories.repositories import Repository
from karat.changepoints.readers.logs import LogSearch, find_logs, literal_of, log_metric
from karat.changepoints.readers.read import SeriesCollection, read
from karat.changepoints.readers.sheets import ReadOptions
from karat.changepoints.series import Outcome, Series
from karat.findings import CannotVerify, UsageError

METRIC = r"ms: ([0-9.naif-]+)"


def collected(root: Path, *globs: str, **options: Any) -> SeriesCollection:
    return read(options=ReadOptions(**{"metrics": (METRIC,), "root": root, **options}), logs=globs or ["*"])


def only(root: Path, *globs: str, **options: Any) -> Series:
    (series,) = collected(root, *globs, **options).series
    return series


def values(series: Series) -> dict[str, tuple[float, ...]]:
    return {point.label: point.values for point in series.observations}


def logs(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        (root / f"{name.replace('_', '-')}.log").write_text(text)


def test_a_log_is_a_point_with_its_value_crash_or_nothing(tmp_path: Path) -> None:
    logs(
        tmp_path,
        out_07_01="ms: 3.5\n",
        out_07_02="",
        out_07_03="Traceback (most recent call last):\nValueError: no\n",
        out_07_04="ended early\n",
        out_07_05="ms: nan\n",
    )
    series = only(tmp_path)
    assert series.metric == "ms"
    assert [(p.outcome, p.signature) for p in series.observations] == [
        (Outcome.OK, ""),
        (Outcome.MISSING, ""),
        (Outcome.CRASH, "ValueError: no"),
        (Outcome.MISSING, ""),
        (Outcome.CRASH, "the value is not a number (nan)"),
    ]
    assert series.observations[0].log == "out-07-01.log"


def test_of_several_matches_the_last_counts(tmp_path: Path) -> None:
    logs(tmp_path, a_2023_01_01="ms: 1\nms: 3\nms: 2\nms: 4.\n")
    assert values(only(tmp_path)) == {"2023-01-01": (4.0,)}


def test_several_metrics_and_their_names(tmp_path: Path) -> None:
    logs(tmp_path, a_2023_01_01="loss=1.5 speed 7 it/s\n", a_2023_01_02="loss=1.25\nSegmentation fault\n")
    found = collected(tmp_path, metrics=(r"loss=([0-9.]+)", r"(?P<rate>\d+) it/s")).series
    assert [series.metric for series in found] == ["loss", "rate"]
    assert values(found[0]) == {"2023-01-01": (1.5,), "2023-01-02": (1.25,)}
    assert found[1].observations[1].signature == "SIGSEGV"


@pytest.mark.parametrize("pattern", ["(", "no group", ""])
def test_an_expression_that_cannot_be_meant_is_refused(tmp_path: Path, pattern: str) -> None:
    logs(tmp_path, a_2023_01_01="x")
    with pytest.raises(UsageError, match="--metric"):
        collected(tmp_path, metrics=(pattern,))


def test_no_expression_or_two_of_one_name_are_refused(tmp_path: Path) -> None:
    logs(tmp_path, a_2023_01_01="x")
    with pytest.raises(UsageError, match="expected --metric to say where the number is"):
        collected(tmp_path, metrics=())
    with pytest.raises(UsageError, match="a name of its own"):
        collected(tmp_path, metrics=("ms: (.)", "ms (.)"))


@pytest.mark.slow
def test_an_expression_that_tries_over_and_over_is_called_off(tmp_path: Path) -> None:
    logs(tmp_path, a_2023_01_01="a" * 60 + "!\n")
    with pytest.raises(UsageError, match="tries the same text over and over"):
        collected(tmp_path, metrics=("(a+)+b",))


def test_names_without_a_date_are_in_natural_order(tmp_path: Path) -> None:
    logs(tmp_path, run_9="ms: 9", run_10="ms: 10", run_1="ms: 1")
    found = collected(tmp_path)
    assert list(values(found.series[0])) == ["run-1", "run-9", "run-10"]
    assert found.notes == ("no date or commit is in the names of all logs; they are in the order of their names",)


def test_commits_are_in_the_order_of_history(repository: Repository) -> None:
    commits = [repository.commit(f"c{n}") for n in range(5)]
    for n, commit in enumerate(commits):
        (repository.root / f"bench-{commit[:12]}.log").write_text(f"ms: {n}\n")
    (repository.root / "bench-abcdef012345.log").write_text("ms: 9\n")
    found = collected(repository.root, "bench-*")
    (series,) = found.series
    assert values(series) == {commit[:10]: (float(n),) for n, commit in enumerate(commits)}
    assert series.observations[0].when is not None
    assert found.notes == ("in the order of git's history",)
    (finding,) = found.findings
    assert "expected commit abcdef012345 in the repository, found none" in finding.message


def test_commits_outside_of_a_repository_are_said_to_be_in_no_order(tmp_path: Path) -> None:
    logs(tmp_path, x_1a2b3c4d="ms: 1", x_2a2b3c4d="ms: 2")
    assert "no git repository here knows the commits" in collected(tmp_path).notes[0]


def test_since_may_be_a_day_without_a_log(tmp_path: Path) -> None:
    logs(tmp_path, **{f"o_07_0{day}": f"ms: {day}" for day in (1, 2, 3, 5, 6)})
    assert list(values(only(tmp_path, since="07-04"))) == ["07-04", "07-05", "07-06"]


def test_a_log_without_a_date_among_others_is_left_out_and_named(tmp_path: Path) -> None:
    logs(tmp_path, **{f"o_07_0{day}": "ms: 1" for day in range(1, 8)}, README="about")
    found = collected(tmp_path)
    assert len(found.series[0].observations) == 7
    assert [(f.kind, f.path) for f in found.findings] == [("unreadable", "README.log")]


def test_folders_of_repeats_are_joined(tmp_path: Path) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        logs(tmp_path / run, o_07_01="ms: 1", o_07_02="ms: 2")
    assert values(only(tmp_path, "*/o-*")) == {"07-01": (1.0, 1.0), "07-02": (2.0, 2.0)}
    assert values(only(tmp_path, "a")) == {"07-01": (1.0,), "07-02": (2.0,)}


def test_two_logs_of_one_day_in_one_folder_are_two_points(tmp_path: Path) -> None:
    logs(tmp_path, a_07_01="ms: 1", b_07_01="ms: 2")
    assert values(only(tmp_path)) == {"a-07-01.log": (1.0,), "b-07-01.log": (2.0,)}


def test_links_are_followed_to_files_and_never_in_circles(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    logs(tmp_path / "deep", o_07_01="ms: 1")
    (tmp_path / "deep" / "again").symlink_to(tmp_path)
    (tmp_path / "o-07-02.log").symlink_to(tmp_path / "deep" / "o-07-01.log")
    (tmp_path / "o-07-03.log").symlink_to(tmp_path / "o-07-03.log")
    os.mkfifo(tmp_path / "o-07-04.log")
    assert find_logs(["**/*"], tmp_path) == ("deep/o-07-01.log", "o-07-02.log")
    assert find_logs([f"{tmp_path}/**/*.log"], Path()) == (f"{tmp_path}/deep/o-07-01.log", f"{tmp_path}/o-07-02.log")


def test_names_of_any_letters_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "Größe-07-01 \x1b[31m.log").write_text("ms: 1")
    with open(os.fsencode(tmp_path) + b"/\xff-07-02.log", "wb") as stream:  # noqa: PTH123 - no such Path
        stream.write(b"\xff\xfe\0ms: 2\n\0")
    assert values(only(tmp_path)) == {"07-01": (1.0,), "07-02": (2.0,)}


def test_what_cannot_be_read_is_broken_and_told(tmp_path: Path) -> None:
    logs(tmp_path, o_07_01="ms: 1")
    # Tests run as root, whom no permission stops; nobody can read a process's memory from its beginning.
    (tmp_path / "o-07-02.log").symlink_to("/proc/self/mem")
    found = collected(tmp_path)
    assert [p.outcome for p in found.series[0].observations] == [Outcome.OK, Outcome.BROKEN]
    assert [f.kind for f in found.findings] == ["cannot-read"]


@pytest.mark.parametrize(
    ("text", "outcome", "signature"),
    [
        (
            "docker: Error response from daemon: manifest for r.example/jax:nightly-07-02 not found: manifest unknown.\n",
            Outcome.MISSING,
            "",
        ),
        (
            "Error: initializing source docker://r.example/jax: reading manifest nightly-07-02: manifest unknown\n",
            Outcome.MISSING,
            "",
        ),
        (
            "docker: Error response from daemon: could not select device driver.\nSee 'docker run --help'.\n",
            Outcome.BROKEN,
            "Error response from daemon: could not select device driver.",
        ),
        (
            "Traceback (most recent call last):\nKeyError: 'manifest unknown'\n",
            Outcome.CRASH,
            "KeyError: 'manifest unknown'",
        ),
    ],
)
def test_a_night_without_an_image_is_no_crash(tmp_path: Path, text: str, outcome: Outcome, signature: str) -> None:
    logs(tmp_path, out_07_01="ms: 3.5\n", out_07_02=text)
    point = only(tmp_path).observations[1]
    assert (point.outcome, point.signature) == (outcome, signature)


def test_a_crash_beside_the_value_leaves_the_value(tmp_path: Path) -> None:
    crash = "Traceback (most recent call last):\nValueError: at exit\n"
    logs(tmp_path, out_07_01=f"{crash}ms: 3.5\n", out_07_02=f"ms: 4.5\n{crash}")
    found = collected(tmp_path)
    assert values(found.series[0]) == {"07-01": (3.5,), "07-02": (4.5,)}
    assert found.findings == ()


def test_a_glob_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found nothing that 'OUT-\\*' means"):
        collected(tmp_path, "OUT-*")


@pytest.mark.parametrize("stamp", ["", "2023-08-24 1{}:00:01,123 INFO", "[2023-08-24T1{}:00:01Z]", "08-24 1{}:00:01"])
def test_one_log_is_not_what_grep_printed(tmp_path: Path, stamp: str) -> None:
    logs(tmp_path, train="".join(f"{stamp.format(n % 10)} ms: {n}\n" for n in range(30)))
    with pytest.raises((CannotVerify, UsageError), match=r"expected (--metric to name a column of )?train\.log"):
        read(["train.log"], ReadOptions(metrics=(METRIC,), root=tmp_path))


@pytest.mark.parametrize("form", ["OUT-07-{:02}:ms: {}", "2023-07-{:02}:12:ms: {}", "./a/OUT-07-{:02}.log:ms: {}"])
def test_what_grep_prints_of_any_names(tmp_path: Path, form: str) -> None:
    logs(tmp_path, grepped="".join(f"{form.format(n, n)}\n" for n in range(1, 9)))
    (series,) = read(["grepped.log"], ReadOptions(metrics=(METRIC,), root=tmp_path)).series
    assert [point.values for point in series.observations] == [(float(n),) for n in range(1, 9)]
    assert "07-08" in series.observations[-1].label


def test_bars_colours_long_lines_and_thousands(tmp_path: Path) -> None:
    text = "x" * 100_000 + "ms: 1\n10%\rms: 2\rdone\n\x1b[1mms: \x1b[0m1,234.5\n"
    logs(tmp_path, o_07_01=text)
    assert values(only(tmp_path, metrics=(r"ms: ([0-9.,]+)",))) == {"07-01": (1234.5,)}


def test_a_match_that_is_no_number_is_told(tmp_path: Path) -> None:
    logs(tmp_path, o_07_01="ms: fast\nms: 3\n")
    found = collected(tmp_path, metrics=(r"ms: (\w+)",))
    assert values(found.series[0]) == {"07-01": (3.0,)}
    assert "expected a number where --metric matches, found 'fast'" in found.findings[0].message


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("MLUPS: ([0-9.]+)", "MLUPS: "),
        ("ab*(c)", "a"),
        ("a|(b)", ""),
        ("(?i)ms (.)", ""),
        ("(.)", ""),
        ("x (?P<y>.)", "x "),
    ],
)
def test_the_letters_that_every_match_has(text: str, literal: str) -> None:
    assert literal_of(text) == literal


def test_matches_agree_with_the_expression_alone() -> None:
    metric = log_metric(r"ab?: ([0-9]+)")
    lines = [b"ab: 1", b"a: 2", b"b: 3", b"xa: 4 ab: 5"]
    with LogSearch([metric]) as matches:
        found = matches.in_lines(lines)
    assert list(found.values()) == [[1.0, 2.0, 4.0]]
