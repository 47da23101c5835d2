"""[refresh] in karat.toml: what could never work is refused when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.config import load
from karat.findings import UsageError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('jobs = ["{case"]', "in jobs, found '{case'"),
        ('jobs = ["{Case}"]', "in jobs, found '{Case}'"),
        ('members = ["{a b}.json"]', "in members"),
        ('target = "x/{}.json"', "in target"),
        ('target = "../{case}.json"', "target to be a path in the repository"),
        ('target = "/etc/{case}"', "target to be a path in the repository"),
        ('target = ".git/{case}"', "target to be a path in the repository"),
        ('artifact_url = "bucket/{case}"', "artifact_url to begin with https://"),
        ("[refresh.tables]\npadding = -1", "padding to be 0 or more"),
        ('[refresh.tables]\ncolums = ["a"]', "colums"),
    ],
)
def test_a_mistake_is_said_when_the_file_is_read(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "karat.toml").write_text(f"[refresh]\n{text}\n")
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert said in str(caught.value)
    assert "karat.toml [refresh]" in str(caught.value)


@pytest.mark.parametrize("preset", ["megatron-lm", "pytorch-dynamo"])
def test_presets_pass(tmp_path: Path, preset: str) -> None:
    assert load(tmp_path, preset=preset).refresh.target is not None
