"""examples/torch_export, from the suite to the consumer: `.pt2` and `.onnx` programs replayed from the zip alone."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from conftest import missing
from factories.example_suites import copy_example, junit_counts, karat, manifests, python, suite
from factories.resealed import negate_expected

PARTS = ("onnxruntime", "onnxscript", "torch")
CASES = {
    ("torch_export", "attention"),
    ("torch_export", "half"),
    ("torch_export", "ranker"),
    ("onnxruntime", "attention"),
    ("onnxruntime", "ranker"),
}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """What the suite captured."""
    for part in PARTS:
        if importlib.util.find_spec(part) is None:
            missing(part)
    example = copy_example("torch_export", tmp_path / "suite")
    tested = suite(example, GOLDEN_ARTIFACTS_DIR="../golden")
    assert tested.code == 0, tested.out
    return tmp_path / "golden"


@pytest.mark.slow
def test_what_the_suite_captured_is_replayed_from_the_zip_alone(golden: Path, tmp_path: Path) -> None:
    found = manifests(golden)
    assert {path.split("/")[0] for path in found} == {"programs"}
    tests = [manifest["identity"]["test"] for manifest in found.values()]
    assert sorted(tests) == sorted(
        f"test_programs.py::test_program[{flow}-{name}-{shapes}]"
        for flow, name in CASES
        for shapes in ("static", "dynamic")
    )
    half = next(m for m in found.values() if "half" in m["identity"]["test"])
    assert {t["dtype"] for t in half["tensors"]} == {"bfloat16"}

    assert karat("pack", "golden", "-o", "packed", cwd=tmp_path).code == 0
    (archive,) = (tmp_path / "packed").glob("golden_artifacts_*.zip")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "suite" / "runner.py", elsewhere)
    shutil.rmtree(tmp_path / "suite")
    assert python("-c", "import networks", cwd=elsewhere).code != 0

    def replay(bundle: Path) -> dict[str, int]:
        done = karat("replay", bundle, "--run", "runner:run", "--junit", "out.xml", cwd=elsewhere)
        counts = junit_counts(elsewhere / "out.xml")
        assert done.code == (1 if counts["failure"] else 0), done.out + done.err
        return counts

    # One number in one sealed case of ten: found by running it, and nowhere else.
    negate_expected(golden / next(path for path in found if path.startswith("programs/onnx")))
    assert karat("verify", golden, cwd=elsewhere).code == 0
    assert replay(golden) == {"tests": 10, "failure": 1, "error": 0, "skipped": 0}
    shutil.rmtree(golden)

    assert karat("verify", archive, cwd=elsewhere).code == 0
    assert replay(archive) == {"tests": 10, "failure": 0, "error": 0, "skipped": 0}
