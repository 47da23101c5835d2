"""The page is true: what it shows is run, and what it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from factories.captured import capture, identity
from karat.bundles import manifest as manifests
from karat.bundles.structure import flatten
from karat.bundles.tensor_files import encode_rows, read_raw
from karat.bundles.zips import bundle_limits
from karat.findings import KINDS
from karat.system.foreign.limits import DENSE

PAGE = (Path(__file__).parents[2] / "docs" / "bundles.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_digests_are_recomputed_with_nothing_but_python(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity(), inputs=(np.int8(1), np.ones((2, 3), ">c16")))
    program = EXAMPLES[0]
    assert "karat" not in re.findall(r"import (.*)", program)[0]
    done = run(program, str(folder), cwd=tmp_path)
    assert done.stdout == "ok input/0\nok input/1\nok expected/logits\nok expected/ok\n"
    path = folder / "expected.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    assert "DAMAGED expected/ok" in run(program, str(folder), cwd=tmp_path).stdout
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"float64", b"float65"))
    assert "AssertionError" in run(program, str(folder), cwd=tmp_path).stderr


def test_a_bundle_is_read_as_the_page_says(tmp_path: Path) -> None:
    capture(tmp_path / "golden_artifacts_26111504.zip", identity())
    done = run(EXAMPLES[1], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("models/xnnpack/tests_test_models.py_test_a-")


@pytest.mark.parametrize("field", manifests.Manifest.__struct_fields__)
def test_every_field_is_on_the_page(field: str) -> None:
    assert f"`{field}`" in PAGE


def test_kinds_and_limits_are_those_of_the_code() -> None:
    table = PAGE[PAGE.index("## Verifying") :]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) <= KINDS.keys()
    most = bundle_limits()
    assert f"{most.members:,}" in table
    assert f"{most.members * most.header:,} bytes" in table
    assert f"{most.ratio:,}-fold" in table
    assert f"may unpack to {DENSE.value() >> 30} GiB in all" in table


def test_values_look_as_the_page_says() -> None:
    shown = PAGE.replace("\\|", "|")
    for value in (0.1, -float("nan"), 1j, 2**70, b"ab", ...):
        (made,) = flatten([value], "input").structure["list"]
        text = str(made).replace("'", '"').replace("True", "true")
        assert text in shown, text


def test_the_table_looks_as_the_page_says(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity(), raw=True)
    rows = [row for row, _ in read_raw(folder / "raw")]
    first, second, *_ = encode_rows(rows).decode().split("\n")
    shown = PAGE[PAGE.index("## The raw form") :]
    assert f"\n{first}\n" in shown
    assert "\t".join(second.split("\t")[:5]) in shown
