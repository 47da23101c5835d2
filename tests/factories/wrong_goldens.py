"""Thirty ways in which a golden goes wrong on its way into a repository, each a function of a good one.

A fault takes the parsed golden and a random generator, and gives the text of the bad file. Faults of curves are planted into the
loss, which every training golden has; those of a whole file into all of it. `noise` is another honest run of the same test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import numpy as np

Golden: TypeAlias = dict[str, Any]
Fault: TypeAlias = Callable[[Golden, np.random.Generator], str]
LOSS = "lm loss"


def training(seed: int, steps: int = 100) -> Golden:
    """A golden as Megatron-LM writes it: losses to five decimals, counts, bytes, and timings without a first sample."""
    rng = np.random.default_rng(seed)
    warm = np.exp(-np.arange(steps) / 3)
    curves = {
        LOSS: np.round(10.9 - np.linspace(0, 1.4, steps) + rng.normal(0, 0.03, steps), 5),
        "num-zeros": np.round(rng.normal(2200, 150, steps)),
        "mem-allocated-bytes": np.where(np.arange(steps) < 20, 284527616.0, 416513536.0),
        "iteration-time": np.round(0.3 + 8 * warm + 0.01 * rng.random(steps), 5),
    }
    golden: Golden = {}
    for name, curve in curves.items():
        values: dict[str, Any] = {str(step): value for step, value in enumerate(curve.tolist(), 1)}
        golden[name] = {"start_step": 1, "end_step": steps, "step_interval": 1, "values": values}
    golden["iteration-time"]["values"]["1"] = "nan"
    return golden


def inference(seed: int) -> Golden:
    """An inference golden: a request with its tokens, its text and the log-probabilities of every token."""
    rng = np.random.default_rng(seed)
    request = {
        "input_prompt": "A fox",
        "generated_text": " is a small animal",
        "generated_tokens": rng.integers(0, 100_000, 30).tolist(),
        "latency": 1.5,
        "logprobs": (-3 * rng.random(60)).tolist(),
    }
    return {"0": request}


def noise(golden: Golden, rng: np.random.Generator) -> str:
    """What another honest run leaves: losses that differ in their last digits, other counts, other timings."""
    new = deepcopy(golden)
    for name, size in ((LOSS, 2e-5), ("num-zeros", 0.02), ("iteration-time", 0.03)):
        if name in new:
            _each(new[name], partial(_jitter, rng=rng, size=size))
    return json.dumps(new)


def _jitter(value: float, rng: np.random.Generator, size: float) -> float:
    return round(value * (1 + rng.normal(0, size)), 5)


def _each(block: Golden, change: Callable[[float], Any]) -> None:
    values = block["values"]
    block["values"] = {step: change(v) if isinstance(v, float) else v for step, v in values.items()}


def _loss(change: Callable[[list[float], np.random.Generator], list[Any]]) -> Fault:
    """A fault of the loss: the list of its values → another."""

    def fault(golden: Golden, rng: np.random.Generator) -> str:
        new = deepcopy(golden)
        values = new[LOSS]["values"]
        steps = sorted(values, key=int)
        new[LOSS]["values"] = dict(zip(steps, change([values[step] for step in steps], rng), strict=True))
        return json.dumps(new)

    return fault


def _file(change: Callable[[Golden, np.random.Generator], Any]) -> Fault:
    def fault(golden: Golden, rng: np.random.Generator) -> str:
        new = deepcopy(golden)
        return json.dumps(change(new, rng) or new)

    return fault


def _text(change: Callable[[str, np.random.Generator], str]) -> Fault:
    return lambda golden, rng: change(json.dumps(golden, indent=4), rng)


def _place(values: list[float], rng: np.random.Generator, share: float = 0.3) -> int:
    """A place in the middle."""
    return int(rng.integers(int(share * len(values)), int(0.7 * len(values))))


def _three_digits(new: Golden, rng: np.random.Generator) -> None:
    del rng
    for block in new.values():
        _each(block, lambda value: float(f"{value:.2e}"))


def _bfloat16(value: float) -> float:
    bits = np.array([value], np.float32).view(np.uint32)
    return float(((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32)[0])


def _set(values: list[Any], places: Any, value: Any) -> list[Any]:
    chosen = set(np.atleast_1d(places).tolist())
    return [value if n in chosen else v for n, v in enumerate(values)]


def _scaled(values: list[float], rng: np.random.Generator) -> list[float]:
    factor = float(rng.choice([0.999, 1.001]))
    return [round(value * factor, 5) for value in values]


def _offset(values: list[float], rng: np.random.Generator) -> list[float]:
    by = float(rng.uniform(0.001, 0.05))
    return [round(value + by, 5) for value in values]


def _stuck(values: list[float], rng: np.random.Generator) -> list[float]:
    since = _place(values, rng)
    return _set(values, np.arange(since, len(values)), values[since])


def _ten_times(values: list[float], rng: np.random.Generator) -> list[float]:
    place = _place(values, rng)
    return _set(values, place, values[place] * 10)


def _late(values: list[float], rng: np.random.Generator) -> list[float]:
    start = 2 * len(values) // 3
    most = rng.uniform(0.005, 0.03) * rng.choice([-1, 1])
    ramp = np.clip((np.arange(len(values)) - start) / (len(values) - start), 0, 1)
    return [round(v * (1 + most * r), 5) for v, r in zip(values, ramp.tolist(), strict=True)]


def _died(new: Golden, rng: np.random.Generator) -> None:
    stop = int(rng.integers(5, len(new[LOSS]["values"]) - 5))
    for block in new.values():
        if isinstance(block, dict) and "values" in block:
            block["values"] = {s: v if int(s) <= stop else "nan" for s, v in block["values"].items()}


def _shorter(new: Golden, rng: np.random.Generator) -> None:
    stop = int(rng.integers(5, len(new[LOSS]["values"]) - 5))
    for block in new.values():
        block["values"] = {s: v for s, v in block["values"].items() if int(s) <= stop}
        block["end_step"] = stop


def _renumbered(new: Golden, rng: np.random.Generator) -> None:
    del rng
    for block in new.values():
        block["values"] = {str(int(s) - 1): v for s, v in block["values"].items()}
        block["start_step"] -= 1
        block["end_step"] -= 1


def _swapped(values: list[float], rng: np.random.Generator) -> list[float]:
    places = rng.permutation(len(values))[:6]
    new = list(values)
    for one, other in zip(places[::2], places[1::2], strict=True):
        new[one], new[other] = values[other], values[one]
    return new


def _exchange(new: Golden, rng: np.random.Generator) -> None:
    del rng
    new[LOSS], new["num-zeros"] = new["num-zeros"], new[LOSS]


def _twice(text: str, rng: np.random.Generator) -> str:
    del rng
    return text.replace('"2": ', '"2": 1.5,\n            "2": ', 1)


def _conflict(text: str, rng: np.random.Generator) -> str:
    lines = text.split("\n")
    at = int(rng.integers(5, 20))
    return "\n".join([*lines[:at], "<<<<<<< HEAD", lines[at], "=======", lines[at], ">>>>>>> main", *lines[at + 1 :]])


def _other_answer(new: Golden, rng: np.random.Generator) -> None:
    for request in _requests(new):
        request["generated_tokens"] = rng.integers(0, 100_000, len(request["generated_tokens"])).tolist()
        request["generated_text"] = "something else"


def _rescaled_logprobs(new: Golden, rng: np.random.Generator) -> None:
    factor = float(rng.choice([0.96, 1.04]))
    for request in _requests(new):
        request["logprobs"] = [value * factor for value in request["logprobs"]]


def _requests(new: Golden) -> list[Golden]:
    return [request for request in new.values() if isinstance(request, dict) and "generated_tokens" in request]


TRAINING: Mapping[str, Fault] = {
    "the run died": _file(_died),
    "a shorter run": _file(_shorter),
    "file cut off": _text(lambda text, rng: text[: int(rng.integers(200, len(text) - 200))]),
    "file empty": _text(lambda *_: ""),
    "an empty object": _text(lambda *_: "{}"),
    "merge conflict": _text(_conflict),
    "a step twice": _text(_twice),
    "metric gone": _file(lambda new, _: {name: block for name, block in new.items() if name != LOSS}),
    "a few NaN": _loss(lambda v, rng: _set(v, rng.permutation(len(v))[:3], "nan")),
    "diverged": _loss(lambda v, rng: _set(v, np.arange(_place(v, rng), len(v)), "nan")),
    "an infinity": _loss(lambda v, rng: _set(v, _place(v, rng), float("inf"))),
    "steps renumbered": _file(_renumbered),
    "scaled by 1.001": _loss(_scaled),
    "sum, not mean": _loss(lambda v, _: [round(x * 8, 5) for x in v]),
    "offset": _loss(_offset),
    "a step later": _loss(lambda v, rng: [*v[: int(rng.integers(1, 4))], *v][: len(v)]),
    "a step earlier": _loss(lambda v, _: [*v[1:], round(v[-1] * 1.001, 5)]),
    "two decimals": _loss(lambda v, _: [round(x, 2) for x in v]),
    "three digits": _file(_three_digits),
    "bfloat16": _loss(lambda v, _: [_bfloat16(x) for x in v]),
    "numbers as text": _loss(lambda v, _: [str(x) for x in v]),
    "sorted as text": _loss(lambda v, _: [v[n] for n in sorted(range(len(v)), key=lambda n: str(n + 1))]),
    "backwards": _loss(lambda v, _: v[::-1]),
    "a few swapped": _loss(_swapped),
    "stuck": _loss(_stuck),
    "late drift": _loss(_late),
    "metrics exchanged": _file(_exchange),
    "decimal point lost": _loss(_ten_times),
}
"""Name → fault, of training goldens."""
INFERENCE: Mapping[str, Fault] = {"another answer": _file(_other_answer), "logprobs scaled": _file(_rescaled_logprobs)}
