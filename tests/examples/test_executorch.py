"""examples/executorch from the suite to the consumer: captured, packed, verified, replayed from the zip alone."""

from __future__ import annotations

import importlib.util
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from conftest import missing
from factories.example_suites import copy_example, junit_counts, karat, manifests, python, suite
from factories.resealed import negate_expected, replace_program

FLOATING = ("portable", "xnnpack")
QUANTIZED = "xnnpack_static_int8"
NETWORKS = ("block", "convnet", "perceptron", "recurrent", "tagger")
CASES = {
    *((flow, name) for flow in FLOATING for name in NETWORKS),
    *((QUANTIZED, name) for name in ("convnet", "perceptron")),
}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """What the suite captured."""
    if importlib.util.find_spec("executorch") is None:
        missing("executorch")
    tested = suite(copy_example("executorch", tmp_path / "suite"), "--karat-capture=../golden")
    assert tested.code == 0, tested.out
    return tmp_path / "golden"


def elsewhere(tmp_path: Path) -> Path:
    """A machine with the runtime and ten lines that call it; of the suite, nothing is left."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(tmp_path / "suite" / "runner.py", folder)
    shutil.rmtree(tmp_path / "suite")
    assert python("-c", "import networks", cwd=folder).code != 0
    return folder


def check_captures(golden: Path) -> None:
    found = manifests(golden)
    # Each case stands alone: none lost among workers, none on top of another, operators left out.
    identities = [manifest["identity"] for manifest in found.values()]
    assert {identity["suite"] for identity in identities} == {"models"}
    assert sorted((i["flow"], i["test"]) for i in identities) == sorted(
        (flow, f"models/test_models.py::test_network[{flow}-{name}-{shapes}]")
        for flow, name in CASES
        for shapes in ("static", "dynamic")
    )
    for manifest in found.values():
        assert manifest["program"]["name"].endswith(".pte")
        assert manifest["comparator"]["name"] == "karat"
        assert manifest["environment"]["packages"]["executorch"] == "1.5.1"
    # What is no tensor, and what is no tuple, is captured as well.
    tagger = next(m for m in found.values() if "tagger-dynamic" in m["identity"]["test"])
    assert tagger["inputs"]["tuple"][2] == {"float": "0.5"}
    assert [name for name, _ in tagger["expected"]["dict"]] == ["logits", "tags", "kept"]
    assert {t["dtype"] for t in tagger["tensors"]} == {"int64", "bool", "float32"}


def check_one_wrong_bundle(golden: Path, folder: Path) -> None:
    """Two cases of the portable flow, changed and sealed again: nothing is damaged, both are wrong."""
    cases = {
        (m["identity"]["flow"], m["identity"]["test"].split("[")[1]): path for path, m in manifests(golden).items()
    }
    wrong = folder / "wrong"
    for name in ("perceptron-static", "convnet-static", "tagger-dynamic"):
        path = cases["portable", f"portable-{name}]"]
        shutil.copytree(golden / path, wrong / path)
    negate_expected(wrong / cases["portable", "portable-convnet-static]"])
    quantized = golden / cases[QUANTIZED, f"{QUANTIZED}-perceptron-static]"]
    replace_program(wrong / cases["portable", "portable-perceptron-static]"], next(quantized.glob("program/*")))
    assert karat("verify", wrong, cwd=folder).code == 0
    replayed = karat("replay", wrong, "--run", "runner:run", "--junit", "wrong.xml", cwd=folder)
    assert replayed.code == 1, replayed.out
    assert junit_counts(folder / "wrong.xml") == {"tests": 3, "failure": 2, "error": 0, "skipped": 0}


@pytest.mark.slow
def test_what_the_suite_captured_is_replayed_from_the_zip_alone(golden: Path, tmp_path: Path) -> None:
    check_captures(golden)
    packed = karat("pack", "golden", "-o", "packed", cwd=tmp_path)
    assert packed.code == 0, packed.out + packed.err
    folder = elsewhere(tmp_path)
    (archive,) = (tmp_path / "packed").glob("golden_artifacts_*.zip")
    (folder / "nightly.zip").write_bytes(archive.read_bytes())
    assert zipfile.ZipFile(archive).testzip() is None

    verified = karat("verify", "nightly.zip", cwd=folder)
    assert verified.code == 0, verified.out + verified.err
    check_one_wrong_bundle(golden, folder)
    shutil.rmtree(golden)
    replayed = karat(
        "replay", "nightly.zip", "--run", "runner:run", "--junit", "replay.xml", "--json", "replay.json", cwd=folder
    )
    assert replayed.code == 0, replayed.out + replayed.err
    assert junit_counts(folder / "replay.xml") == {"tests": 2 * len(CASES), "failure": 0, "error": 0, "skipped": 0}
    assert len(json.loads((folder / "replay.json").read_text())["cases"]) == 2 * len(CASES)
