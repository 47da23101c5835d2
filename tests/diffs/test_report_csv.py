from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.repositories import curves, golden_text
from karat.diffs.diff import diff
from karat.diffs.report import data

Row = tuple[str, str, int, float]


def direct(old_root: Path, new_root: Path) -> Iterator[Row]:
    """The seed's formula, computed directly."""
    for path in sorted(p.relative_to(old_root) for p in old_root.rglob("*.json")):
        old = json.loads((old_root / path).read_text(encoding="utf-8"))
        new = json.loads((new_root / path).read_text(encoding="utf-8"))
        for metric in sorted(old.keys() & new.keys()):
            if not isinstance(old[metric], dict) or "values" not in old[metric]:
                continue
            a, b = old[metric]["values"], new[metric]["values"]
            pairs = [(float(a[s]), float(b[s])) for s in a if s in b]
            rel = [(x - y) / x for x, y in pairs if math.isfinite(x) and math.isfinite(y) and abs(x) >= 1e-12]
            if rel:
                yield str(path), metric, len(rel), sum(rel) / len(rel)


def ours(old: Path, new: Path) -> list[Row]:
    text = b"".join(data.render_csv(diff(str(old), str(new)))).decode()
    return [
        (r["file"], r["metric"], int(r["n_steps"]), float(r["avg_rel_diff"])) for r in csv.DictReader(io.StringIO(text))
    ]


def assert_equal(old: Path, new: Path) -> int:
    expected, found = list(direct(old, new)), ours(old, new)
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert abs(mine[3] - theirs[3]) <= 1e-12, mine
    return len(found)


def test_the_csv_is_the_seeds_formula(tmp_path: Path) -> None:
    for i in range(12):
        for side in ("old", "new"):
            path = tmp_path / side / f"case {i}" / "golden_values_dev_dgx_h100.json"
            path.parent.mkdir(parents=True)
            path.write_text(
                golden_text(curves(i + (side == "new")), stop=13 if side == "new" and i == 3 else None),
                encoding="utf-8",
            )
    assert assert_equal(tmp_path / "old", tmp_path / "new") == 48
    rows = {(file, metric): n for file, metric, n, _ in ours(tmp_path / "old", tmp_path / "new")}
    assert rows["case 3/golden_values_dev_dgx_h100.json", "lm loss"] == 13


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("truncated-64bee49c", 146),
        ("image-bump-5fe3f066", 385),
        ("with-inference-6e091e1b", 380),
        ("repair-96d41593", 10),
    ],
)
def test_the_csv_of_real_refreshes(shared_data: Path, name: str, rows: int) -> None:
    folder = shared_data / "megatron" / name
    assert assert_equal(folder / "before", folder / "after") == rows


def test_the_header_is_the_seeds(tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.json").write_text(golden_text(curves(1)), encoding="utf-8")
    text = b"".join(data.render_csv(diff(str(tmp_path / "old"), str(tmp_path / "new")))).decode()
    assert text.splitlines()[0] == "file,metric,n_steps,avg_rel_diff"
    assert text.splitlines()[1] == "a.json,iteration-time,49,0.0"
