"""A realistic Diff from seeded data: what a refresh of training goldens after an image bump gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.result import Diff, FindingGroup
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric

Curve = NDArray[np.float64]

ROOT = "tests/functional_tests/test_cases"
METRICS = ("lm loss", "num-zeros", "mem-allocated-bytes", "mem-max-allocated-bytes", "iteration-time")
HOSTILE = (
    "</script><script>window.__pwned=1</script>",
    "<img src=x onerror=window.__pwned=1>",
    "\"'><svg onload=window.__pwned=1>",
    "a\u202egnp.exe\u2028\u2029\u0000&amp;lt;",
    "<!--karat:data--><!--<script>",
    "half a pair \udc80",
    "x" * 1000,
)


def old_values(metric: str, steps: int, rng: np.random.Generator) -> Curve:
    """What a healthy run records, rounded to five decimals as the writers do."""
    at = np.arange(steps)
    made = {
        "lm loss": 10.9 - 3.1 * (1 - np.exp(-at / (steps / 4))) + rng.normal(0, 0.03, steps),
        "num-zeros": np.round(rng.normal(2.3e9, 4e6, steps)),
        "mem-allocated-bytes": np.full(steps, 5_583_480_832.0),
        "mem-max-allocated-bytes": np.full(steps, 9_212_330_496.0),
        "iteration-time": np.where(at == 0, 9.8, 0.24) + np.abs(rng.normal(0, 0.006, steps)),
    }
    return np.round(made[metric], 5)


def measured(metric: str, old: Curve, new: Curve, verdict: Verdict, because: str) -> MetricChange:
    """The row of one curve, counted the plain way."""
    had, has = np.isfinite(old), np.isfinite(new)
    usable = had & has & (old != 0)
    rel = np.divide(old - new, old, out=np.full(old.shape, np.nan), where=usable)
    differs = np.flatnonzero((old != new) & ~(np.isnan(old) & np.isnan(new)))
    size = np.abs(rel[usable])
    at = int(np.nanargmax(np.abs(rel))) if usable.any() else None
    steps = np.arange(1, old.size + 1, dtype=np.int64)
    return MetricChange(
        metric=metric,
        verdict=verdict,
        because=because,
        n_steps=int(usable.sum()),
        avg_rel_diff=float(rel[usable].mean()) if usable.any() else None,
        change=-float(rel[usable].mean()) if usable.any() else None,
        threshold_ratio=float(size.mean() / 1e-3) if usable.any() else None,
        mean_abs_rel_diff=float(size.mean()) if usable.any() else None,
        max_abs_rel_diff=float(size.max()) if usable.any() else None,
        max_step=None if at is None else at + 1,
        max_old=None if at is None else float(old[at]),
        max_new=None if at is None else float(new[at]),
        first_diff_step=int(differs[0]) + 1 if differs.size else None,
        bit_equal=int((old == new).sum()),
        n_shared=old.size,
        nan_gained=int((had & ~has).sum()),
        nan_lost=int((~had & has).sum()),
        tolerance_ratio=float(size.max() / 0.05) if metric == "lm loss" and usable.any() else None,
        rule=metric,
        in_csv=True,
        old=Metric(steps, old),
        new=Metric(steps, new),
    )


def case(number: int) -> str:
    """A golden's path: long, as they are."""
    tp, pp = 2 ** (number % 4), 2 ** (number // 4 % 3)
    kind = ("resume_torch_dist", "dist_optimizer_overlap_grad_reduce", "rope_embeddings_interleaved")
    platform = ("dgx_h100", "dgx_gb200", "dgx_a100")[number % 3]
    model = ("gpt", "moe", "bert", "t5")[number % 4]
    name = f"{model}3_mcore_te_tp{tp}_pp{pp}_{kind[number % 3]}_{number}_1node"
    return f"{ROOT}/{model}/{name}/golden_values_dev_{platform}.json"


def _calm(number: int, steps: int, rng: np.random.Generator) -> Change:
    """A file whose values moved by next to nothing."""
    rows = []
    for metric in METRICS:
        old = old_values(metric, steps, rng)
        jitter = 0.0 if metric.startswith("mem-") else 2e-4
        new = np.round(old * (1 + rng.normal(0, jitter, steps)), 5)
        same = bool((old == new).all())
        verdict = Verdict.SAME if same else Verdict.NOISE
        why = "every step is bit-equal" if same else "max |·| is under 0.01, the noise level of the rule"
        rows.append(measured(metric, old, new, verdict, why))
    noted: tuple[Finding, ...] = ()
    if number % 9 == 0:
        message = "num-zeros carries fewer digits than before"
        noted = (_finding("precision-lost", Severity.INFO, case(number), message, "num-zeros"),)
    return Change(
        path=case(number),
        verdict=Verdict.NOISE,
        shape="series",
        metrics=tuple(rows),
        findings=noted,
        identity={"model": "gpt", "platform": case(number).split("dev_")[1][:-5]},
    )


def _finding(kind: str, severity: Severity, path: str, message: str, metric: str | None = None) -> Finding:
    after = f"karat diff --only {path} --metric '{metric}'" if metric else f"karat review {path}"
    return Finding(kind=kind, severity=severity, message=message, path=path, metric=metric, next=after)


def _with(number: int, rows: list[MetricChange], *findings: Finding) -> Change:
    verdict = min((row.verdict for row in rows), key=lambda v: v.rank)
    return Change(
        path=case(number),
        verdict=verdict,
        shape="series",
        metrics=tuple(rows),
        findings=findings,
        identity={"model": case(number).split("/")[3], "platform": "dgx_h100"},
    )


def _truncated(number: int, steps: int, rng: np.random.Generator) -> Change:
    """A run that died at step 13 and left "nan" behind."""
    rows = []
    for metric in METRICS[:3]:
        old = old_values(metric, steps, rng)
        new = old.copy()
        new[12:] = np.nan
        why = f"{steps - 12} of {steps} steps became NaN; completeness comes before drift"
        rows.append(measured(metric, old, new, Verdict.INCOMPLETE, why))
    message = f"the run stopped at step 13 of {steps}: 38 steps that had a value hold NaN now"
    return _with(number, rows, _finding("truncated", Severity.FAIL, case(number), message))


def _broken(number: int, steps: int, rng: np.random.Generator) -> Change:
    """A loss that leaves its course half-way."""
    old = old_values("lm loss", steps, rng)
    new = old.copy()
    half = steps // 2
    new[half:] = np.round(old[half:] * (1 + 0.06 * np.sqrt(np.arange(steps - half) / half)), 5)
    row = measured("lm loss", old, new, Verdict.BREAK, "max |·| 0.0594 is over 0.05, the rule's break level")
    message = f"lm loss left its course at step {half + 2} and ends 5.9% higher than before"
    return _with(number, [row], _finding("value-drift", Severity.FAIL, case(number), message, "lm loss"))


def _slower(number: int, steps: int, rng: np.random.Generator) -> Change:
    """An iteration time that drifted by about 7%, with one outlier."""
    old = old_values("iteration-time", steps, rng)
    new = np.round(old * 1.07 + np.abs(rng.normal(0, 0.004, steps)), 5)
    new[steps // 3] *= 1.4
    row = measured("iteration-time", old, new, Verdict.DRIFT, "steady state 7.1% slower, over 5%")
    message = "iteration-time is 7.1% slower in steady state"
    found = _finding("value-drift", Severity.WARN, case(number), message, "iteration-time")
    return _with(number, [row], found)


def _lost_steps(number: int, steps: int, rng: np.random.Generator) -> Change:
    """A curve with steps cut off at the end, and others gained."""
    old, at = old_values("lm loss", steps, rng), np.arange(1, steps + 1, dtype=np.int64)
    row = measured("lm loss", old, old, Verdict.INCOMPLETE, "11 steps that had a value are gone")
    keep = at <= steps - 11
    new = Metric(np.append(at[keep], [steps + 5, steps + 9]), np.append(old[keep], [7.6, 7.5]))
    cut = MetricChange(
        metric="lm loss",
        verdict=row.verdict,
        because=row.because,
        n_steps=steps - 11,
        avg_rel_diff=0.0,
        mean_abs_rel_diff=0.0,
        max_abs_rel_diff=0.0,
        bit_equal=steps - 11,
        n_shared=steps - 11,
        steps_lost=11,
        steps_gained=2,
        old=row.old,
        new=new,
    )
    message = "11 steps that had a value are gone"
    return _with(number, [cut], _finding("lost-steps", Severity.FAIL, case(number), message, "lm loss"))


def _others() -> list[Change]:
    """Files without curves, a table and a document."""
    table = "benchmarks/dynamo/ci_expected_accuracy/inductor_torchbench_training.csv"
    old, new = np.array([3.0, 0.0, 7.0, 12.0]), np.array([3.0, 0.0, 9.0, 12.0])
    graph_breaks = MetricChange(
        metric="graph_breaks",
        verdict=Verdict.BREAK,
        because="hf_T5 has 9 graph breaks, 7 before; a count may not grow",
        n_steps=3,
        avg_rel_diff=-0.0952,
        change=0.0952,
        mean_abs_rel_diff=0.0952,
        max_abs_rel_diff=2 / 7,
        max_step="hf_T5",
        max_old=7,
        max_new=9,
        first_diff_step="hf_T5",
        bit_equal=3,
        n_shared=4,
        old=Metric(np.arange(4), old),
        new=Metric(np.arange(4), new),
    )
    gone = f"{ROOT}/t5/t5_mcore_tp4_pp1_removed/golden_values_dev_dgx_a100.json"
    bad = f"{ROOT}/gpt/gpt3_conflicted/golden_values_dev_dgx_h100.json"
    fresh = f"{ROOT}/moe/moe_brand_new/golden_values_dev_dgx_gb200.json"
    doc = f"{ROOT}/inference/gpt_static_inference/golden_values_dev_dgx_h100.json"
    made = [
        (bad, Verdict.UNREADABLE, None, "conflict-markers", Severity.FAIL, "line 41: '<<<<<<< HEAD'"),
        (gone, Verdict.REMOVED, None, "removed-golden", Severity.WARN, "the golden is gone"),
        (fresh, Verdict.NEW, "series", "new-golden", Severity.INFO, "no old side to compare with"),
        (doc, Verdict.DRIFT, "document", "text-changed", Severity.WARN, "$.0.generated_text changed"),
    ]
    changes = [
        Change(path=p, verdict=v, shape=s, findings=(_finding(k, sev, p, text),))  # type: ignore[arg-type]
        for p, v, s, k, sev, text in made
    ]
    worse = "hf_T5: graph_breaks grew from 7 to 9"
    found = _finding("status-regressed", Severity.FAIL, table, worse, "graph_breaks")
    changes.append(Change(path=table, verdict=Verdict.BREAK, shape="table", metrics=(graph_breaks,), findings=(found,)))
    return changes


def make(files: int = 60, steps: int = 50, seed: int = 7) -> Diff:
    """A pull request with `files` calm files and about twenty that are not."""
    rng = np.random.default_rng(seed)
    slower = [_slower(1000 + i, steps, rng) for i in range(12)]
    changes = [
        *_others(),
        _truncated(900, steps, rng),
        _truncated(901, steps, rng),
        _lost_steps(902, steps, rng),
        _broken(903, steps, rng),
        *slower,
        *(_calm(i, steps, rng) for i in range(files)),
    ]
    sizes = [abs(change.metrics[0].avg_rel_diff or 0) for change in slower]
    groups = (
        FindingGroup(
            title="iteration-time slower on dgx_gb200",
            kind="value-drift",
            severity=Severity.WARN,
            platform="dgx_gb200",
            family="iteration-time",
            direction="up",
            members=tuple((change.path, "iteration-time") for change in slower),
            low=min(sizes),
            high=max(sizes),
        ),
        FindingGroup(
            title="runs stopped early on dgx_h100",
            kind="truncated",
            severity=Severity.FAIL,
            platform="dgx_h100",
            family="*",
            direction="",
            members=((case(900), None), (case(901), None)),
        ),
    )
    return Diff(
        old="main (4f2c91e)",
        new="working tree",
        root=ROOT,
        changes=tuple(sorted(changes, key=lambda change: change.verdict.rank)),
        groups=groups,
        unchanged=812,
    )


def hostile() -> Diff:
    """Names that would like to be markup."""
    rng = np.random.default_rng(1)
    changes = []
    for name in HOSTILE:
        old = old_values("lm loss", 20, rng)
        row = measured(name, old, old * 1.5, Verdict.BREAK, f"because {name}")
        found = Finding(
            kind="value-drift",
            severity=Severity.FAIL,
            message=f"message {name}",
            path=f"dir/{name}/{name}.json",
            metric=name,
            where=name,
            next=f"karat diff {name}",
        )
        changes.append(
            Change(
                path=f"dir/{name}/{name}.json",
                verdict=Verdict.BREAK,
                shape="series",
                metrics=(row,),
                findings=(found,),
                identity={name: name},
            )
        )
    group = FindingGroup(
        title=HOSTILE[0],
        kind="value-drift",
        severity=Severity.FAIL,
        platform=HOSTILE[1],
        family="*",
        direction="up",
        members=tuple((change.path, None) for change in changes),
    )
    return Diff(old=HOSTILE[0], new=HOSTILE[1], changes=tuple(changes), groups=(group,), root=HOSTILE[2])
