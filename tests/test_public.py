from __future__ import annotations

import subprocess
import sys

import pytest

import karat


def test_every_public_name_can_be_imported() -> None:
    for name in karat.__all__:
        assert getattr(karat, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = karat.nothing


@pytest.mark.slow
@pytest.mark.parametrize("module", ["karat", "karat.cli", "karat.cli.diff", "karat.config", "karat.findings"])
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "rich", "httpx", "jinja2", "importlib.metadata"} & set(out.split())
    assert module in out.split()
