"""The nights of the investigation that this is all about: four steps, a dip, a crash, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.nightly_logs import CRASHED, MISSING, MLUPS, SIGNATURE, grepped, write_nights
from karat.changepoints.detector.detect import detect
from karat.changepoints.readers.read import read
from karat.changepoints.readers.sheets import ReadOptions
from karat.changepoints.series import Analysis, ChangeKind, Outcome, Series

METRIC = "MLUPS: ([0-9.]+)"


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Series:
    root = write_nights(tmp_path_factory.mktemp("nights"))
    options = ReadOptions(metrics=(METRIC,), better={"": "higher"}, root=root)
    (series,) = read(options=options, logs=["OUT-*"]).series
    return series


@pytest.fixture(scope="module")
def analysis(nights: Series) -> Analysis:
    return detect(nights)


def test_every_logged_night_is_a_point_and_those_without_a_log_are_missing(nights: Series) -> None:
    by = {point.label: point for point in nights.observations}
    assert {label: point.values for label, point in by.items() if point.values} == {
        night: (value,) for night, value in MLUPS.items()
    }
    assert by[CRASHED].outcome is Outcome.CRASH
    missing = [label for label, point in by.items() if point.outcome is Outcome.MISSING]
    assert missing == sorted(MISSING)
    assert len(by) == 61 + len(MISSING)


def test_exactly_four_steps_at_the_right_nights(nights: Series, analysis: Analysis) -> None:
    label = [point.label for point in nights.observations]
    assert [(label[s.last_good], label[s.first_bad]) for s in analysis.steps] == [
        ("07-10", "07-17"),
        ("07-19", "07-20"),
        ("07-21", "07-25"),
        ("08-24", "08-26"),
    ]
    last = analysis.steps[-1]
    assert (label[last.earliest], label[last.latest]) == ("08-24", "08-26")
    sizes = [round(100 * (step.relative or 0), 1) for step in analysis.steps]
    assert sizes == [-3.0, 3.0, -1.7, -7.0]


def test_the_first_two_are_one_dip_and_nothing_else_changed(nights: Series, analysis: Analysis) -> None:
    label = [point.label for point in nights.observations]
    named = [
        (change.kind, label[change.first], change.steps)
        for change in analysis.changes
        if change.kind is not ChangeKind.GAP
    ]
    assert named == [
        (ChangeKind.DIP, "07-17", (0, 1)),
        (ChangeKind.REGRESSION, "07-25", (2,)),
        (ChangeKind.CRASH, CRASHED, ()),
        (ChangeKind.REGRESSION, "08-26", (3,)),
    ]
    (dip, *_) = [change for change in analysis.changes if change.kind is ChangeKind.DIP]
    assert (label[dip.first], label[dip.last]) == ("07-17", "07-19")


def test_the_crash_has_its_signature(analysis: Analysis) -> None:
    (crash,) = [change for change in analysis.changes if change.kind is ChangeKind.CRASH]
    assert crash.signature == SIGNATURE


def test_gaps_are_the_missing_nights(nights: Series, analysis: Analysis) -> None:
    gaps = [change for change in analysis.changes if change.kind is ChangeKind.GAP]
    covered = [nights.observations[n].label for gap in gaps for n in range(gap.first, gap.last + 1)]
    assert covered == sorted(MISSING)


def test_what_grep_printed_says_the_same(tmp_path: Path, analysis: Analysis) -> None:
    (tmp_path / "nights.txt").write_text(grepped())
    options = ReadOptions(metrics=(METRIC,), better={"": "higher"}, root=tmp_path)
    (series,) = read(["nights.txt"], options).series
    said = detect(series)
    assert said.steps == analysis.steps
    (crash,) = [change for change in said.changes if change.kind is ChangeKind.CRASH]
    assert crash.signature == "stopped in MLUPS3d.py, <module>"
