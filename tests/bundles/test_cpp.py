"""The C++ reader: compiled with every warning an error, and run under sanitizers on what karat wrote."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3

from conftest import missing
from karat.bundles.extents import read_all
from karat.bundles.tensor_files import FIRST_1, TABLE, encode_rows, read_raw, write_raw
from karat.tensors.arrays import tensor_of
from karat.tensors.digests import PIECE, digest_of

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
READER = """
#include <iostream>
#include "karat_raw.hpp"

int main(int, char** words) {
    const std::vector<unsigned char> data = karat::raw::Folder(words[1]).at("input", words[2]).in_memory_order();
    std::cout.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
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
def test_elements_lie_as_they_did(tmp_path: Path) -> None:
    (tmp_path / "reader.cpp").write_text(READER)
    reader = compiled(tmp_path / "reader.cpp", tmp_path / "reader")
    channels_last = np.arange(2 * 3 * 4 * 5, dtype=np.int16).reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)
    inputs(tmp_path, channels_last, np.arange(6.0).reshape(2, 3).T, np.arange(3.0))
    for n, held in enumerate((channels_last.transpose(0, 2, 3, 1), np.arange(6.0), np.arange(3.0))):
        done = subprocess.run([reader, tmp_path / "raw", f"input/{n}"], capture_output=True, check=True)
        assert done.stdout == held.tobytes()


@pytest.mark.slow
def test_several_inputs_give_several_outputs(tmp_path: Path, runner: Path) -> None:
    inputs(tmp_path, np.ones(2, np.float32), np.zeros((2, 2), np.float32))
    assert run(runner, tmp_path, "-1 0.5").returncode == 0
    rows = read_raw(tmp_path / "outputs")
    assert [row.name for row, _ in rows] == ["expected/0", "expected/1"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("karat-raw 2", "karat-raw 3", "expected the first line"),
        ("float32\t2x3", "float32\t2x4", "expected 8 elements"),
        ("float32\t2x3", "float64\t2x3", "expected 6 elements of 8 bytes"),
        ("2x3", "2xx", "expected a number"),
        ("2x3", "2x3x", "expected a shape"),
        ("2x3\t24", "99999999999x99999999999\t24", "64 bits"),
        ("input.0.bin", "../runner", "the name of a file beside the table"),
        ("input.0.bin", "none.bin", "none.bin: expected a file of 24 bytes"),
        ("\tinput.0.bin", "", "expected 7 or 8 fields"),
        ("input.0.bin", "input.0.bin\t1x3", "expected the strides"),
        ("input.0.bin", "input.0.bin\t1x2x1", "expected the strides"),
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


HASHER = """
#include <fstream>
#include <iostream>
#include <iterator>
#include "karat_raw.hpp"

// The hash of a file, in two updates that are cut at the second word, and its digest as a tensor of uint8.
int main(int, char** words) {
    std::ifstream file(words[1], std::ios::binary);
    const std::vector<unsigned char> data{std::istreambuf_iterator<char>(file), {}};
    const std::size_t cut = std::min(data.size(), static_cast<std::size_t>(std::stoull(words[2])));
    karat::raw::detail::Blake3 whole;
    whole.update(data.data(), cut);
    whole.update(data.data() + cut, data.size() - cut);
    for (unsigned char byte : whole.digest()) std::cout << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15];
    std::cout << ' ' << karat::raw::detail::digest("uint8", std::to_string(data.size()), data.data(), data.size());
}
"""


@pytest.mark.slow
def test_blake3_is_the_package_s_for_every_number_of_chunks(tmp_path: Path) -> None:
    (tmp_path / "hasher.cpp").write_text(HASHER, encoding="utf-8")
    hasher = compiled(tmp_path / "hasher.cpp", tmp_path / "hasher")
    sizes = [0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3072, 3073, 4096, 5120, 6144, 7169, 8193, 16384, 31744]
    for size in [*sizes, 102400, PIECE, PIECE + 1, 2 * PIECE + 1025]:
        data = np.arange(size, dtype=np.uint32).astype(np.uint8) % 251  # as in the published test vectors
        (tmp_path / "data").write_bytes(data.tobytes())
        words = [str(hasher), str(tmp_path / "data"), str(size // 3)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout == f"{blake3(data.data).hexdigest()} {digest_of(tensor_of(data))}", size


def test_other_bytes_than_the_digest_says_are_an_error(tmp_path: Path, runner: Path) -> None:
    inputs(tmp_path, np.ones((2, 3), np.float32))
    file = tmp_path / "raw" / "input.0.bin"
    file.write_bytes(np.full((2, 3), 2, np.float32).tobytes())
    done = run(runner, tmp_path)
    assert (done.returncode, "expected the digest blake3:" in done.stderr) == (1, True)
    assert not (tmp_path / "outputs" / TABLE).exists()


def test_a_table_of_format_1_is_read(tmp_path: Path, runner: Path) -> None:
    inputs(tmp_path, np.ones((2, 3), np.float32))
    table = tmp_path / "raw" / TABLE
    rows = [msgspec.structs.replace(row, digest="0" * 64) for row, _ in read_raw(tmp_path / "raw")]
    table.write_bytes(encode_rows(rows, FIRST_1))
    assert run(runner, tmp_path).returncode == 0
    ((row, extent),) = read_raw(tmp_path / "outputs")
    assert row.digest == digest_of(extent)
