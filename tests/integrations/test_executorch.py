"""ExecuTorch's own suite, as its wheel ships it: captured by workers, packed, and replayed from the zip alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import framework, missing
from factories.pytest_runs import Suite

CPP = Path(__file__).parents[2] / "examples" / "cpp"
_SUITE = "executorch.backends.test.suite.operators"


@pytest.mark.slow
def test_the_suite_of_the_wheel_is_captured_and_replayed(tmp_path: Path) -> None:
    executorch = framework("executorch")
    project = Suite(tmp_path / "project")
    names = "(test_add_dtype or test_add_f32_bcast_first or test_add_f32_alpha) and (xnnpack-float32 or [xnnpack] or portable)"
    done = project.python(
        *(
            "-m",
            "pytest",
            "-q",
            "-c",
            "/dev/null",
            "-p",
            "no:cacheprovider",
            "-p",
            "karat.integrations.executorch",
            "-n",
            "2",
        ),
        *("--karat-capture", str(project.captures), "--pyargs", f"{_SUITE}.test_add", "-k", names, "-m", "not slow"),
    )
    assert done.code == 0, done.out
    manifests = project.manifests()
    assert {m["identity"]["flow"] for m in manifests} == {"xnnpack", "portable"}
    assert {m["identity"]["suite"] for m in manifests} == {"operators"}
    for manifest in manifests:
        assert manifest["identity"]["test"].startswith("executorch/backends/test/suite/operators/test_add.py::")
        assert (manifest["comparator"]["rtol"], manifest["comparator"]["atol"]) == (4e-2, 1e-1)
        assert manifest["program"]["name"] == "program.pte"
    packed = project.python("-m", "karat", "pack", "captures", "-o", "packed", "--name", "golden_artifacts_26111822")
    assert packed.code == 0, packed.out
    alone = Suite(tmp_path / "alone")
    (project.root / "packed" / "golden_artifacts_26111822.zip").rename(alone.root / "golden.zip")
    runner = "karat.integrations.executorch:run"
    replayed = alone.python("-m", "karat", "replay", "golden.zip", "--run", runner, "--json", "replay.json")
    assert replayed.code == 0, replayed.out
    report = json.loads((alone.root / "replay.json").read_bytes())
    assert [case["outcome"] for case in report["cases"]] == ["match"] * len(manifests)
    compiler = shutil.which("g++") or missing("g++")
    installed, program = Path(executorch.__path__[0]), alone.root / "runner"
    headers = (CPP, installed / "include", installed / "include/executorch/runtime/core/portable_type/c10")
    libraries = ("kernels_optimized", "backend_xnnpack", "", "threadpool")
    subprocess.run(
        [
            *(compiler, "-std=c++17", "-w", "-DC10_USING_CUSTOM_GENERATED_MACROS", *(f"-I{path}" for path in headers)),
            *("-o", program, CPP / "executorch_runner.cpp", f"-L{installed}/lib", "-Wl,--no-as-needed"),
            *(f"-lexecutorch_{name}".rstrip("_") for name in libraries),
            f"-Wl,-rpath,{installed}/lib",
        ],
        check=True,
    )
    command = f"{program} {{program}} {{inputs}} {{outputs}}"
    replayed = alone.python("-m", "karat", "replay", "golden.zip", "--command", command)
    assert replayed.code == 0, replayed.out
