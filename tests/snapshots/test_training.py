"""The training loops of docs/snapshots.md, in torch and jax: from nothing to green to red to reviewed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import framework
from factories.pytest_runs import Suite
from factories.repositories import Repository

PAGE = (Path(__file__).parents[2] / "docs" / "snapshots.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library", "rate", "tensors"),
    [("tests/test_train.py", "torch", "lr=0.1", "weight"), ("tests/test_train_jax.py", "jax", "0.1 *", "weights")],
)
def test_a_training_loop_from_nothing_to_reviewed(
    repository: Repository, name: str, library: str, rate: str, tensors: str
) -> None:
    framework(library)
    suite = Suite(repository.root)
    text = EXAMPLES[name]
    assert len([line for line in text.partition("def ")[2].splitlines() if line.strip()]) <= 13
    suite.write(name, text)
    nothing = suite.run("-q")
    assert (nothing.code, "to create it: pytest" in nothing.out) == (1, True), nothing.out
    made = suite.run("-q", "--karat-update")
    assert made.code == 0, made.out
    repository.commit("goldens")
    green = suite.run("-q")
    assert green.code == 0, green.out
    suite.write(name, text.replace(rate, rate.replace("0.1", "0.12")))
    red = suite.run("-q")
    assert red.code == 1
    assert "the series 'loss' differs from the golden" in red.out
    assert "o golden, x now, * both" in red.out
    assert suite.run("-q", "--karat-update").code == 0
    diff = suite.python("-m", "karat", "diff")
    assert (diff.code, "loss.json" in diff.out, f"{tensors}-" in diff.out) == (1, True, True), diff.out
    summary = suite.python("-m", "karat", "summary")
    assert "loss.json" in summary.out
    review = suite.python("-m", "karat", "review")
    assert (review.code, "to take it:" in review.out) == (1, True), review.out
    assert suite.python("-m", "karat", "accept", "tests/**").code == 1, "what fails is not taken without a reason"
    taken = suite.python("-m", "karat", "accept", "tests/**", "--reason", "another rate")
    assert taken.code == 0, taken.out
    assert "loss.json" in repository.git("diff", "--cached", "--name-only")
    assert suite.python("-m", "karat", "review").code == 0
    assert suite.run("-q").code == 0


def test_every_option_is_on_the_page(tmp_path: Path) -> None:
    options = set(re.findall(r"--karat-(?:update|repeat)[a-z-]*", Suite(tmp_path / "p").run("--help").out))
    assert options == {"--karat-update", "--karat-update-in-ci", "--karat-repeat"}
    assert [option for option in options if f"`{option}" not in PAGE] == []
