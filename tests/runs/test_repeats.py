from __future__ import annotations

import json
import math
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories.curves import NAN, series
from karat.findings import CannotVerify, UsageError
from karat.goldens.paths import DATA_GLOBS, DEFAULT_GLOBS, PathFilter
from karat.goldens.shapes import Document, Metric, Reading, Series, Table
from karat.runs.curves import findings_of_runs, new_golden, onto, settings_like
from karat.runs.repeats import (
    Repeat,
    SampledRun,
    Samples,
    copies,
    disagreements,
    fingerprint,
    read_samples,
    render_samples,
    samples_of,
    samples_path,
)
from karat.settings import RecordSettings


def repeat(golden: Series | Table | Document, name: str = "run", sha256: str = "") -> Repeat:
    return Repeat(path=name, reading=Reading(golden), sha256=sha256)


def told(*runs: Series) -> list[tuple[str, str, str | None]]:
    names = [f"r{i}" for i in range(1, len(runs) + 1)]
    return [(f.kind, f.path, f.where) for f in disagreements(names, list(runs))]


def test_repeats_that_agree_have_nothing_to_tell() -> None:
    assert told(series(loss=[1, 2, NAN]), series(loss=[1.5, 2, NAN])) == []


def test_repeats_that_disagree_are_told_apart() -> None:
    whole = series(loss=[1, 2, 3], lr=[1, 1, 1])
    assert told(whole, series(loss=[1, 2, 3])) == [("lost-metric", "r2", None)]
    assert told(whole, series(loss=[1, 2], lr=[1, 1, 1])) == [("lost-steps", "r2", "step 3")]
    assert told(series(loss=[1, 2, NAN], lr=[1, 1, 1]), whole) == [("new-nan", "r1", "step 3")]
    assert told(whole, series(loss=[1, math.inf, 3], lr=[1, 1, 1])) == [("new-nan", "r2", "step 2")]


def test_copies_are_no_repeats(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events").write_bytes(b"12")
    (tmp_path / "c").write_bytes(b"12")
    prints = [fingerprint(tmp_path / name) for name in "abc"]
    assert prints[0] == prints[1] == prints[2]  # one file, in a folder or not
    runs = [repeat(series(loss=[1]), name, digest) for name, digest in zip("abc", prints, strict=True)]
    assert [f.path for f in copies(runs)] == ["b", "c"]
    (tmp_path / "a" / "more").write_bytes(b"")
    assert fingerprint(tmp_path / "a") != prints[1]


def test_a_cut_file_objects_only_where_nobody_knows_the_last_step() -> None:
    from karat.findings import Finding, Severity

    cut = Finding(kind="truncated", severity=Severity.WARN, message="cut")
    run = Repeat(path="r", reading=Reading(series(loss=[1, 2]), (cut,)))
    (found,) = findings_of_runs([run], None, RecordSettings(), ())
    assert found.severity is Severity.FAIL
    assert findings_of_runs([run], series(loss=[5, 6]), RecordSettings(), ()) == [cut]
    assert findings_of_runs([run], None, RecordSettings(steps=2), ()) == [cut]
    late = findings_of_runs([run], series(loss=[5, 6, 7]), RecordSettings(), ())
    assert {(f.kind, f.severity) for f in late} == {("truncated", Severity.FAIL), ("short-run", Severity.FAIL)}


def test_the_old_golden_knows_the_last_step() -> None:
    run = repeat(series(loss=[1, 2]))
    (found,) = findings_of_runs([run], series(loss=[5, 6, 7]), RecordSettings(), ())
    assert (found.kind, found.numbers["expected_last_step"]) == ("short-run", 3)


def test_only_wanted_metrics_are_taken() -> None:
    old = series(loss=[1, 2], lr=[3, 4])
    new = onto(old, series(lr=[5, 6], loss=[7, 8], extra=[9, 9]), ["l?"], declare=True)
    assert list(new.metrics) == ["loss", "lr"]
    assert new.metrics["loss"] == old.metrics["loss"]
    assert new.metrics["lr"].values.tolist() == [5, 6]
    with pytest.raises(UsageError, match="found loss"):
        onto(old, series(loss=[1]), ["mem-*"], declare=True)


def test_what_the_old_golden_declares_stays_as_far_as_it_is_true() -> None:
    from msgspec import structs

    plain = series(loss={1: 1.0, 30: 2.0, 60: 3.0}).metrics["loss"]
    block = structs.replace(plain, end=70, interval=30, precision=5, extra={"unit": "nats"})
    run = series(loss={1: 5.0, 30: 6.0, 60: 7.0})
    new = onto(Series({"loss": block}), run, (), declare=True).metrics["loss"]
    assert (new.start, new.end, new.interval, new.precision, new.extra) == (1, 70, 30, 5, {"unit": "nats"})
    longer = series(loss={1: 5.0, 30: 6.0, 60: 7.0, 90: 8.0})
    assert onto(Series({"loss": block}), longer, (), declare=True).metrics["loss"].end == 90
    listed = structs.replace(block, end=90, listed=True)
    assert onto(Series({"loss": listed}), run, (), declare=True).metrics["loss"].end == 90, "the first step not in it"
    bare = structs.replace(plain, start=None, end=None, interval=None)
    kept = onto(Series({"loss": bare}), run, (), declare=True).metrics["loss"]
    assert (kept.start, kept.end, kept.interval) == (None, None, None)


def test_the_run_is_thinned_as_its_golden_is() -> None:
    from msgspec import structs

    plain = series(loss={1: 1.0, 5: 2.0}).metrics["loss"]
    golden = Series({"loss": structs.replace(plain, interval=5)})
    assert settings_like(golden, RecordSettings()) == RecordSettings(start=1, interval=5)
    assert settings_like(golden, RecordSettings(interval=2)).interval == 2
    assert settings_like(series(loss=[1, 2]), RecordSettings()) == RecordSettings()
    assert settings_like(Document({}), RecordSettings()) == RecordSettings()
    mixed = Series({**golden.metrics, "x": plain})
    assert settings_like(mixed, RecordSettings()) == RecordSettings()


def test_only_series_have_repeats() -> None:
    table = Table(("name", "x"), ("name",), {("a",): ("a", "1")})
    assert new_golden([repeat(table)], None, (), None) == table
    with pytest.raises(UsageError, match="found: table"):
        new_golden([repeat(table), repeat(table)], None, (), None)
    unread = Repeat(path="x", reading=Reading(None))
    assert new_golden([unread, repeat(table)], None, (), None) is None


def curves_of(**curves: dict[int, float]) -> Series:
    return Series(
        {
            name: Metric(np.array(sorted(held), np.int64), np.array([held[s] for s in sorted(held)], float))
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
    from tempfile import TemporaryDirectory

    before = samples(*(curves_of(**run) for run in runs))
    data = render_samples(before)
    jsonschema.validate(json.loads(data), schema())  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.samples.json"
        path.write_bytes(data)
        after = read_samples(path)
    assert after == before
    assert render_samples(after) == data


def test_each_run_is_a_line_so_that_a_diff_shows_what_came() -> None:
    one = render_samples(samples(curves_of(loss={1: 1.0, 2: 0.5}))).decode().splitlines()
    two = render_samples(samples(curves_of(loss={1: 1.0, 2: 0.5}), curves_of(loss={1: 1.1, 2: 0.5})))
    added = [line for line in two.decode().splitlines() if line.rstrip(",") not in {o.rstrip(",") for o in one}]
    assert added == [f'    {{"name":"run1","sha256":"{1:064x}"}}', "        [1.1,0.5]"]


def test_a_run_is_never_counted_twice() -> None:
    first = samples(curves_of(a={1: 1.0}))
    again = first.plus(samples(curves_of(a={1: 1.0}), curves_of(a={1: 2.0})))
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
    path.write_bytes(render_samples(samples(curves_of(a={1: math.nan}), curves_of(a={1: 1.0, 2: math.inf}))))
    back = read_samples(path)
    assert [len(one.metrics["a"].steps) for one in back.series] == [1, 2]
    assert json.loads(path.read_text())["metrics"]["a"]["values"] == [["nan", None], [1.0, "inf"]]
