"""Sample goldens, made from a seed: what a repository holds, and what a CI run brought back.

Planted, so that each kind of answer can be seen once: rounding noise in most files, one run that
died at step 13, one loss that moved, one model gone from a table, one that regressed, one new
golden, one inference document whose text changed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_CASES = ("gpt3_tp1_pp1", "gpt3_tp2_pp2", "gpt3_tp4_fp8", "moe_ep8", "bert_tp1_pp4", "t5_tp2")
_PLATFORMS = ("dgx_h100", "dgx_gb200")
_PLANTED = {("bert_tp1_pp4", "dgx_h100"): {"stop": 13.0}, ("gpt3_tp4_fp8", "dgx_gb200"): {"shift": 4e-3}}
_INFERENCE = "goldens/inference/gpt_583m/golden_values_dev_dgx_h100.json"
_STEPS = 50
CONFIG = """[goldens]
paths = ["goldens/**/*.json", "goldens/**/*.csv"]
cases = ["goldens/{model}/{case}/golden_values_{lane}_{platform}.json"]
"""
CI_RUN = "ci-run"  # Where the sample keeps what a CI run left, as `gh run download` would lay it out.

Files = Mapping[str, str]


def before() -> Files:
    files = {_path(case, platform): _golden(case, platform) for case in _CASES for platform in _PLATFORMS}
    files["goldens/tables/inductor_training.csv"] = _table(
        ("BERT_pytorch", "pass", 6), ("alexnet", "pass", 0), ("dcgan", "pass", 4), ("resnet50", "pass", 0)
    )
    files[_INFERENCE] = _document(" And that this is the place", -1.9262154)
    return files


def after() -> Files:
    """The same after a refresh."""
    files = {
        _path(case, platform): _golden(case, platform, noise=2e-6, **_PLANTED.get((case, platform), {}))
        for case in _CASES
        for platform in _PLATFORMS
    }
    files["goldens/tables/inductor_training.csv"] = _table(
        ("BERT_pytorch", "pass", 6), ("alexnet", "fail_accuracy", 0), ("resnet50", "pass", 1)
    )
    files[_INFERENCE] = _document(" And that this was the place", -1.9269031)
    files[_path("gpt3_tp8_new", "dgx_h100")] = _golden("gpt3_tp8_new", "dgx_h100")
    return files


def _path(case: str, platform: str) -> str:
    return f"goldens/{case.split('_', maxsplit=1)[0]}/{case}/golden_values_dev_{platform}.json"


def _golden(case: str, platform: str, *, noise: float = 0.0, shift: float = 0.0, stop: float = _STEPS) -> str:
    rng = np.random.default_rng(sum(map(ord, case + platform)))
    jitter = np.random.default_rng(7).normal(0, noise, (4, _STEPS)) if noise else np.zeros((4, _STEPS))
    steps = np.arange(1, _STEPS + 1)
    loss = 10.9 - 1.6 * steps / (steps + 20) + rng.normal(0, 0.01, _STEPS)
    curves = {
        "lm loss": np.round(loss * (1 + jitter[0] + shift * steps / _STEPS), 5),
        "num-zeros": np.round(rng.normal(2200, 120, _STEPS) * (1 + 2e4 * jitter[1] / 100)),
        "mem-allocated-bytes": np.full(_STEPS, float(int(rng.integers(2_000_000, 4_000_000)) * 1024)),
        "iteration-time": np.round(
            0.45 + np.where(steps < 3, 6.0, 0) + np.abs(rng.normal(0, 0.02, _STEPS)) + 4e3 * np.abs(jitter[3]), 5
        ),
    }
    blocks = {
        name: {
            "start_step": 1,
            "end_step": _STEPS,
            "step_interval": 1,
            "values": {str(s): (float(v) if s <= stop else "nan") for s, v in zip(steps.tolist(), values, strict=True)},
        }
        for name, values in curves.items()
    }
    blocks["iteration-time"]["values"]["1"] = "nan"  # type: ignore[index]
    return json.dumps(blocks, indent=4)


def _table(*rows: tuple[str, str, int]) -> str:
    lines = ["name,accuracy,graph_breaks", *(f"{name},{status},{breaks}" for name, status, breaks in rows)]
    return "\n\n\n\n".join(lines) + "\n"


def _document(text: str, logprob: float) -> str:
    told = {"input_prompt": "Time travel to 2008", "generated_text": text, "generated_tokens": [3060, 1455, 1593]}
    return json.dumps({"0": {**told, "logprobs": [-9.358587, logprob], "latency": 0.2114}}, indent=1) + "\n"


def build(folder: Path) -> None:
    """A git repository with the sample committed, and beside its goldens what a CI run left."""
    folder.mkdir(parents=True)
    write(folder, {**before(), "karat.toml": CONFIG})
    # In a git hook these name another repository, which is none of the demo's business.
    alone = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    settings = {"user.name": "karat demo", "user.email": "demo@example.invalid", "commit.gpgsign": "false"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    for words in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        ("commit", "--quiet", "--no-verify", "--message=Goldens as they were"),
    ):
        subprocess.run(["git", *options, *words], cwd=folder, check=True, env=alone)
    write(folder, {".git/info/exclude": f"/{CI_RUN}/\n/report.html\n/reldiff.csv\n/pr.md\n"})
    left = {name.removeprefix("goldens/"): text for name, text in after().items()}
    write(folder / CI_RUN, {name: text for name, text in left.items() if "_new" not in name})


def build_folders(folder: Path) -> None:
    """The same as two folders, `before` and `after`, for a machine without git."""
    write(folder / "before", before())
    write(folder / "after", after())
    write(folder, {"karat.toml": CONFIG})


def write(folder: Path, files: Files) -> None:
    """Each file below the folder, which need not be there."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
