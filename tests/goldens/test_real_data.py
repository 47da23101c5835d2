"""Every real file of the shared data, where it lies beside the repository; it is never copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.goldens import formats
from karat.goldens.shapes import Metric, Series, Table

DATA = Path(__file__).parents[3] / "shared" / "data"
NOT_GOLDENS = {".md", ".yaml"}
FILES = sorted(path for path in DATA.rglob("*") if path.is_file() and path.suffix not in NOT_GOLDENS)

pytestmark = pytest.mark.skipif(not FILES, reason="no shared data beside the repository")


def test_every_file_is_read_without_a_finding() -> None:
    for path in FILES:
        reading = formats.read(path.read_bytes(), path.name)
        assert reading.golden is not None, path
        assert reading.findings == (), path


@pytest.mark.slow
def test_every_file_keeps_its_bytes_when_nothing_changed() -> None:
    for path in FILES:
        data = path.read_bytes()
        golden = formats.read(data).golden
        assert golden is not None
        assert formats.write(golden, like=data) == data, path


@pytest.mark.slow
def test_one_changed_sample_changes_one_line() -> None:
    for path in FILES:
        data = path.read_bytes()
        golden = formats.read(data).golden
        if not isinstance(golden, Series):
            continue
        name, metric = next(iter(golden.metrics.items()))
        values = metric.values.copy()
        values[0] = 123.25
        changed = Metric(
            metric.steps, values, metric.start, metric.end, metric.interval, metric.precision, metric.extra
        )
        after = formats.write(Series({**golden.metrics, name: changed}, golden.scalars, golden.others), like=data)
        old, new = data.split(b"\n"), after.split(b"\n")
        assert len(old) == len(new), path
        assert sum(a != b for a, b in zip(old, new, strict=True)) == 1, path


def test_one_removed_row_removes_only_its_lines() -> None:
    for path in FILES:
        data = path.read_bytes()
        golden = formats.read(data).golden
        if not isinstance(golden, Table):
            continue
        gone = list(golden.rows)[len(golden.rows) // 2]
        rows = {key: row for key, row in golden.rows.items() if key != gone}
        less = Table(golden.columns, golden.key, rows, header=golden.header)
        after = formats.write(less, like=data)
        assert formats.read(after).golden == less, path
        kept = [line for line in data.split(b"\n") if line != ",".join(golden.rows[gone]).encode() and line]
        assert [line for line in after.split(b"\n") if line] == kept, path
        assert formats.write(golden, like=data) == data


def test_a_pair_of_versions_agrees_on_its_keys() -> None:
    pairs = [(path, path.with_name(path.name.replace(".old.", ".new."))) for path in FILES if ".old." in path.name]
    assert pairs
    for one, two in pairs:
        old, new = formats.read(one.read_bytes()).golden, formats.read(two.read_bytes()).golden
        assert isinstance(old, Table)
        assert isinstance(new, Table)
        assert (old.columns, old.key) == (new.columns, new.key)
        assert formats.read(formats.write(new, like=one.read_bytes())).golden == new
