from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from factories.captured import ENVIRONMENT, capture, identity
from factories.runners import flip
from karat.bundles.extents import whole_file
from karat.bundles.manifest import Comparator, Environment
from karat.compare.change import Change, Verdict
from karat.diffs.cases import GatheredPlace
from karat.diffs.diff import DiffOptions, diff
from karat.diffs.report import data, html, markdown, text as terminal
from karat.diffs.result import Diff
from karat.findings import ExitCode, KaratError, UsageError, exit_code

SCHEMA = json.loads(resources.files("karat").joinpath("schemas", "karat.diff.1.json").read_text(encoding="utf-8"))
RNG = np.random.default_rng(7)
X = RNG.standard_normal((6, 5)).astype(np.float32)
KARAT = Comparator(name="karat", rtol=1e-3, atol=1e-5)


def two(tmp_path: Path, old: dict[str, Any], new: dict[str, Any], name: str = "test_a") -> Diff:
    """The difference of two captures of one case."""
    for side, changes in (("old", old), ("new", new)):
        said = {"inputs": (X,), "expected": (X * 2,), "comparator": KARAT, **changes}
        capture(tmp_path / side, identity(name), **said)
    return compared(tmp_path)


def compared(tmp_path: Path, old: str = "old", new: str = "new", **options: Any) -> Diff:
    return diff(old, new, cwd=tmp_path, options=DiffOptions(**options))


def only(result: Diff) -> Change:
    (change,) = result.changes
    return change


def kinds(change: Change) -> dict[str, str]:
    return {f.kind: f.severity.value for f in change.findings}


def test_the_same_bits_are_the_same(tmp_path: Path) -> None:
    change = only(two(tmp_path, {}, {}))
    assert (change.verdict, change.shape) == (Verdict.SAME, "bundle")
    assert [row.metric for row in change.metrics] == ["input/0", "expected/0"]
    assert all(row.because == "all 30 elements are bit-equal" for row in change.metrics)
    assert change.identity["flow"] == "xnnpack"
    assert kinds(change) == {}


def test_within_the_old_tolerance_is_noise(tmp_path: Path) -> None:
    change = only(two(tmp_path, {}, {"expected": (X * np.float32(2.0002),)}))
    assert change.verdict is Verdict.NOISE
    row = change.metrics[1]
    assert row.tensor is not None
    assert row.tensor.numbers is not None
    assert row.tensor.numbers.max_rel == pytest.approx(1e-4, rel=1e-2)
    assert "within rtol 0.001, atol 1e-05 (recorded)" in row.because


def test_outside_of_it_is_a_break_whatever_the_new_side_allows(tmp_path: Path) -> None:
    loose = Comparator(name="karat", rtol=0.5, atol=0.5)
    change = only(two(tmp_path, {}, {"expected": (X * 2.1,), "comparator": loose}))
    assert change.verdict is Verdict.BREAK
    assert kinds(change) == {"tensor-mismatch": "fail", "tolerance-widened": "warn"}


def test_where_nobody_recorded_a_tolerance_a_difference_is_drift(tmp_path: Path) -> None:
    caller = Comparator(name="caller")
    changed = {"expected": (X * np.float32(2.1),), "comparator": caller}
    change = only(two(tmp_path, {"comparator": caller}, changed))
    assert change.verdict is Verdict.DRIFT
    assert kinds(change) == {"tensor-mismatch": "warn"}


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        ((X.astype(np.float64) * 2,), "dtype-changed"),
        ((X.reshape(5, 6) * 2,), "shape-changed"),
        ([X * 2], "structure-changed"),
        (X * 2, "lost-tensor"),
    ],
)
def test_another_kind_of_output_is_told(new: Any, kind: str, tmp_path: Path) -> None:
    change = only(two(tmp_path, {}, {"expected": new}))
    assert kind in kinds(change)
    assert (change.verdict is Verdict.SAME) is False


def test_a_lost_tensor_is_incomplete_and_a_gained_one_drift(tmp_path: Path) -> None:
    change = only(two(tmp_path, {"expected": {"a": X, "b": X}}, {"expected": {"a": X}}))
    assert change.verdict is Verdict.INCOMPLETE
    assert kinds(change)["lost-tensor"] == "fail"
    other = tmp_path / "other"
    change = only(two(other, {"expected": {"a": X}}, {"expected": {"a": X, "b": X}}))
    assert kinds(change)["gained-tensor"] == "warn"


def test_a_lost_program_is_incomplete_and_another_one_is_said(tmp_path: Path) -> None:
    change = only(two(tmp_path / "a", {"program": b"one"}, {"program": None}))
    assert change.verdict is Verdict.INCOMPLETE
    assert kinds(change) == {"incomplete-case": "fail"}
    change = only(two(tmp_path / "b", {"program": b"one"}, {"program": b"two"}))
    assert change.verdict is Verdict.SAME
    assert kinds(change) == {"program-changed": "info"}


def test_other_inputs_are_said_because_outputs_then_say_little(tmp_path: Path) -> None:
    change = only(two(tmp_path, {}, {"inputs": (X + 1,)}))
    assert kinds(change) == {"inputs-changed": "warn"}
    assert change.verdict is Verdict.DRIFT


def test_plain_values_are_compared_with_the_same_tolerance(tmp_path: Path) -> None:
    change = only(two(tmp_path / "a", {"expected": (X, 0.5, "ok")}, {"expected": (X, 0.5001, "ok")}))
    assert change.verdict is Verdict.NOISE
    change = only(two(tmp_path / "b", {"expected": (X, 0.5, "ok")}, {"expected": (X, 0.7, "no")}))
    assert change.verdict is Verdict.BREAK
    assert kinds(change) == {"tensor-mismatch": "fail", "text-changed": "fail"}


def test_tolerances_and_environments_that_changed_are_said(tmp_path: Path) -> None:
    tight = Comparator(name="karat", rtol=1e-6, atol=0.0)
    elsewhere = Environment(platform="darwin", machine="arm64", python="3.12.1", packages={"torch": "2"})
    change = only(two(tmp_path, {}, {"comparator": tight, "environment": elsewhere}))
    assert kinds(change) == {"tolerance-tightened": "info", "environment-changed": "info"}
    said = next(f.message for f in change.findings if f.kind == "environment-changed")
    assert f"machine {ENVIRONMENT.machine} → arm64" in said
    assert "torch none → 2" in said


def test_nan_is_never_the_same_as_nothing(tmp_path: Path) -> None:
    spoiled = (X * 2).copy()
    spoiled[0, 0] = np.nan
    change = only(two(tmp_path, {}, {"expected": (spoiled,)}))
    assert change.verdict in {Verdict.BREAK, Verdict.INCOMPLETE}
    assert change.metrics[1].nan_gained == 1


def test_nan_that_stayed_has_not_changed_and_nan_that_moved_has(tmp_path: Path) -> None:
    spoiled, moved = X * 2, X * 2
    spoiled[1, 2] = moved[3, 3] = np.nan
    stayed = two(tmp_path / "a", {"expected": (spoiled,)}, {"expected": (spoiled,)})
    assert only(stayed).verdict is Verdict.SAME
    change = only(two(tmp_path / "b", {"expected": (spoiled,)}, {"expected": (moved,)}))
    assert change.verdict is Verdict.INCOMPLETE
    assert "new-nan" in kinds(change)


def test_cases_that_came_and_went(tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    capture(tmp_path / "old", identity("test_gone"))
    capture(tmp_path / "new", identity("test_came"))
    verdicts = {c.identity["test"].rpartition(":")[2]: c.verdict for c in compared(tmp_path).changes}
    assert verdicts == {"test_a": Verdict.SAME, "test_gone": Verdict.REMOVED, "test_came": Verdict.NEW}


FILES = ["inputs.safetensors", "expected.safetensors", "program/model.pte", "manifest.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("sides", [("old",), ("new",), ("old", "new")])
def test_damage_is_never_the_same(file: str, sides: tuple[str, ...], tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    for side in sides:
        flip(next((tmp_path / side).rglob(file)), -9 if file == "manifest.json" else -1)
    result = compared(tmp_path, everything=True)
    assert [c.verdict for c in result.changes if c.verdict is not Verdict.UNREADABLE] == []
    assert exit_code(result.all_findings()) is ExitCode.FAIL


def test_what_has_the_same_digest_is_the_same_and_is_not_opened(tmp_path: Path) -> None:
    two(tmp_path, {}, {"expected": (X * 3,)})
    # Whoever opened the inputs or the program would see that they are damaged.
    for file in FILES[0], FILES[2]:
        flip(next((tmp_path / "new").rglob(file)), -1)
    change = only(compared(tmp_path))
    assert {row.metric: row.verdict for row in change.metrics} == {"input/0": Verdict.SAME, "expected/0": Verdict.BREAK}
    assert change.metrics[0].because == "all 30 elements are bit-equal"


def test_the_same_by_digest_is_what_comparing_says(tmp_path: Path) -> None:
    odd = np.array([np.nan, np.inf, -0.0, 1.0], np.float32)
    values = (odd, np.arange(3), np.zeros(0), np.array(["a"], "U1"), np.array([1 + 2j]))
    two(tmp_path, {"expected": values}, {"expected": values})
    quick, read = (only(compared(tmp_path, everything=everything)) for everything in (False, True))
    assert quick.verdict is read.verdict is Verdict.SAME
    for one, other in zip(quick.metrics, read.metrics, strict=True):
        assert one.tensor is not None
        assert other.tensor is not None
        for name in ("elements", "bit_equal", "mismatches"):
            assert getattr(one.tensor.numbers, name) == getattr(other.tensor.numbers, name), (one.metric, name)


def test_the_files_of_a_side_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    place = GatheredPlace("side", {"a": whole_file(tmp_path / "a")})
    assert place.files() is place.files()  # every case of a side asks, and there may be ten thousand


def test_damage_of_a_new_case_is_noticed_although_nothing_is_compared(tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    folder = capture(tmp_path / "new", identity("test_came"))
    flip(folder / "expected.safetensors", -1)
    (change,) = [c for c in compared(tmp_path).changes if "test_came" in c.path]
    assert change.verdict is Verdict.UNREADABLE


def packed(folder: Path, target: Path, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(target, "w", method) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return target


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_compared_with_a_folder_and_with_a_zip(method: int, tmp_path: Path) -> None:
    two(tmp_path, {}, {"expected": (X * np.float32(2.0002),)})
    packed(tmp_path / "old", tmp_path / "old one.zip", method)
    packed(tmp_path / "new", tmp_path / "neü.zip", method)
    for old, new in (("old one.zip", "new"), ("old", "neü.zip"), ("old one.zip", "neü.zip")):
        assert only(compared(tmp_path, old, new)).verdict is Verdict.NOISE


def test_what_is_no_bundle_is_no_match(tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    (tmp_path / "page.zip").write_text("<html>404</html>", encoding="utf-8")
    with pytest.raises(Exception, match=r"page\.zip") as caught:
        compared(tmp_path, "old", "page.zip")
    assert getattr(caught.value, "exit_code", None) in {ExitCode.FAIL, ExitCode.CANNOT_VERIFY}
    (tmp_path / "series.json").write_text("{}", encoding="utf-8")
    packed(tmp_path / "old", tmp_path / "old.zip")
    with pytest.raises(UsageError, match="captured cases on both sides"):
        compared(tmp_path, "old.zip", "series.json")


def test_two_sides_without_a_case_in_common_compared_nothing(tmp_path: Path) -> None:
    capture(tmp_path / "old", identity("test_a"))
    capture(tmp_path / "new", identity("test_b"))
    assert "nothing-compared" in {f.kind for f in compared(tmp_path).findings}


def test_goldens_beside_cases_are_compared_as_before(tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    for side, loss in (("old", 1.0), ("new", 2.0)):
        golden = {"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": loss, "2": 1.0}}}
        (tmp_path / side / "golden_values_x.json").write_text(json.dumps(golden), encoding="utf-8")
    verdicts = {c.shape: c.verdict for c in compared(tmp_path).changes}
    assert verdicts == {"bundle": Verdict.SAME, "series": Verdict.BREAK}


def test_only_some_cases_and_only_some_tensors(tmp_path: Path) -> None:
    two(tmp_path, {}, {"expected": (X,)})
    capture(tmp_path / "old", identity("test_b"))
    capture(tmp_path / "new", identity("test_b"))
    assert "test_b" in only(compared(tmp_path, only=("*test_b*",))).path
    result = compared(tmp_path, only_metric=("input/*",))
    assert {row.metric for c in result.changes for row in c.metrics} == {"input/0"}
    nothing = compared(tmp_path, only_metric=("nothing",))
    assert "nothing-compared" in {f.kind for f in nothing.findings}


def test_every_report_speaks_of_tensors(tmp_path: Path) -> None:
    result = two(tmp_path, {}, {"expected": (X * np.float32(2.1),)})
    document = data.document(result)
    jsonschema.validate(json.loads(data.render_json(result)), SCHEMA)
    tensor = document["files"][0]["metrics"][1]["tensor"]
    assert tensor["numbers"]["mismatches"] > 0
    assert tensor["tolerance"]["rtol"] == 1e-3
    assert "expected/0" in markdown.render(result)
    text = "\n".join("".join(part for part, _ in line) for line in terminal.lines(result))
    assert "Tensors that moved, 1 of 1" in text
    assert "float32 6x5" in text
    rows = b"".join(data.render_csv(result)).decode().splitlines()
    assert rows[0].startswith("file,metric,n_steps,avg_rel_diff,bit_equal,mismatches,max_abs")
    assert len(rows) == 3
    assert "float32 6x5" in html.render(result)


_LIMITED = """
import re, sys
from pathlib import Path
from karat.diffs.cases import GatheredPlace
from karat.diffs.diff import DiffOptions, diff
result = diff("old", "new", cwd=sys.argv[1], options=DiffOptions(jobs=2))
status = Path("/proc/self/status").read_text()
print(result.changes[0].verdict.value, re.search(r"VmHWM:\\s+(\\d+)", status)[1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_tensors(tmp_path: Path) -> None:
    peaks = []
    for megabytes in (1, 64):
        x = np.arange(megabytes << 18, dtype=np.float32)
        y = x.copy()
        y[5] += 1
        root = tmp_path / str(megabytes)
        two(root, {"inputs": (1,), "expected": (x,)}, {"inputs": (1,), "expected": (y,)})
        done = subprocess.run([sys.executable, "-c", _LIMITED, str(root)], capture_output=True, text=True, check=True)
        verdict, peak = done.stdout.split()
        assert verdict == "break"
        peaks.append(int(peak))
    assert peaks[1] - peaks[0] < 16 << 10  # KiB; both sides together have 128 MiB


def _fault(rng: random.Random, data: bytes) -> bytes:
    """One thing that goes wrong with files: a flipped bit, an end cut off, a part lost or doubled, a page."""
    at = rng.randrange(len(data))
    other = rng.randrange(len(data))
    kind = rng.choice(["flip", "cut", "lose", "double", "swap", "zero", "page"])
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == "page":
        return b"<!doctype html><title>502</title>"
    low, high = sorted((at, other))
    parts = {
        "cut": data[:at],
        "lose": data[:low] + data[high + 1 :],
        "double": data[:high] + data[low:],
        "swap": data[high:] + data[low:high] + data[:low],
        "zero": data[:low] + bytes(high - low) + data[high:],
    }
    return parts[kind]


@pytest.mark.slow
def test_no_fault_of_a_case_looks_like_the_same(tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    rng = random.Random(11)
    for _ in range(150):
        path = rng.choice(files)
        before = path.read_bytes()
        after = _fault(rng, before)
        path.write_bytes(after)
        result = compared(tmp_path, everything=True)
        path.write_bytes(before)
        if after != before:
            assert exit_code(result.all_findings()) is not ExitCode.OK
            assert Verdict.SAME not in {c.verdict for c in result.changes if c.has_baseline}
    assert only(compared(tmp_path)).verdict is Verdict.SAME


@pytest.mark.slow
def test_no_fault_of_a_zip_looks_like_the_same(tmp_path: Path) -> None:
    two(tmp_path, {}, {})
    pack = subprocess.run(
        [sys.executable, "-m", "karat", "pack", "new", "-o", "packed", "--name", "n", "-q"], cwd=tmp_path, check=False
    )
    assert pack.returncode == 0
    target = tmp_path / "packed" / "n.zip"
    assert only(compared(tmp_path, "old", "packed/n.zip")).verdict is Verdict.SAME
    before = target.read_bytes()
    rng = random.Random(12)
    for _ in range(150):
        after = _fault(rng, before)
        target.write_bytes(after)
        try:
            result = compared(tmp_path, "old", "packed/n.zip")
        except KaratError:
            continue  # none of them is exit code 0
        if after != before and exit_code(result.all_findings()) is ExitCode.OK:
            # A byte that nothing of a case is made of (a time stamp, a raw copy): `karat verify` finds it.
            tensors = [row.tensor for c in result.changes for row in c.metrics if row.tensor]
            assert all(t.numbers and t.numbers.bit_equal == t.numbers.elements for t in tensors)
