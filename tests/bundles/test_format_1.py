"""Bundles of format 1, as the last karat that wrote them left them (`format_1/build.py`), are as good as any other."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from factories.captured import capture, identity
from factories.runners import command_line, write_module
from karat.bundles.cases import Case, cases
from karat.bundles.manifest import FORMAT_1, SCHEMA
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place
from karat.schemas import schema

HERE = Path(__file__).with_name("format_1")


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    with zipfile.ZipFile(HERE / "captured.zip") as archive:
        archive.extractall(tmp_path / "captured")
    return tmp_path / "captured"


def only(place: Path) -> Case:
    (case,) = cases(open_place(place))
    return case


def karat(*words: object, cwd: Path, code: int = 0) -> str:
    command = [sys.executable, "-m", "karat", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def captured_again(root: Path, factor: int = 2) -> Path:
    """The same test, captured today."""
    x = np.arange(-4, 4, dtype=np.float32)
    said = {"inputs": (x,), "expected": {"doubled": x * factor}, "program": b"2", "program_name": "model.txt"}
    capture(root, identity("test_doubled"), raw=True, **said)
    return root


def test_it_verifies_as_a_zip_and_as_a_folder_and_loads(captured: Path) -> None:
    for place in (HERE / "captured.zip", captured):
        found = verify_place(open_place(place))
        assert (found.findings, found.cases, found.tensors) == ((), 1, 2)
        case = only(place)
        assert case.manifest.schema == FORMAT_1
        assert [record.digest.partition(":")[0] for record in case.manifest.tensors] == ["sha256"] * 2
        assert np.array_equal(case.expected().value["doubled"], np.arange(-8, 8, 2, dtype=np.float32))


def test_its_schema_is_still_published(captured: Path) -> None:
    import jsonschema

    (path,) = captured.rglob("manifest.json")
    jsonschema.validate(msgspec.json.decode(path.read_bytes()), schema(FORMAT_1))


def test_no_byte_of_it_can_change_unnoticed(captured: Path) -> None:
    files = [path for path in captured.rglob("*") if path.is_file()]
    assert len(files) == 8
    for path in files:
        data = path.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 16)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert verify_place(open_place(captured)).findings, (path.name, at)
        path.write_bytes(data)
    assert not verify_place(open_place(captured)).findings


@pytest.mark.slow
def test_it_is_the_same_as_what_is_captured_today_and_another_is_not(captured: Path, tmp_path: Path) -> None:
    today = captured_again(tmp_path / "today")
    assert only(today).manifest.schema == SCHEMA
    for sides in ((captured, today), (today, captured)):
        report = msgspec.json.decode(karat("diff", *sides, "--json", "-", cwd=tmp_path))
        (change,) = report["files"]
        assert (change["verdict"], [row["verdict"] for row in change["metrics"]]) == ("same", ["same", "same"])
        assert "program-changed" not in {finding["kind"] for finding in change["findings"]}
    other = captured_again(tmp_path / "other", factor=3)
    report = msgspec.json.decode(karat("diff", captured, other, "--json", "-", cwd=tmp_path, code=1))
    assert report["files"][0]["verdict"] == "break"


@pytest.mark.slow
def test_it_is_pulled_from_a_store_of_its_time_pushed_and_packed_again(captured: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(HERE / "store.zip") as archive:
        archive.extractall(tmp_path / "store")
    karat("verify", "store", cwd=tmp_path)
    karat("pull", "models/nightly", "pulled", "--store", "store", cwd=tmp_path)
    karat("push", "pulled", "models/again", "--store", "store", cwd=tmp_path)
    karat("pull", "models/again", "again", "--store", "store", cwd=tmp_path)
    karat("pack", "again", "-o", "packed", "--name", "all", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "packed" / "all.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    for name in ("pulled", "again", "unpacked"):
        assert not verify_place(open_place(tmp_path / name)).findings
        for path in captured.rglob("*"):
            if path.is_file() and path.name != "index.json":
                assert (tmp_path / name / path.relative_to(captured)).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_it_is_replayed_by_a_function_and_by_a_command(captured: Path, tmp_path: Path) -> None:
    write_module(tmp_path)
    # The command reads the number from the program: "2".
    (path,) = captured.rglob("manifest.json")
    assert (path.parent / "program" / "model.txt").read_text(encoding="utf-8") == "2"
    for runner in (("--run", "runner:run"), ("--command", command_line(tmp_path))):
        assert "1 case" in karat("replay", captured, *runner, cwd=tmp_path)
