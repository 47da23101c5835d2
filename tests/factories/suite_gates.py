"""The gates of two public suites, written a second time from shared/notes/suite-gates.md and from nothing else.

Nothing of karat is imported: what agrees with this agrees with the notes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

RTOL = {
    "lm loss": 0.05,
    "mtp_1 loss": 0.05,
    "mtp_2 loss": 0.05,
    "total loss": 0.05,
    "generated_tokens": 0.05,
    "logprobs": 0.05,
    "mem-allocated-bytes": 0.05,
    "mem-max-allocated-bytes": 0.05,
    "iteration-time": 0.05,
    "num-zeros": 0.20,
}
APPROXIMATE_ONLY = {"iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes"}
Steps = Mapping[int, Any]


def _close(actual: Any, golden: Any, rtol: float) -> bool:
    one, other = (math.inf if isinstance(value, str) else float(value) for value in (actual, golden))
    if math.isinf(one) or math.isinf(other):
        return one == other
    return abs(one - other) <= rtol * abs(other)


def training_metric(name: str, golden: Steps, run: Steps, *, exact: bool = False) -> bool:
    """Whether one metric of a training golden passes."""
    if name == "iteration-time":
        finite = [step for step in sorted(golden) if not isinstance(golden[step], str)]
        if not finite:
            return False
        first, last = (5, 20) if finite[-1] <= 25 else (30, 45)
        steps = [step for step in finite if first <= step <= last] or [step for step in finite if step >= first][:4]
        if not steps:
            return False
        values = [run.get(step, "nan") for step in steps]
        found = median([math.inf if isinstance(value, str) else value for value in values])
        return _close(found, median([golden[step] for step in steps]), RTOL[name])
    rtol = 0.0 if exact and name not in APPROXIMATE_ONLY else RTOL[name]
    off = sum(not _close(run.get(step, "nan"), value, rtol) for step, value in golden.items())
    steps_ = len(golden)
    allowed = 0 if steps_ == 1 or (exact and name not in APPROXIMATE_ONLY) else min(max(steps_ // 100, 1), 50)
    return off <= allowed


def steps_of(block: Mapping[str, Any]) -> dict[int, Any]:
    """Step → value of one metric of a training golden, in either of its two forms."""
    values = block["values"]
    if isinstance(values, Mapping):
        return {int(step): value for step, value in values.items()}
    return {block["start_step"] + i * block["step_interval"]: value for i, value in enumerate(values)}


def training(golden: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, bool]:
    """Metric → whether it passes, for all that the suite has a threshold for."""
    return {
        name: name in run and training_metric(name, steps_of(golden[name]), steps_of(run[name]))
        for name in golden
        if name in RTOL
    }


REQUEST_METRICS = ("generated_tokens", "generated_text", "logprobs", "routing_indices")
INFERENCE_METRICS = frozenset({"throughput", "mem-max-allocated-bytes", *REQUEST_METRICS})


def _last_axis_sorted(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [_last_axis_sorted(item) for item in value]
    return sorted(value)


def _request(golden: Mapping[str, Any], run: Mapping[str, Any], metric: str) -> bool:
    if metric not in run:
        return False
    old, new = golden[metric], run[metric]
    if metric == "generated_text":
        shorter = min(len(old), len(new))
        return shorter > 0 and old[:shorter] == new[:shorter]
    if metric == "logprobs":
        return len(old) == len(new) and all(abs(a - b) <= 1e-3 for a, b in zip(old, new, strict=True))
    if metric == "routing_indices":
        places = golden.get("routing_indices_token_indices")
        if places is None or any(place >= len(new) for place in places):
            return False
        return bool(_last_axis_sorted(old) == _last_axis_sorted([new[place] for place in places]))
    return bool(old == new)


def inference(
    golden: Mapping[str, Any], run: Mapping[str, Any], metrics: Sequence[str] | frozenset[str] = INFERENCE_METRICS
) -> bool:
    """Whether an inference golden passes."""
    asked, given = ({key for key in side if key.isdecimal()} for side in (golden, run))
    if not given <= asked:
        return False
    if "throughput" in golden and "throughput" in metrics:
        old, new = golden["throughput"][1:], run.get("throughput", [])[1:]
        if not old or not new or not 0.9 * median(old) <= median(new) < 1.2 * median(old):
            return False
    if "mem-max-allocated-bytes" in golden and "mem-max-allocated-bytes" in metrics:
        if "mem-max-allocated-bytes" not in run:
            return False
        old, new = (
            float(median(value) if isinstance(value, list) else value)
            for value in (golden["mem-max-allocated-bytes"], run["mem-max-allocated-bytes"])
        )
        if not 0.95 * old <= new <= 1.05 * old:
            return False
    for key in asked & given:
        compared = [metric for metric in REQUEST_METRICS if metric in golden[key] and metric in metrics]
        if not compared or not all(_request(golden[key], run[key], metric) for metric in compared):
            return False
    return True


Row = Mapping[str, str]


def check_accuracy(
    actual: Mapping[str, str], expected: Mapping[str, str], flaky: Sequence[str] = ()
) -> tuple[set[str], set[str]]:
    """The models that failed and those that improved: model → accuracy of a shard's rows against the whole table."""
    failed, improved = set(), set()
    for model, accuracy in actual.items():
        if model not in expected:
            failed.add(model)
        elif accuracy == expected[model] or model in flaky:
            continue
        elif accuracy != "pass":
            failed.add(model)
        else:
            improved.add(model)
    return failed, improved


def check_graph_breaks(actual: Mapping[str, int], expected: Mapping[str, int]) -> tuple[set[str], set[str]]:
    """The models with more graph breaks, and those with fewer."""
    both = actual.keys() & expected.keys()
    more = {model for model in both if actual[model] > expected[model]}
    return more, {model for model in both if actual[model] < expected[model]}
