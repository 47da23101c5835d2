"""The presets' gates against a second writing of the suites' rules, both ways, on real pairs and around each threshold.

Where karat is stricter on purpose, the test names it: an exception of a kind that is not named here is a failure.
"""

from __future__ import annotations

import json
import re
from datetime import date
from functools import cache
from glob import escape
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import structs

from factories import suite_gates as suite
from karat.checks.check import CheckOptions, check
from karat.checks.lookup import Where
from karat.checks.report import Checked
from karat.compare.change import Change
from karat.compare.gate.result import SHUT, CheckOutcome, Judging, MetricResult
from karat.compare.gate.series import curve_result
from karat.compare.gate.values import gate_document
from karat.compare.pairs import GoldenPair, compare
from karat.config import load
from karat.findings import Severity
from karat.goldens.formats import read
from karat.goldens.shapes import Metric

ROOMY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@cache
def options(preset: str) -> CheckOptions:
    config = load(Path("/"), preset=preset)
    return CheckOptions(
        where=Where(cwd=Path("/"), globs=tuple(config.paths), settings=config.check),
        today=date(2026, 5, 1),
        rules=config.rule_book(),
        status=tuple(config.status),
    )


def checked(golden: Path, run: Path, preset: str = "megatron-lm") -> Checked:
    (found,) = check([str(run)], str(golden), options(preset)).checks
    return found


def of(found: Checked, metric: str) -> MetricResult:
    return next(result for result in found.results if result.metric == metric)


def passes(result: MetricResult) -> bool:
    return result.outcome not in SHUT | {CheckOutcome.IMPROVED}


def stricter(result: MetricResult, golden: suite.Steps, run: suite.Steps) -> str | None:
    """Why karat refuses what Megatron's training gate lets through; None: it has no reason."""
    if not any(not isinstance(golden[s], str) for s in golden if s in run and not isinstance(run[s], str)):
        return "nothing is finite on both sides: two NaN prove nothing"
    gaps = [s for s, value in golden.items() if not isinstance(value, str) and isinstance(run.get(s, "nan"), str)]
    if gaps and result.kind in {"lost-steps", "new-nan"}:
        return "a step without a value is never one of the steps that may be off"
    return None


def agree(found: Checked, golden: dict[str, Any], run: dict[str, Any]) -> set[str]:
    """The exceptions that were needed; every other metric must have the suite's very answer."""
    needed = set()
    for metric, good in suite.training(golden, run).items():
        result = of(found, metric)
        if good and not passes(result):
            why = stricter(result, suite.steps_of(golden[metric]), suite.steps_of(run[metric]))
            assert why, (found.golden, metric, result)
            needed.add(why)
        else:
            assert good == passes(result), (found.golden, metric, result)
    ungated = {r.metric: r.outcome for r in found.results if r.metric not in suite.RTOL and r.metric[0] != "("}
    assert set(ungated.values()) <= {CheckOutcome.INFO}, ungated
    return needed


def pairs_of(data: Path, *, inference: bool) -> list[tuple[Path, Path]]:
    pairs = []
    for before in sorted((data / "megatron").glob("*/before/**/golden_values_*.json")):
        parts = list(before.parts)
        parts[parts.index("before")] = "after"
        after = Path(*parts)
        if after.exists() and inference == ("inference" in before.parent.name):
            pairs.append((before, after))
    return pairs


@pytest.mark.slow
def test_megatrons_training_gate_on_real_pairs_both_ways(shared_data: Path) -> None:
    pairs = pairs_of(shared_data, inference=False)
    assert len(pairs) > 100
    verdicts = set()
    for before, after in pairs:
        for golden, run in ((before, after), (after, before)):
            want, got = json.loads(golden.read_bytes()), json.loads(run.read_bytes())
            agree(checked(golden, run), want, got)
            verdict = suite.training(want, got)
            verdicts |= {*verdict.items()}
            beyond = said_of(changed(want, got))
            assert not any(verdict[metric] for metric in beyond), (golden, beyond)
    # Neither side may win by saying the same thing always.
    assert {("lm loss", True), ("lm loss", False), ("num-zeros", False), ("iteration-time", False)} <= verdicts


def block(values: dict[int, Any]) -> dict[str, Any]:
    steps = sorted(values)
    return {
        "start_step": steps[0],
        "end_step": steps[-1],
        "step_interval": 1,
        "values": {str(s): values[s] for s in steps},
    }


@st.composite
def moves(draw: st.DrawFn, metric: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """A golden and a run that is near its threshold: as many steps off as may be, or one more; some without a value."""
    steps = draw(st.sampled_from([1, 2, 3, 7, 20, 25, 26, 29, 33, 50, 99, 100, 199, 200, 230]))
    value = st.floats(0.5, 20.0)
    golden: dict[int, Any] = {step: draw(value) for step in range(1, steps + 1)} if steps < 60 else {}
    golden = golden or {step: 1.0 + step % 7 for step in range(1, steps + 1)}
    edge = suite.RTOL[metric]
    allowed = min(max(steps // 100, 1), 50)
    run: dict[int, Any] = dict(golden)
    off = draw(st.sampled_from([0, 1, allowed, allowed + 1, steps]))
    sign = draw(st.sampled_from([1, -1]))
    size = edge + draw(st.sampled_from([-1e-6, 1e-6, 0.3]))
    for step in draw(st.permutations(range(1, steps + 1)))[:off]:
        run[step] = golden[step] * (1 + sign * size)
    for side in (golden, run):
        for step in draw(st.lists(st.sampled_from(sorted(golden)), max_size=draw(st.sampled_from([0, 0, 2, 30])))):
            side[step] = "nan"
    if steps > 1 and draw(st.booleans()):
        del run[draw(st.sampled_from(sorted(run)))]
    return golden, run


@pytest.mark.slow
@pytest.mark.parametrize("metric", sorted(suite.RTOL))
def test_megatrons_training_gate_around_each_threshold(metric: str, tmp_path: Path) -> None:
    seen: set[bool] = set()

    @ROOMY
    @given(moves(metric))
    def both_ways(pair: tuple[dict[int, Any], dict[int, Any]]) -> None:
        for old, new in (pair, pair[::-1]):
            golden, run = {metric: block(old)}, {metric: block(new)}
            (tmp_path / "golden.json").write_text(json.dumps(golden))
            (tmp_path / "run.json").write_text(json.dumps(run))
            agree(checked(tmp_path / "golden.json", tmp_path / "run.json"), golden, run)
            seen.update(suite.training(golden, run).values())

    both_ways()
    assert seen == {True, False}


SIZES = (1, 2, 3, 4, 5, 20, 21, 25, 26, 29, 30, 31, 45, 46, 50, 99, 100, 199, 200, 300, 5099, 5100, 5200)


@pytest.mark.slow
@pytest.mark.parametrize("metric", sorted(suite.RTOL))
def test_megatrons_training_gate_at_every_edge(metric: str) -> None:
    """As many steps off as may be, and one more; just inside and just outside; up and down; for each length that matters."""
    rule, edge = options("megatron-lm").rules.gate_rule_for(metric, "", "series"), suite.RTOL[metric]
    seen = set()
    for steps, more, size, sign in product(SIZES, (0, 1), (edge - 1e-9, edge + 1e-9), (1, -1)):
        golden = {step: 1.0 + step % 7 for step in range(1, steps + 1)}
        many = steps if metric == "iteration-time" else min(max(steps // 100, 1), 50) + more
        run = {s: v * (1 + sign * size) if s <= many else v for s, v in golden.items()}
        good = suite.training_metric(metric, golden, run)
        assert passes(curve_result(metric, Metric.of(golden), Metric.of(run), rule)) == good, (steps, more, size, sign)
        seen.add(good)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("key", "factors"),
    [
        ("throughput", (0.9 - 1e-9, 0.9 + 1e-9, 1.0, 1.2 - 1e-9, 1.2, 1.2 + 1e-9)),
        ("mem-max-allocated-bytes", (0.95 - 1e-9, 0.95 + 1e-9, 1.0, 1.05 - 1e-9, 1.05 + 1e-9)),
    ],
)
def test_megatrons_inference_gate_at_every_edge(key: str, factors: tuple[float, ...]) -> None:
    asked = options("megatron-lm")
    judging = Judging(book=asked.rules, shape="document", requests=asked.where.settings.requests)
    seen = set()
    for factor, values in product(factors, ([9.0, 100.0], [9.0, 80.0, 100.0, 120.0], [500.0, 100.0, 100.0])):
        golden: dict[str, Any] = {key: values}
        run: dict[str, Any] = {key: [values[0] * 3, *(value * factor for value in values[1:])]}
        if key != "throughput":  # the first sample counts, too
            golden, run = {key: values[1]}, {key: values[1] * factor}
        good = suite.inference(golden, run)
        results, findings = gate_document(golden, run, judging)
        assert ({passes(result) for result in results} == {True} and not findings) == good, (factor, values)
        seen.add(good)
    assert seen == {True, False}


REQUEST: dict[str, Any] = {
    "generated_tokens": [5, 6, 7],
    "generated_text": "one two",
    "logprobs": [-1.5, -2.0, -0.25],
    "routing_indices": [[[1, 2], [3, 4]], [[5, 6], [7, 0]]],
    "routing_indices_token_indices": [0, 2],
    "latency": 1.0,
}
ROUTED = [[[2, 1], [4, 3]], [[9, 9], [9, 9]], [[6, 5], [0, 7]]]
CHANGES: list[dict[str, Any]] = [
    {},
    {"latency": 9.0},
    {"latency": None},
    {"generated_tokens": [5, 6]},
    {"generated_tokens": [5, 6, 7, 8]},
    {"generated_tokens": [5, 7, 6]},
    {"generated_text": "one two three"},
    {"generated_text": "one"},
    {"generated_text": "One two"},
    {"generated_text": ""},
    {"logprobs": [-1.5, -2.0, -0.25 - 1e-3 + 1e-9]},
    {"logprobs": [-1.5, -2.0, -0.25 - 1e-3 - 1e-9]},
    {"logprobs": [-1.5 * 1.04, -2.0 * 1.04, -0.25 * 1.04]},
    {"logprobs": [-1.5, -2.0]},
    {"logprobs": [-1.5, -2.0, -0.25, -1.0]},
    {"routing_indices": ROUTED[:2]},
    {"routing_indices": [*ROUTED, [[1, 1], [1, 1]]]},
    {"routing_indices": [ROUTED[0], ROUTED[1], [[6, 5], [0, 8]]]},
    {"routing_indices": [ROUTED[2], ROUTED[1], ROUTED[0]]},
]


def test_megatrons_inference_gate_on_every_kind_of_change_of_a_request() -> None:
    asked = options("megatron-lm")
    judging = Judging(book=asked.rules, shape="document", requests=asked.where.settings.requests)
    verdicts = []
    for change in CHANGES:
        run = {k: v for k, v in {**REQUEST, "routing_indices": ROUTED, **change}.items() if v is not None}
        for golden, got in (
            ({"0": REQUEST}, {"0": run}),
            ({"0": REQUEST, "1": REQUEST}, {"0": run}),
            ({"0": REQUEST}, {"0": run, "1": run}),
            ({"0": {"latency": 1.0}, "1": REQUEST}, {"0": {"latency": 1.0}, "1": run}),
        ):
            good = suite.inference(golden, got)
            results, findings = gate_document(golden, got, judging)
            objects = any(f.severity is Severity.FAIL for f in findings) or not all(map(passes, results))
            assert objects is not good, (change, golden.keys(), got.keys(), findings)
            verdicts.append(good)
    assert 4 * len(CHANGES) > sum(verdicts) > 6


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_megatrons_training_gate_as_the_test_itself_says(tmp_path: Path, *, exact: bool) -> None:
    names = ["lm loss", "num-zeros", "iteration-time", "mem-allocated-bytes"]
    seen: set[bool] = set()

    @settings(ROOMY, max_examples=40)
    @given(st.none() | st.sets(st.sampled_from(names), min_size=1), st.fixed_dictionaries({n: moves(n) for n in names}))
    def both_ways(metrics: set[str] | None, pairs: dict[str, tuple[dict[int, Any], dict[int, Any]]]) -> None:
        listed = "".join(f"  - {name}\n" for name in sorted(metrics)) if metrics else ""
        mode = f"ENV_VARS:\n  NVTE_ALLOW_NONDETERMINISTIC_ALGO: {0 if exact else 1}\n"
        (tmp_path / "model_config.yaml").write_text(mode + (f"METRICS:\n{listed}" if metrics else ""))
        gated = metrics or {"lm loss", "num-zeros"}
        asked = structs.replace(options("megatron-lm"), rules=load(tmp_path, preset="megatron-lm").rule_book())
        for one, other in ((0, 1), (1, 0)):
            golden, run = ({name: block(pair[side]) for name, pair in pairs.items()} for side in (one, other))
            (tmp_path / "golden.json").write_text(json.dumps(golden))
            (tmp_path / "run.json").write_text(json.dumps(run))
            (found,) = check([str(tmp_path / "run.json")], str(tmp_path / "golden.json"), asked).checks
            for name, pair in pairs.items():
                result, old, new = of(found, name), pair[one], pair[other]
                if name not in gated:
                    assert result.outcome is CheckOutcome.INFO
                    continue
                good = suite.training_metric(name, old, new, exact=exact)
                seen.add(good)
                assert good == passes(result) or (good and stricter(result, old, new)), (name, result)

    both_ways()
    assert seen == {True, False}


@pytest.mark.slow
def test_megatrons_inference_gate_compares_what_the_test_names(tmp_path: Path) -> None:
    seen: set[bool] = set()

    @settings(ROOMY, max_examples=80)
    @given(st.sets(st.sampled_from(sorted(suite.INFERENCE_METRICS)), min_size=1), inferences())
    def agrees(metrics: set[str], pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
        (tmp_path / "model_config.yaml").write_text(
            "MODE: inference\nMETRICS:\n" + "".join(f"- {m}\n" for m in metrics)
        )
        asked = structs.replace(options("megatron-lm"), rules=load(tmp_path, preset="megatron-lm").rule_book())
        golden, run = pair
        (tmp_path / "golden.json").write_text(json.dumps(golden))
        (tmp_path / "run.json").write_text(json.dumps(run))
        (found,) = check([str(tmp_path / "run.json")], str(tmp_path / "golden.json"), asked).checks
        good = suite.inference(golden, run, frozenset(metrics))
        compared = any(r.compared for r in found.results if r.outcome is not CheckOutcome.INFO)
        # Where not one request was left to compare, the suite has nothing to object to.
        assert clean(found) == good or (good and not compared), found.findings
        seen.add(good)

    agrees()
    assert seen == {True, False}


def said_of(change: Change) -> dict[str, float]:
    """Metric → how many times the suite's own tolerance a diff says that it is off."""
    told = {}
    for found in change.findings:
        if match := re.search(r"([\d.]+(?:e\+\d+)?|inf)× the suite's own tolerance", found.message):
            told[str(found.metric)] = float(match[1])
    return told


def changed(golden: dict[str, Any], run: dict[str, Any]) -> Change:
    sides = [read(json.dumps(side).encode(), "golden_values.json") for side in (golden, run)]
    return compare(GoldenPair(path="golden_values.json", old=sides[0], new=sides[1]), options("megatron-lm").rules)


@pytest.mark.slow
def test_what_a_diff_says_is_beyond_the_suites_tolerance_fails_the_suite() -> None:
    @settings(ROOMY, max_examples=150)
    @given(
        st.sampled_from(sorted({*suite.RTOL} - {"generated_tokens", "logprobs"})).flatmap(
            lambda m: st.tuples(st.just(m), moves(m))
        )
    )
    def is_true(case: tuple[str, tuple[dict[int, Any], dict[int, Any]]]) -> None:
        metric, (old, new) = case
        golden, run = {metric: block(old), "other": block(old)}, {metric: block(new), "other": block(new)}
        told = said_of(changed(golden, run))
        assert "other" not in told, "the suite does not gate it"
        if told:
            assert not suite.training_metric(metric, old, new)
        elif (
            not any(isinstance(value, str) for side in (old, new) for value in side.values())
            and old.keys() <= new.keys()
        ):
            assert metric == "iteration-time" or suite.training_metric(metric, old, new)

    is_true()


def test_how_many_times_the_suites_tolerance_is_counted_by_the_suites_rule() -> None:
    steps = dict.fromkeys(range(1, 51), 2.0)
    spiked = block({**steps, 7: 9.0})
    assert said_of(changed({"lm loss": block(steps)}, {"lm loss": spiked})) == {}, "one step may be off"
    assert said_of(changed({"lm loss": block(steps)}, {"lm loss": block({**steps, 7: 9.0, 8: 2.31})})) == {
        "lm loss": 3.1
    }
    slower = {step: 9.0 if step < 30 or step > 45 else 2.2 for step in steps}
    assert said_of(changed({"iteration-time": block(steps)}, {"iteration-time": block(slower)})) == {
        "iteration-time": 2.0
    }
    one, other = ({"0": {"logprobs": [-2.0, -3.0], "latency": 1.0 + n}} for n in (0, 9))
    other["0"]["logprobs"] = [-2.0, -3.0042]
    assert said_of(changed(one, other)) == {"logprobs": 4.2}


def test_a_step_without_a_value_fails_and_says_that_the_rule_spares_only_values(tmp_path: Path) -> None:
    golden = {"lm loss": block(dict.fromkeys(range(1, 51), 2.0))}
    run = {"lm loss": block({step: "nan" if step == 20 else 2.0 for step in range(1, 51)})}
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert suite.training(golden, run) == {"lm loss": True}
    found = checked(tmp_path / "golden.json", tmp_path / "run.json")
    assert of(found, "lm loss").outcome is CheckOutcome.FAIL
    (told,) = [f for f in found.findings if f.severity is Severity.FAIL]
    assert "the rule spares 1 step out of tolerance, but none without a value" in told.message


def clean(found: Checked) -> bool:
    return found.severity is not Severity.FAIL


@pytest.mark.slow
def test_megatrons_inference_gate_on_real_pairs_both_ways(shared_data: Path, tmp_path: Path) -> None:
    pairs = pairs_of(shared_data, inference=True)
    assert len(pairs) >= 5
    seen = set()
    for before, after in pairs:
        same = tmp_path / "same.json"
        same.write_bytes(before.read_bytes())
        for golden, run in ((before, after), (after, before), (before, same)):
            good = suite.inference(json.loads(golden.read_bytes()), json.loads(run.read_bytes()))
            found = checked(golden, run)
            assert clean(found) == good, (golden, found.findings)
            seen.add(good)
    assert seen == {True, False}


def request(draw: st.DrawFn) -> dict[str, Any]:
    tokens = draw(st.lists(st.integers(0, 99), min_size=1, max_size=4))
    routes = [[[draw(st.integers(0, 7)) for _ in range(2)] for _ in range(2)] for _ in range(2)]
    parts = {
        "generated_tokens": tokens,
        "generated_text": draw(st.text("abc", min_size=1, max_size=5)),
        "logprobs": [draw(st.floats(-20, -0.01)) for _ in tokens],
        "routing_indices": routes,
        "routing_indices_token_indices": [0, 1],
        "latency": 1.0,
    }
    return {name: parts[name] for name in parts if name == "latency" or draw(st.integers(0, 5))}


@st.composite
def inferences(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    golden: dict[str, Any] = {str(n): request(draw) for n in range(draw(st.integers(1, 3)))}
    golden["throughput"] = draw(st.lists(st.floats(10, 100), min_size=1, max_size=5))
    golden["mem-max-allocated-bytes"] = draw(st.sampled_from([10**9, [10**9, 2 * 10**9, 3 * 10**9]]))
    run = json.loads(json.dumps(golden))
    for key in draw(st.lists(st.sampled_from(sorted(golden)), max_size=2, unique=True)):
        if key == "throughput":
            factor = draw(st.sampled_from([0.9 - 1e-6, 0.9 + 1e-6, 1.0, 1.2 - 1e-6, 1.2 + 1e-6]))
            run[key] = [value * factor for value in golden[key]][: draw(st.integers(0, 5))] or run[key]
        elif key == "mem-max-allocated-bytes":
            factor = draw(st.sampled_from([0.95 - 1e-6, 0.95 + 1e-6, 1.05 - 1e-6, 1.05 + 1e-6]))
            value = golden[key]
            run[key] = [v * factor for v in value] if isinstance(value, list) else value * factor
        elif draw(st.integers(0, 4)) == 0:
            del run[key]
        elif draw(st.integers(0, 6)) == 0:
            run["7"] = run[key]
        else:
            mutate(draw, run[key])
    if draw(st.integers(0, 8)) == 0:
        del run[draw(st.sampled_from(sorted(set(run) & {"throughput", "mem-max-allocated-bytes"})))]
    return golden, run


def mutate(draw: st.DrawFn, result: dict[str, Any]) -> None:
    """One change of a request near what its gate bears with."""
    name = draw(st.sampled_from(sorted(result)))
    value = result[name]
    if name == "generated_text":
        result[name] = draw(st.sampled_from([value + "more", value[:-1], "x" + value[1:], value[:1]]))
    elif name == "logprobs":
        move = draw(st.sampled_from([1e-3 - 1e-9, 1e-3 + 1e-9, -1e-3 + 1e-9, -1e-3 - 1e-9, 0.04]))
        at = draw(st.integers(0, len(value) - 1))
        value[at] += move
        result[name] = draw(st.sampled_from([value, [*value, -1.0], value[:-1], value]))
    elif name == "generated_tokens":
        result[name] = draw(st.sampled_from([[*value, 3], value[:-1], [value[0] + 1, *value[1:]], value[::-1]]))
    elif name == "routing_indices":
        turned = [[inner[::-1] for inner in outer] for outer in value]
        moved = [[[inner[0] + 1, inner[1]] for inner in outer] for outer in value]
        result[name] = draw(st.sampled_from([turned, moved, value[::-1], [*value, value[0]], value[:1]]))
    elif draw(st.booleans()):
        del result[name]
    else:
        result[name] = 2.0 if name == "latency" else [1, 0]


@pytest.mark.slow
def test_megatrons_inference_gate_around_each_threshold(tmp_path: Path) -> None:
    seen: set[bool] = set()

    @settings(ROOMY, max_examples=150)
    @given(inferences())
    def both_ways(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
        for golden, run in (pair, pair[::-1]):
            (tmp_path / "golden.json").write_text(json.dumps(golden))
            (tmp_path / "run.json").write_text(json.dumps(run))
            good = suite.inference(golden, run)
            found = checked(tmp_path / "golden.json", tmp_path / "run.json")
            assert clean(found) == good, found.findings
            seen.add(good)

    both_ways()
    assert seen == {True, False}


def table(rows: dict[str, tuple[str, int]]) -> str:
    return "name,accuracy,graph_breaks\n" + "".join(f"{name},{a},{n}\n" for name, (a, n) in rows.items())


def rows_of(path: Path) -> dict[str, tuple[str, int]]:
    lines = [line.split(",") for line in path.read_text().splitlines() if line][1:]
    return {name: (accuracy, int(breaks)) for name, accuracy, breaks in lines}


def same_as_pytorch(golden: Path, run: Path) -> tuple[set[str], set[str]]:
    """What both say of one shard's rows; they must say the same."""
    want, got = rows_of(golden), rows_of(run)
    shard = structs.replace(options("pytorch-dynamo"), rows=tuple(escape(name) for name in got))
    (found,) = check([str(run)], str(golden), shard).checks
    accuracy, wanted = ({n: row[0] for n, row in side.items()} for side in (got, want))
    failed, improved = suite.check_accuracy(accuracy, wanted)
    more, fewer = suite.check_graph_breaks(*({n: row[1] for n, row in side.items()} for side in (got, want)))
    said: dict[tuple[str, bool], set[Any]] = {
        (metric, better): {
            d.place for r in found.results if r.metric == metric for d in r.deviations if (d.how == "better") is better
        }
        for metric in ("accuracy", "graph_breaks", "(unknown rows)")
        for better in (True, False)
    }
    assert said["accuracy", False] | said["(unknown rows)", False] == failed
    assert said["accuracy", True] == improved
    assert (said["graph_breaks", False], said["graph_breaks", True]) == (more, fewer)
    assert clean(found) == (not (failed or improved or more or fewer)), found.findings
    return failed, improved


def test_check_accuracy_on_real_pairs_both_ways(shared_data: Path) -> None:
    failed, improved = set(), set()
    for old in sorted((shared_data / "pytorch" / "pairs").glob("*_t*training.old.csv")) + sorted(
        (shared_data / "pytorch" / "pairs").glob("*huggingface*.old.csv")
    ):
        new = old.with_name(old.name.replace(".old.", ".new."))
        for golden, run in ((old, new), (new, old)):
            worse, better = same_as_pytorch(golden, run)
            failed |= worse
            improved |= better
    assert failed
    assert improved


OUTCOMES = ["pass", "fail_accuracy", "eager_fail_to_run", "fail_to_run", "pass_due_to_skip", "timeout", "brand_new"]
MODELS = st.dictionaries(
    st.sampled_from([*"abcdef", "hf_[T5]"]), st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 2)), min_size=1
)


@pytest.mark.slow
def test_check_accuracy_on_any_two_tables(tmp_path: Path) -> None:
    @settings(ROOMY, max_examples=150)
    @given(MODELS, MODELS)
    def both_ways(old: dict[str, tuple[str, int]], new: dict[str, tuple[str, int]]) -> None:
        (tmp_path / "old.csv").write_text(table(old))
        (tmp_path / "new.csv").write_text(table(new))
        same_as_pytorch(tmp_path / "old.csv", tmp_path / "new.csv")
        same_as_pytorch(tmp_path / "new.csv", tmp_path / "old.csv")

    both_ways()
