"""The C++ reader: compiled with every warning an error, and run under sanitizers on what karat wrote."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from conftest import missing
from karat.bundles.extents import read_all
from karat.bundles.tensor_files import TABLE, read_raw, write_raw
from karat.tensors.arrays import tensor_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "cpp"
FLAGS = [
    "-std=c++17",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Werror",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]
WRITER = """
#include <iostream>
#include "karat_raw.hpp"

// What to write: name, dtype, one length, bytes.
int main(int, char** words) {
    const std::vector<unsigned char> data(16);
    try {
        karat::raw::Writer outputs(words[1]);
        outputs.add("output", words[2], words[3], {std::stoull(words[4])}, data.data(), std::stoull(words[5]));
        outputs.close();
    } catch (const karat::raw::Error& error) {
        std::cerr << error.what();
        return 1;
    }
}
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(EXAMPLES / "runner.cpp", tmp_path_factory.mktemp("cpp") / "runner")


def compiled(source: Path, target: Path) -> Path:
    compiler = shutil.which("g++") or missing("g++")
    words = [compiler, *FLAGS, "-I", str(EXAMPLES), "-o", str(target), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(runner: Path, folder: Path, program: str = "2 1") -> subprocess.CompletedProcess[str]:
    (folder / "program.txt").write_text(program, encoding="utf-8")
    words = [runner, folder / "program.txt", folder / "raw", folder / "outputs"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def inputs(folder: Path, *arrays: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    (folder / "raw").mkdir()
    named = [("input", f"input/{index}", tensor_of(a)) for index, a in enumerate(arrays)]
    expected = ("expected", "expected", tensor_of(np.int64(1)))
    write_raw(folder / "raw", [*named, expected])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 4, 5)])
def test_inputs_are_read_and_outputs_written(tmp_path: Path, runner: Path, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inputs(tmp_path, x)
    done = run(runner, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ((row, extent),) = read_raw(tmp_path / "outputs")
    assert (row.role, row.name, row.dtype, row.shape) == ("output", "expected", "float32", shape)
    found = np.frombuffer(read_all(extent.extent), np.float32).reshape(shape)
    assert np.array_equal(found, np.float32(2) * x + np.float32(1))


@pytest.mark.slow
def test_several_inputs_give_several_outputs(tmp_path: Path, runner: Path) -> None:
    inputs(tmp_path, np.ones(2, np.float32), np.zeros((2, 2), np.float32))
    assert run(runner, tmp_path, "-1 0.5").returncode == 0
    rows = read_raw(tmp_path / "outputs")
    assert [row.name for row, _ in rows] == ["expected/0", "expected/1"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("karat-raw 1", "karat-raw 2", "expected the first line"),
        ("float32\t2x3", "float32\t2x4", "expected 8 elements"),
        ("float32\t2x3", "float64\t2x3", "expected 6 elements of 8 bytes"),
        ("2x3", "2xx", "expected a number"),
        ("2x3", "2x3x", "expected a shape"),
        ("2x3\t24", "99999999999x99999999999\t24", "64 bits"),
        ("input.0.bin", "../runner", "the name of a file beside the table"),
        ("input.0.bin", "none.bin", "none.bin: expected a file of 24 bytes"),
        ("\tinput.0.bin", "", "expected 7 fields"),
        ("input.0.bin", "input.0.bin\0x", "the name of a file beside the table"),
        ("expected\texpected\t", "input\tinput/0\t", "found 'input/0' twice"),
        ("float32\t2x3", "int32\t2x3", "expected float32, found int32"),
        ("input\tinput/0", "other\tinput/0", "expected at least one input"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, runner: Path, old: str, new: str, words: str) -> None:
    inputs(tmp_path, np.ones((2, 3), np.float32))
    table = tmp_path / "raw" / TABLE
    text = table.read_text(encoding="utf-8")
    assert old in text
    table.write_text(text.replace(old, new), encoding="utf-8")
    done = run(runner, tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert not (tmp_path / "outputs" / TABLE).exists()


def test_a_cut_file_and_a_lost_table_are_said(tmp_path: Path, runner: Path) -> None:
    inputs(tmp_path, np.ones((2, 3), np.float32))
    file = tmp_path / "raw" / "input.0.bin"
    file.write_bytes(file.read_bytes()[:-1])
    assert "expected a file of 24 bytes, found 23" in run(runner, tmp_path).stderr
    (tmp_path / "raw" / TABLE).unlink()
    assert "expected the table" in run(runner, tmp_path).stderr
    assert "usage" in subprocess.run([runner], capture_output=True, text=True, check=False).stderr


@pytest.mark.slow
def test_a_writer_writes_what_a_reader_can_read_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "writer.cpp").write_text(WRITER, encoding="utf-8")
    writer = compiled(tmp_path / "writer.cpp", tmp_path / "writer")

    def write(name: str, dtype: str, length: int, size: int) -> str:
        words = [str(writer), str(tmp_path / "out"), name, dtype, str(length), str(size)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == bool(done.stderr)
        return done.stderr

    for name in ("a\tb", "a\nb", "a\rb"):
        assert "without tabs and line ends" in write(name, "float32", 1, 4)
    assert "expected 2 elements of 4 bytes, found 4" in write("a", "float32", 2, 4)
    assert "expected 2305843009213693952 elements" in write("a", "float64", 1 << 61, 0)
    assert not (tmp_path / "out" / TABLE).exists()
    assert write("a b", "float32", 4, 16) == ""
    ((row, _),) = read_raw(tmp_path / "out")
    assert (row.name, row.shape) == ("a b", (4,))
