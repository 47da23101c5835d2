"""Repositories with a history of goldens, laid out as Megatron-LM's and PyTorch's are.

Each commit is a refresh as those suites have them, healthy or not. What is wrong with a commit is told by lines
`Harm: KIND PATH` of its message, so that whoever replays the history can count what was caught.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from factories.repositories import Repository, curves, golden_text

MEGATRON = "tests/functional_tests/test_cases"
DYNAMO = "benchmarks/dynamo"
_PLATFORMS = ("h100", "gb200", "a100")
Files = dict[str, str]
"""The goldens of a tree: path → text."""
Refresh = tuple[str, Files, dict[str, str]]
"""A commit: its subject, the files that it writes, and what is wrong with some of them."""


def write(root: Path, preset: str, refreshes: int, seed: int = 7) -> Repository:
    """A repository with some files and as many refreshes of them."""
    repository = Repository(root)
    made = {"megatron-lm": _megatron, "pytorch-dynamo": _pytorch}[preset](np.random.default_rng(seed))
    repository.write("README.md", "A suite.\n")
    for number, (subject, files, harm) in zip(range(refreshes + 1), made, strict=False):
        for path, text in files.items():
            repository.write(path, text)
        repository.write("NEWS.md", f"{number}\n")  # golden commits touch other files, too
        repository.commit("\n".join([subject, "", *(f"Harm: {kind} {path}" for path, kind in harm.items())]))
        repository.write("NEWS.md", f"{number} and a commit without goldens\n")
        repository.commit("No golden")
    return repository


def of_pairs(root: Path, data: Path) -> Repository:
    """The before/after pairs under shared/data as commits: what lies there was committed so."""
    repository = Repository(root)
    for name in ("truncated-64bee49c", "repair-96d41593", "image-bump-5fe3f066", "with-inference-6e091e1b"):
        for side in ("before", "after"):
            folder = data / "megatron" / name / side
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                repository.write(file.relative_to(folder).as_posix(), file.read_bytes())
            repository.commit(f"{name}: {side}")
    for old in sorted((data / "pytorch" / "pairs").glob("*.old.csv")):
        table = old.name.removesuffix(".old.csv").partition("_")[2]
        path = f"{DYNAMO}/ci_expected_accuracy/{table}.csv"
        if table.startswith("pr_time"):
            path = f"{DYNAMO}/pr_time_benchmarks/{table.removeprefix('pr_time_')}.csv"
        for file in (old, old.with_name(old.name.replace(".old.", ".new."))):
            repository.write(path, file.read_bytes())
            repository.commit(file.name)
    return repository


def _megatron(rng: np.random.Generator) -> Iterator[Refresh]:
    """First all goldens, then one refresh after the other, for ever."""
    models = ("gpt", "moe", "t5", "bert")
    paths = [
        f"{MEGATRON}/{model}/{model}_mcore_tp{tp}_pp{4 // tp}/golden_values_dev_dgx_{platform}.json"
        for model in models
        for tp in (1, 2, 4)
        for platform in _PLATFORMS
    ]
    state = {path: curves(number, steps=100 if number % 3 == 0 else 50) for number, path in enumerate(paths)}

    def rerun(path: str, *, image: bool = False) -> str:
        """The text of another run of a case, whose values are the golden's from now on; another image is quicker."""
        before = state[path]
        size = len(before["lm loss"])
        time, memory, loss = (0.97, 1.002, 1e-5) if image else (1.0, 1.0, 1e-6)
        state[path] = {
            **before,
            "lm loss": np.round(before["lm loss"] * (1 + loss * rng.standard_normal(size)), 5),
            "mem-allocated-bytes": np.round(before["mem-allocated-bytes"] * memory),
            "iteration-time": np.round(before["iteration-time"] * time * (1 + 0.01 * rng.standard_normal(size)), 5),
        }
        return golden_text(state[path])

    def some(count: int) -> list[str]:
        return [paths[i] for i in rng.choice(len(paths), count, replace=False)]

    yield "Add goldens", {path: golden_text(state[path]) for path in paths}, {}
    while True:
        yield "Refresh some goldens", {path: rerun(path) for path in some(5)}, {}
        yield "Move to another image", {path: rerun(path, image=True) for path in paths}, {}
        fresh = some(6)
        files = {path: rerun(path) for path in fresh}
        harm = dict(zip(fresh, ("truncated", "new-nan", "no-bytes", "no-metric"), strict=False))
        files |= {path: _harmed(kind, state[path]) for path, kind in harm.items()}
        yield "Refresh the failing tests", files, harm
        # What was wrong is recorded anew, as it was done in history; the old side is no use to compare with then.
        yield "Repair goldens", {path: rerun(path) for path in fresh}, {}


def _harmed(kind: str, values: dict[str, np.ndarray]) -> str:
    steps = len(values["lm loss"])
    if kind == "new-nan":
        loss = values["lm loss"].copy()
        loss[steps // 2 :] = np.nan
        return golden_text({**values, "lm loss": loss}).replace("NaN", '"nan"')
    return {"truncated": golden_text(values, stop=steps // 4), "no-bytes": "", "no-metric": "{}"}[kind]


def _pytorch(rng: np.random.Generator) -> Iterator[Refresh]:
    suites = [f"inductor_{suite}_{phase}" for suite in ("huggingface", "timm") for phase in ("training", "inference")]
    tables: dict[str, dict[str, list[str | int]]] = {
        f"{DYNAMO}/ci_expected_accuracy/{folder}{suite}.csv": {
            f"model_{number:02d}": ["pass" if number % 7 else "eager_fail_to_run", number % 5] for number in range(40)
        }
        for suite in suites
        for folder in ("", "rocm/")
    }
    counts = {f"benchmark_{number}": 3_000_000_000 + 17_000_000 * number for number in range(20)}
    budget = f"{DYNAMO}/pr_time_benchmarks/expected_results.csv"

    def written(path: str) -> str:
        # Rows are padded, so that two pull requests do not meet in one line.
        if path == budget:
            rows = [f"{name},compile_time_instruction_count,{count},0.1" for name, count in counts.items()]
        else:
            rows = ["name,accuracy,graph_breaks", *(f"{name},{a},{g}" for name, (a, g) in tables[path].items())]
        return "\n\n\n\n".join(rows) + "\n\n\n\n"

    def edited(status: str) -> str:
        """A table, one model of which has another status now."""
        wanted = "fail_accuracy" if status == "pass" else "pass"
        found = [(path, row) for path, rows in tables.items() for row in rows.values() if row[0] == wanted]
        path, row = found[rng.integers(len(found))]
        row[0] = status
        return path

    yield "Add tables", {path: written(path) for path in (*tables, budget)}, {}
    number = 0
    while True:
        number += 1
        counts = {name: int(count * (1 + 0.002 * rng.standard_normal())) for name, count in counts.items()}
        yield "Update instruction counts", {budget: written(budget)}, {}
        path = str(rng.choice(sorted(tables)))
        tables[path][f"added_{number}"] = ["pass", 0]
        yield "Add a model", {path: written(path)}, {}
        del tables[path][next(iter(tables[path]))]
        yield "Remove a model", {path: written(path)}, {path: "row-removed"}
        path = edited("fail_accuracy")
        yield "Expect a failure", {path: written(path)}, {path: "status-worse"}
        path = edited("pass")
        yield "Expect a pass", {path: written(path)}, {}
