from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import karat
from factories.captured import capture, identity


def test_every_public_name_can_be_imported() -> None:
    for name in karat.__all__:
        assert getattr(karat, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = karat.nothing


@pytest.mark.slow
@pytest.mark.parametrize("module", ["karat", "karat.cli", "karat.cli.goldens.diff", "karat.config", "karat.findings"])
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "rich", "httpx", "jinja2", "importlib.metadata"} & set(out.split())
    assert module in out.split()


@pytest.mark.slow
def test_a_diff_loads_only_what_it_needs(tmp_path: Path) -> None:
    """Start-up is most of a diff's time; each of these was once loaded for nothing."""
    for side in ("old", "new"):
        for number in range(200):  # enough to be worth a second process
            case = tmp_path / side / f"{number}/golden_values.json"
            case.parent.mkdir(parents=True)
            case.write_text(f'{{"lm loss": {{"values": {{"1": {number}, "2": {len(side)}.5}}}}}}', encoding="utf-8")
    command = [sys.executable, "-X", "importtime", "-m", "karat", "diff", "old", "new", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0, done.stderr
    assert {"numpy", "karat.diffs.workers"} <= loaded
    unwanted = {"json", "html", "concurrent.futures", "rich", "httpx", "importlib.metadata", "csv", "tomllib"}
    assert not unwanted & loaded


@pytest.mark.slow
def test_verifying_needs_no_numpy(tmp_path: Path) -> None:
    capture(tmp_path / "captures", identity())
    command = [sys.executable, "-X", "importtime", "-m", "karat", "verify", "captures"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0, done.stderr
    assert {"blake3", "karat.bundles.verify"} <= loaded
    assert not {"numpy", "rich", "httpx"} & loaded
