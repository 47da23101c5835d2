from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from factories.captured import capture, identity
from factories.commands import karat
from factories.runners import doubling, flip, write_module

X = np.linspace(1, 2, 12, dtype=np.float32)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Two captures of one case, the older one pushed to a store."""
    for side, factor in (("old", 2.0), ("new", 2.0002)):
        capture(tmp_path / side, identity(), inputs=(X,), expected=(X * np.float32(factor),))
    done = karat("push", "old", "models/nightly", "--store", "store", cwd=tmp_path)
    assert done.code == 0, done.err
    return tmp_path


def verdicts(*words: str, cwd: Path, **environment: str) -> list[str]:
    done = karat("diff", *words, "--json", "-", cwd=cwd, **environment)
    assert done.code == 0, done.err
    return [file["verdict"] for file in json.loads(done.out)["files"]]


@pytest.mark.slow
def test_a_reference_is_a_side(here: Path) -> None:
    assert verdicts("store:models/nightly", "new", "--store", "store", cwd=here) == ["noise"]
    assert verdicts("store:models/nightly", "old", cwd=here, KARAT_STORE="store") == ["same"]
    assert verdicts("store#models/nightly", "new", cwd=here) == ["noise"]


@pytest.mark.slow
def test_the_store_of_the_configuration_is_meant(here: Path) -> None:
    (here / "karat.toml").write_text('[store]\nurl = "store"\n', encoding="utf-8")
    assert verdicts("new", "store:models/nightly", cwd=here) == ["noise"]


@pytest.mark.slow
def test_a_reference_that_is_not_there_is_no_match(here: Path) -> None:
    done = karat("diff", "store:models/nightli", "new", "--store", "store", cwd=here)
    assert done.code == 3
    assert "\nnext: " in done.err


@pytest.mark.slow
def test_damage_in_the_store_is_never_the_same(here: Path) -> None:
    objects = [path for path in sorted((here / "store").rglob("sha256/*/*")) if path.is_file()]
    assert objects
    for path in objects:
        flip(path)
        done = karat("diff", "store:models/nightly", "old", "--store", "store", cwd=here)
        assert done.code == 1, done.out
        assert "bundle-damaged" in done.out or "sha256" in done.err
        flip(path)
    assert verdicts("store:models/nightly", "old", "--store", "store", cwd=here) == ["same"]


@pytest.mark.slow
def test_a_reference_is_replayed(tmp_path: Path) -> None:
    write_module(tmp_path)
    doubling(tmp_path / "bundle")
    assert karat("push", "bundle", "models/nightly", "--store", "store", cwd=tmp_path).code == 0
    words = ("--run", "runner:of_program", "--store", "store", "-j", "2")
    done = karat("replay", "store:models/nightly", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "3 cases: 3 match" in done.out
