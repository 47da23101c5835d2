"""One sentence about how a curve moved: the right one, and none by chance."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from factories.curves import NAN, change_of, kinds, metric
from karat.compare.change import Change, Explanation, Verdict
from karat.compare.rules import PartialRule, RuleBook
from karat.findings import Severity
from karat.goldens.shapes import Series

RNG = np.random.default_rng(11)
LOSS = np.round(10.9 - np.linspace(0, 1.4, 60) + RNG.normal(0, 0.03, 60), 5)
NOISE = RNG.normal(0, 1, 60)
COUNTS = np.round(RNG.normal(2200, 150, 60))
BYTES = 1e9 + 512.0 * RNG.integers(0, 5000, 60)


def moved(new: np.ndarray, old: np.ndarray = LOSS, name: str = "lm loss") -> Change:
    return change_of(Series({name: metric(old.tolist())}), Series({name: metric(new.tolist())}))


def told(change: Change) -> Explanation:
    found = change.metrics[0].explanation
    assert found is not None, change.metrics
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Explanation) == found, (
        "it travels, and is reported"
    )
    return found


def late(size: float, start: int = 40) -> np.ndarray:
    ramp = np.clip((np.arange(60) - start) / (60 - start), 0, 1)
    return np.round(LOSS * (1 + size * ramp), 5)


@pytest.mark.parametrize(
    ("new", "kind", "sentence"),
    [
        (np.round(LOSS * 1.001, 5), "rescaled", "scaled by 1.001 at every step"),
        (np.round(LOSS * 0.99995, 8), "rescaled", "scaled by 1 - 5e-05 at every step"),
        (LOSS + 0.004, "rescaled", "offset by +0.004 at every step"),
        (np.r_[LOSS[:1], LOSS[:-1]], "shifted", "the old values, 1 step later"),
        (np.r_[LOSS[3:], LOSS[:3] + 0.1], "shifted", "the old values, 3 steps earlier"),
        (np.round(LOSS, 2), "precision-cut", "cut to 2 decimals"),
        (np.floor(LOSS * 1000) / 1000, "precision-cut", "cut to 3 decimals"),
        (LOSS.astype(np.float16).astype(float), "precision-cut", "cut to float16"),
        (LOSS[::-1], "reordered", "the same values in another order, 60 of 60 moved"),
        (np.r_[LOSS[:30], np.full(30, LOSS[30])], "stuck", f"the same value ({LOSS[30]:.6g}) from step 31 on"),
        (late(0.01), "late-drift", "equal up to step 41, then apart by +0.50% at the median"),
    ],
)
def test_what_no_run_does_is_a_fail_of_its_own_kind(new: np.ndarray, kind: str, sentence: str) -> None:
    change = moved(new)
    assert change.verdict is Verdict.BREAK
    assert [(f.kind, f.severity, f.metric) for f in change.findings] == [(kind, Severity.FAIL, "lm loss")]
    assert change.findings[0].message.startswith(f"lm loss: {sentence} (")
    assert (told(change).kind, told(change).wrong, told(change).sentence) == (kind, True, sentence)
    assert (told(change).fit == 1.0) is (kind != "late-drift")


@pytest.mark.parametrize(
    ("new", "kind", "sentence"),
    [
        (np.round(LOSS * 1.02 + 0.002 * NOISE, 5), "rescaled", "scaled by 1.02"),
        (np.round(LOSS + 0.2 + 0.002 * NOISE, 5), "offset", "offset by +0.2"),
        (np.r_[LOSS[:20], 12.0, LOSS[21:]], "outlier", "a single step (21) is off, the others are not"),
        (np.r_[LOSS[:9], 12.0, 12.1, LOSS[11:30], 12.0, LOSS[31:]], "outliers", "spikes at 3 of 60 steps"),
        (np.r_[LOSS[:20], LOSS[20:] + 0.2 * np.abs(NOISE[20:])], "apart", "equal up to step 20, then apart"),
        (np.round(LOSS + 0.3 * NOISE, 5), "noise", "only noise grew, around the same level"),
        (np.round(LOSS + 0.02 * NOISE, 5), "noise", "off in both directions all along"),
        (np.round(LOSS + 0.05 * np.linspace(0.3, 1, 60), 5), "level", "higher all along, by 0.0"),
        (
            np.round(10.9 - np.linspace(0, 1.4, 60) + np.random.default_rng(5).normal(0, 0.03, 60), 5),
            "seed",
            "another seed",
        ),
    ],
)
def test_a_curve_that_moved_is_explained_with_how_well_it_fits(new: np.ndarray, kind: str, sentence: str) -> None:
    change = moved(new)
    found = told(change)
    assert (found.kind, found.wrong) == (kind, False)
    assert sentence in found.sentence
    assert 0 < found.fit < 1
    assert f"{found.sentence} ({found.fit:.0%} of the difference)" in change.metrics[0].because
    assert any(found.sentence in f.message for f in change.findings if f.kind == "value-drift")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BYTES, BYTES + 6553600),
        (np.full(60, 2e9), np.full(60, 2.1e9)),
        (np.r_[np.full(30, 1e9), np.full(30, 2e9)], np.r_[np.full(29, 1e9), 2e9, 1e9, np.full(29, 2e9)]),
        (COUNTS, np.r_[COUNTS[:40], COUNTS[40:] * 1.2 // 1]),
        (np.round(LOSS, 1), np.round(LOSS + 3, 1)),
        (LOSS[:7], LOSS[:7] * 1.001),
    ],
    ids=["a buffer more", "constant", "two levels of memory", "counts", "coarse", "too few"],
)
def test_what_may_be_so_by_itself_is_not_called_wrong(old: np.ndarray, new: np.ndarray) -> None:
    change = moved(new, old, "mem-allocated-bytes")
    assert all(row.explanation is None or not row.explanation.wrong for row in change.metrics)
    assert Severity.FAIL not in {f.severity for f in change.findings if f.kind != "value-drift"}


def test_missing_values_and_renumbered_steps_do_not_hide_a_shift() -> None:
    holes = LOSS.copy()
    holes[[0, 9]] = NAN
    change = moved(np.r_[NAN, holes[:-1]], holes)
    assert "shifted" in kinds(change)
    renumbered = {step + 1: value for step, value in enumerate(LOSS.tolist(), 1)}
    change = change_of(Series({"x": metric(LOSS.tolist())}), Series({"x": metric(renumbered)}))
    assert {"shifted", "lost-steps"} <= kinds(change)


def test_noise_on_top_hides_neither_a_shift_nor_a_late_drift() -> None:
    noise = 1 + 2e-5 * NOISE
    shifted = moved(np.round(np.r_[LOSS[2:], LOSS[:2]] * noise, 5))
    assert told(shifted).sentence == "the old values, 2 steps earlier, and noise"
    assert told(moved(np.round(late(0.01) * noise, 5))).kind == "late-drift"
    assert {f.kind for f in shifted.findings if f.severity is Severity.FAIL} == {"shifted"}


def test_a_metric_that_may_drift_may_drift_late_but_not_be_rescaled() -> None:
    rules = RuleBook.of([PartialRule("*", {"worst": Severity.WARN})])
    old = Series({"x": metric(LOSS.tolist())})
    drifted = change_of(old, Series({"x": metric(late(0.02).tolist())}), rules)
    assert (drifted.severity, drifted.verdict) == (Severity.WARN, Verdict.DRIFT)
    scaled = change_of(old, Series({"x": metric(np.round(LOSS * 1.001, 5).tolist())}), rules)
    assert scaled.severity is Severity.FAIL


def family(kind: int, rng: np.random.Generator, n: int) -> tuple[np.ndarray, int]:
    """Curves of many forms, and how many decimals they are written with."""
    level = 10.0 ** rng.uniform(-3, 4)
    forms = (
        lambda: (level * (1 - np.linspace(0, 0.2, n) + rng.normal(0, 0.01, n)), int(rng.integers(0, 7))),
        lambda: (level * (1 + rng.normal(0, 0.003, n)), max(0, 2 - int(np.floor(np.log10(level))))),
        lambda: (np.round(rng.normal(rng.choice([5, 200, 3000]), rng.choice([1, 50]), n)), 0),
        lambda: (1e9 + 512 * rng.integers(0, rng.choice([2, 10, 1000]), n), 0),
        lambda: (level * np.arange(1, n + 1) / n, int(rng.integers(0, 7))),
        lambda: (level * np.exp(-np.arange(n) / rng.uniform(3, 50)), int(rng.integers(0, 7))),
        lambda: (np.r_[20 * level, level * (1 + 0.05 * rng.random(n - 1))], int(rng.integers(0, 7))),
    )
    return forms[kind]()


@pytest.mark.parametrize("kind", range(7))
def test_noise_of_any_form_is_never_called_wrong(kind: int) -> None:
    rng = np.random.default_rng(kind)
    for _ in range(150):
        n = int(rng.choice([8, 12, 16, 25, 50, 100]))
        curve, decimals = family(kind, rng, n)
        noise = 10.0 ** rng.uniform(-6, -1)
        level = 1 + noise * float(rng.choice([0, 0, 10]))
        slower = float(rng.choice([1, 1, rng.uniform(1.05, 2)]))
        again = curve * level * slower * (1 + rng.normal(0, max(noise, 0.01 * (slower > 1)), n))
        old, new = np.round(curve, decimals), np.round(again, decimals)
        for row in moved(new, old, "x").metrics:
            msgspec.msgpack.encode(row.explanation)
            assert row.explanation is None or not row.explanation.wrong, (row.explanation, old, new)
