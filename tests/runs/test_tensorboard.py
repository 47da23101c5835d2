from __future__ import annotations

import importlib
import importlib.util
import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # type: ignore[import-untyped]
from tensorboard.compat.proto.tensor_pb2 import TensorProto  # type: ignore[import-untyped]
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto  # type: ignore[import-untyped]
from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]
from tensorboard.util.tensor_util import make_tensor_proto  # type: ignore[import-untyped]
from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

from conftest import missing
from factories.event_files import event_file, framed, scalar_event
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric
from karat.runs.tensorboard import _last_of_each, looks_like_records, read_events


def one_file(folder: Path) -> Path:
    (path,) = [p for p in folder.rglob("*") if p.is_file()]
    return path


def pairs(metric: Metric) -> list[tuple[int, float]]:
    return list(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))


def kinds(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(f.kind, f.severity.value) for f in findings]


def accumulated(folder: Path) -> dict[str, list[tuple[int, float]]]:
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_what_tensorboardx_writes_is_read_as_tensorboard_reads_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(1, 301):
            writer.add_scalar("lm loss", 10 / step, step)
            writer.add_scalar("größe/ü", float(rng.normal()), step * 1_000_003)
            if step % 50 == 0:
                writer.add_histogram("weights", rng.normal(size=100), step)
                writer.add_text("note", "hello", step)
    metrics, findings = read_events([one_file(tmp_path)])
    assert findings == ()
    assert {tag: pairs(metric) for tag, metric in metrics.items()} == accumulated(tmp_path)
    assert len(metrics["lm_loss"].steps) == 300  # tensorboardX spells tags so


def test_what_tensorboards_own_writer_writes(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    for step in (0, 1, 127, 128, 2**40):
        value = Summary.Value(tag="a", simple_value=step / 3)
        other = Summary.Value(tag="b" * 130, simple_value=-step)
        writer.add_event(Event(wall_time=5.0 + step, step=step, summary=Summary(value=[value, other])))
    writer.close()
    metrics, findings = read_events([one_file(tmp_path)])
    assert findings == ()
    assert {tag: pairs(metric) for tag, metric in metrics.items()} == accumulated(tmp_path)
    assert metrics["b" * 130].values.tolist()[-1] == -(2.0**40)


def test_what_torch_writes(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        missing("torch")
    torch_writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
    with torch_writer(str(tmp_path)) as writer:
        writer.add_scalar("loss", 0.25, 7)
        writer.add_scalar("new", 0.5, 7, new_style=True)
    metrics, findings = read_events([one_file(tmp_path)])
    assert (pairs(metrics["loss"]), pairs(metrics["new"]), findings) == ([(7, 0.25)], [(7, 0.5)], ())


def tensor_event(tag: str, step: int, tensor: TensorProto, plugin: str | None) -> bytes:
    metadata = None
    if plugin is not None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
    value = Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
    return bytes(Event(wall_time=2.0, step=step, summary=Summary(value=[value])).SerializeToString())


@pytest.mark.parametrize(
    ("value", "dtype"), [(1.1, np.float32), (1.1, np.float64), (math.inf, np.float32), (math.nan, np.float64)]
)
@pytest.mark.parametrize("form", ["listed", "content"])
def test_new_summaries_hold_tensors(tmp_path: Path, value: float, dtype: type, form: str) -> None:
    array: Any = np.array(value, dtype)
    tensor = make_tensor_proto(array)
    if form == "content":
        tensor = TensorProto(dtype=tensor.dtype, tensor_content=array.tobytes())
    events = [tensor_event("x", 1, tensor, "scalars"), tensor_event("x", 2, tensor, None)]
    metrics, findings = read_events([event_file(tmp_path / "e", events)])
    assert findings == ()
    assert np.array_equal(metrics["x"].values, [float(array)] * 2, equal_nan=True)


def test_tensors_that_are_no_scalars_are_passed_over(tmp_path: Path) -> None:
    two = make_tensor_proto(np.array([1.0, 2.0], np.float32))
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1), TensorShapeProto.Dim(size=1)])
    events = [
        tensor_event("list", 1, two, "scalars"),
        tensor_event("count", 1, make_tensor_proto(np.int32(7)), "scalars"),
        tensor_event("text", 1, make_tensor_proto("hello"), "text"),
        tensor_event("curve", 1, make_tensor_proto(np.float32(1)), "pr_curves"),
        tensor_event("curve", 2, make_tensor_proto(np.float32(1)), None),
        tensor_event("one", 1, TensorProto(dtype=1, tensor_shape=shape, float_val=[3.0]), None),
    ]
    metrics, findings = read_events([event_file(tmp_path / "e", events)])
    assert findings == ()
    assert {tag: pairs(metric) for tag, metric in metrics.items()} == {"one": [(1, 3.0)]}


def test_negative_steps_and_steps_out_of_order(tmp_path: Path) -> None:
    events = [scalar_event("x", step, float(step)) for step in (3, -2, 1)]
    metrics, findings = read_events([event_file(tmp_path / "e", events)])
    assert pairs(metrics["x"]) == [(-2, -2.0), (1, 1.0), (3, 3.0)]
    assert findings == ()


def test_an_event_whose_summary_has_another_length_is_none(tmp_path: Path) -> None:
    event = bytearray(scalar_event("loss", 1, 2.5))
    event[event.index(b"\x2a") + 1] -= 1
    _, findings = read_events([event_file(tmp_path / "e", [bytes(event)])])
    assert [(f.kind, f.where) for f in findings] == [("unreadable", "record 2")]


def test_a_cut_file_is_the_evidence_of_a_crash(tmp_path: Path) -> None:
    path = event_file(tmp_path / "e", [scalar_event("x", step, step) for step in range(1, 11)])
    whole = path.read_bytes()
    record = len(framed(scalar_event("x", 10, 10)))
    for cut in range(1, record):
        path.write_bytes(whole[:-cut])
        metrics, findings = read_events([path])
        assert len(metrics["x"].steps) == 9
        assert kinds(findings) == [("truncated", "warn")]
        assert findings[0].numbers["offset"] == len(whole) - record
        assert findings[0].path == str(path)
    path.write_bytes(whole[:-record])
    assert read_events([path])[1] == ()


def test_corrupt_data_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = event_file(tmp_path / "e", [scalar_event("x", step, step) for step in range(1, 11)])
    data = bytearray(path.read_bytes())
    record = len(framed(scalar_event("x", 1, 1)))
    at = len(data) - 5 * record
    data[at + 20] ^= 4
    path.write_bytes(bytes(data))
    metrics, findings = read_events([path])
    assert metrics["x"].steps.tolist() == [1, 2, 3, 4, 5, 7, 8, 9, 10]
    assert kinds(findings) == [("unreadable", "fail")]
    assert findings[0].numbers["offset"] == at + 12


def test_a_corrupt_length_ends_the_file_and_says_so(tmp_path: Path) -> None:
    path = event_file(tmp_path / "e", [scalar_event("x", step, step) for step in range(1, 11)])
    data = bytearray(path.read_bytes())
    record = len(framed(scalar_event("x", 1, 1)))
    for byte in (0, 7, 9):
        broken = bytearray(data)
        broken[len(data) - 5 * record + byte] ^= 1
        path.write_bytes(bytes(broken))
        metrics, findings = read_events([path])
        assert metrics["x"].steps.tolist() == [1, 2, 3, 4, 5]
        assert kinds(findings) == [("unreadable", "fail")]
        assert findings[0].numbers["offset"] == len(data) - 5 * record


def test_a_record_that_is_no_event_is_named(tmp_path: Path) -> None:
    path = event_file(tmp_path / "e", [b"\xff\xff\xff", scalar_event("x", 1, 1.0)])
    metrics, findings = read_events([path])
    assert pairs(metrics["x"]) == [(1, 1.0)]
    assert [(f.kind, f.where) for f in findings] == [("unreadable", "record 2")]


def test_files_of_one_run_follow_each_other_in_time_not_by_name(tmp_path: Path) -> None:
    late = tmp_path / "a"
    late.write_bytes(b"".join(framed(scalar_event("x", step, 200 + step, 500.0 + step)) for step in (10, 11, 12)))
    early = tmp_path / "b"
    early.write_bytes(b"".join(framed(scalar_event("x", step, 100 + step, 100.0 + step)) for step in range(1, 15)))
    metrics, findings = read_events([late, early])
    # What the first attempt wrote of steps 13 and 14 is of a run that was given up.
    assert metrics["x"].steps.tolist() == list(range(1, 13))
    assert metrics["x"].values.tolist()[8:] == [109, 210, 211, 212]
    assert kinds(findings) == [("superseded", "info")]
    assert findings[0].numbers["replaced"] == 5


def test_two_writers_at_once_are_no_restart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        events = (framed(scalar_event("x", s, s, 100.0 + s + (name == "b"))) for s in range(5))
        (tmp_path / name).write_bytes(b"".join(events))
    _, findings = read_events([tmp_path / "a", tmp_path / "b"])
    assert ("duplicate-key", "warn") in kinds(findings)


def test_blocks_join_without_a_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.runs.tensorboard._READ_AT_ONCE", 37)
    big = Event(wall_time=1.0, graph_def=bytes(1000)).SerializeToString()
    events = [scalar_event("x", step, step) for step in range(1, 30)]
    path = event_file(tmp_path / "e", [*events[:10], big, *events[10:]])
    metrics, findings = read_events([path])
    assert (metrics["x"].steps.tolist(), findings) == (list(range(1, 30)), ())


@pytest.mark.slow
def test_reading_needs_neither_tensorboard_nor_protobuf(tmp_path: Path) -> None:
    path = event_file(tmp_path / "e", [scalar_event("x", 1, 1.0)])
    code = (
        "import sys; from pathlib import Path; from karat.runs.tensorboard import read_events;"
        "read_events([Path(sys.argv[1])]);"
        "assert not {'tensorboard', 'google.protobuf', 'grpc', 'werkzeug'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


@pytest.mark.slow
@given(st.lists(st.integers(-3, 12) | st.sampled_from([-(2**63), 2**62]), max_size=14))
def test_a_step_that_comes_again_gives_up_what_stood_behind_it(steps: list[int]) -> None:
    held: dict[int, float] = {}
    seen: set[int] = set()
    for value, step in enumerate(steps):
        if step in seen:
            held = {s: v for s, v in held.items() if s < step}
        seen.add(step)
        held[step] = value
    kept, values, replaced = _last_of_each(np.array(steps, np.int64), np.arange(len(steps), dtype=np.float64))
    assert dict(zip(kept.tolist(), values.tolist(), strict=True)) == held
    assert kept.tolist() == sorted(held)
    assert replaced == len(steps) - len(held)


@pytest.mark.slow
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_crash(data: bytes) -> None:
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        metrics, findings = read_events([Path(file.name)])
    assert not data or findings
    assert metrics == {}
    assert not looks_like_records(data[:12]) or len(data) < 16 or findings


@pytest.mark.slow
@given(st.binary(max_size=120))
def test_arbitrary_messages_never_crash(data: bytes) -> None:
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(framed(data))
        file.flush()
        _, findings = read_events([Path(file.name)])
    assert {f.kind for f in findings} <= {"unreadable"}


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_every_flipped_bit_is_found(draw: st.DataObject) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = event_file(Path(folder) / "e", [scalar_event("x", s, s / 7) for s in range(1, 6)])
        data = bytearray(path.read_bytes())
        bit = draw.draw(st.integers(0, 8 * len(data) - 1))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(data))
        metrics, findings = read_events([path])
    assert any(f.severity is Severity.FAIL and f.kind == "unreadable" for f in findings)
    for step, value in pairs(metrics["x"]) if metrics else ():
        assert value == np.float32(step / 7)
