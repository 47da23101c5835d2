from __future__ import annotations

import json
import math
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.findings import CannotVerify
from karat.goldens.paths import DATA_GLOBS, DEFAULT_GLOBS, PathFilter
from karat.goldens.shapes import Metric, Reading, Series
from karat.runs.repeats import (
    Repeat,
    SampledRun,
    Samples,
    read_samples,
    render_samples,
    samples_of,
    samples_path,
)


def series(**curves: dict[int, float]) -> Series:
    return Series(
        {
            name: Metric(
                np.array(sorted(held), np.int64), np.array([held[s] for s in sorted(held)], float)
            )
            for name, held in curves.items()
            if held
        }
    )


def samples(*runs: Series) -> Samples:
    names = tuple(SampledRun(name=f"run{i}", sha256=f"{i:064x}") for i in range(len(runs)))
    return Samples(runs=names, series=runs)


def schema() -> object:
    text = resources.files("karat").joinpath("schemas", "karat.samples.1.json").read_text()
    return json.loads(text)


CURVES = st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.floats(), max_size=6)


@pytest.mark.slow
@given(st.lists(st.fixed_dictionaries({"a": CURVES, "b": CURVES}), max_size=4))
def test_samples_come_back_as_they_were(runs: list[dict[str, dict[int, float]]]) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - hypothesis and tmp_path do not mix

    before = samples(*(series(**run) for run in runs))
    data = render_samples(before)
    jsonschema.validate(json.loads(data), schema())  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.samples.json"
        path.write_bytes(data)
        after = read_samples(path)
    assert after == before
    assert render_samples(after) == data


def test_each_run_is_a_line_so_that_a_diff_shows_what_came() -> None:
    one = render_samples(samples(series(loss={1: 1.0, 2: 0.5}))).decode().splitlines()
    two = render_samples(samples(series(loss={1: 1.0, 2: 0.5}), series(loss={1: 1.1, 2: 0.5})))
    added = [
        line
        for line in two.decode().splitlines()
        if line.rstrip(",") not in {o.rstrip(",") for o in one}
    ]
    assert added == [f'    {{"name":"run1","sha256":"{1:064x}"}}', "        [1.1,0.5]"]


def test_a_run_is_never_counted_twice() -> None:
    first = samples(series(a={1: 1.0}))
    again = first.plus(samples(series(a={1: 1.0}), series(a={1: 2.0})))
    assert [run.name for run in again.runs] == ["run0", "run1"]


def test_samples_stand_beside_the_golden_and_are_none() -> None:
    path = samples_path(Path("a/golden_values_h100.json"))
    assert path == Path("a/golden_values_h100.samples.json")
    for globs in (DEFAULT_GLOBS, DATA_GLOBS):
        assert PathFilter(globs)("a/golden_values_h100.json")
        assert not PathFilter(globs)(path.as_posix())
        assert not PathFilter(globs).covers(path.as_posix())


def test_only_curves_are_samples() -> None:
    golden = Series({}, {"x": 1.0}, {"note": "n"})
    kept = samples_of([Repeat(path="logs/run7", reading=Reading(golden), sha256="0" * 64)])
    assert (kept.runs[0].name, kept.series) == ("run7", (Series({}),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "found: Input data was truncated"),
        ('{"schema": "karat.samples/2", "runs": [], "metrics": {}}', "karat.samples/2"),
        (
            '{"schema": "karat.samples/1", "runs": [], "metrics": {"a": {"steps": [1], "values": [[1]]}}}',
            "1 samples of a for 0 runs",
        ),
        (
            '{"schema": "karat.samples/1", "runs": [{"name": "", "sha256": ""}], "metrics": {"a": {"steps": [1], "values": [[1, 2]]}}}',
            "2 values of a for 1 steps",
        ),
        (
            '{"schema": "karat.samples/1", "runs": [], "metrics": {"a": {"steps": [2, 2], "values": []}}}',
            "steps of a that do not ascend",
        ),
        (
            '{"schema": "karat.samples/1", "runs": [], "metrics": {"a": {"steps": [99999999999999999999], "values": []}}}',
            "expected karat.samples/1 in .*, found: ",
        ),
    ],
)
def test_a_broken_file_is_not_taken_for_no_samples(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.samples.json"
    path.write_text(text)
    with pytest.raises(CannotVerify, match=said):
        read_samples(path)
    assert read_samples(tmp_path / "none") == Samples()


def test_nan_and_missing_are_two_things(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(
        render_samples(samples(series(a={1: math.nan}), series(a={1: 1.0, 2: math.inf})))
    )
    back = read_samples(path)
    assert [len(one.metrics["a"].steps) for one in back.series] == [1, 2]
    assert json.loads(path.read_text())["metrics"]["a"]["values"] == [["nan", None], [1.0, "inf"]]
