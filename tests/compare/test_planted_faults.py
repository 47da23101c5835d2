"""Wrong goldens of thirty kinds, five times each: every one is a `fail`. Honest runs of the same tests: none is.

`pytest -s tests/compare/test_planted_faults.py` prints the table. Real goldens are used where the shared data lies beside the
repository; generated ones always.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories.wrong_goldens import INFERENCE, TRAINING, inference, noise, training
from karat.compare.change import Change
from karat.compare.pairs import GoldenPair, compare
from karat.findings import Severity
from karat.goldens import formats

SEEDS = range(5)
DATA = Path(__file__).parents[3] / "shared" / "data" / "megatron"
HARM = {
    "image-bump-5fe3f066/hybrid_dynamic_inference_tp1_ep8_nanov3_chunked_prefill": "log-probabilities of other size",
    "truncated-64bee49c/bert_mcore_tp1_pp2": "the run died at step 22 of 50",
    "truncated-64bee49c/bert_mcore_tp1_pp4_vp2": "the run died at step 13 of 50",
}
"""What is really wrong in the real pairs."""


def judged(old: bytes, new: bytes) -> Change:
    return compare(GoldenPair(path="golden.json", old=formats.read(old), new=formats.read(new)))


@cache
def real(*, tokens: bool) -> tuple[dict[str, Any], ...]:
    found = []
    for path in sorted(DATA.glob("*-6e091e1b/before/**/*.json")) + sorted(DATA.glob("*-5fe3f066/before/**/*.json")):
        golden = json.loads(path.read_bytes())
        losses = golden.get("lm loss", {"values": {}})["values"]
        if ("lm loss" not in golden) is tokens and "nan" not in losses.values():
            found.append(golden)
    return tuple(found)


def hosts(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """The goldens that a fault is planted into: a generated one, and three real ones of the same kind."""
    tokens = name in INFERENCE
    yield inference(seed) if tokens else training(seed, steps=(25, 50, 100, 200, 400)[seed])
    goldens = real(tokens=tokens)
    rng = np.random.default_rng([seed, len(name)])
    yield from (goldens[int(n)] for n in rng.integers(0, len(goldens), 3 if goldens else 0))


def said(change: Change) -> str:
    return next((f.kind for f in change.findings if f.severity is Severity.FAIL), "")


FAULTS: Mapping[str, Any] = {**TRAINING, **INFERENCE}


def test_there_are_thirty_kinds() -> None:
    assert len(FAULTS) == 30


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_a_fail(name: str) -> None:
    kinds: dict[str, int] = {}
    missed = []
    for seed in SEEDS:
        for golden in hosts(name, seed):
            rng = np.random.default_rng([seed, 7])
            change = judged(json.dumps(golden).encode(), FAULTS[name](golden, rng).encode())
            kinds[said(change)] = kinds.get(said(change), 0) + 1
            if change.severity is not Severity.FAIL:
                missed.append([(f.severity.value, f.kind, f.message) for f in change.findings])
    print(f"{name:20} caught {sum(kinds.values()) - len(missed)}, missed {len(missed)}: {kinds}")
    assert not missed


@pytest.mark.parametrize("seed", range(12))
def test_another_honest_run_is_no_fail(seed: int) -> None:
    golden = training(seed, steps=(25, 50, 100, 400)[seed % 4])
    change = judged(json.dumps(golden).encode(), noise(golden, np.random.default_rng(seed)).encode())
    assert change.severity is not Severity.FAIL, change.findings


@pytest.mark.skipif(not DATA.exists(), reason="no shared data beside the repository")
def test_real_noise_is_no_fail_and_real_harm_is_named() -> None:
    pairs, harm = 0, set()
    alarms: list[tuple[str, object]] = []
    for folder in sorted(DATA.iterdir()):
        for path in sorted((folder / "before").rglob("*.json")):
            name, old = f"{folder.name}/{path.parent.name}", path.read_bytes()
            new = (folder / "after" / path.relative_to(folder / "before")).read_bytes()
            change, back = judged(old, new), judged(new, old)
            # Backwards, too: how a curve was made of another is no matter of which came first.
            alarms += [(name, row.explanation) for row in back.metrics if row.explanation and row.explanation.wrong]
            if change.severity is not Severity.FAIL:
                pairs += 1
            elif name in HARM:
                harm.add(name)
            else:
                alarms.append((name, change.findings))
    print(f"{pairs} pairs of real noise, {len(alarms)} false alarms; really wrong: {HARM}")
    assert pairs >= 50
    assert not alarms
    assert harm == set(HARM)
