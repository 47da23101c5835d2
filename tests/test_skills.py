"""Skills for coding agents: every command in them is run, on a small repository that needs it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from factories.forge import Forge
from factories.operators import OPERATORS
from factories.pages import Shell, blocks
from factories.repositories import Repository, curves, golden_path, golden_text, moved

ROOT = Path(__file__).parents[1]
SKILLS = {path.parent.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("skills/*/SKILL.md"))}
REPO = "owner/name"
TEST = "import numpy as np\n\n\ndef test_double(golden):\n    x = np.ones(3)\n    golden.check(x + x, 2 * x, inputs=(x,), program=b'x')\n"


def commands(skill: str) -> list[str]:
    return [block.text.strip() for block in blocks(SKILLS[skill]) if block.language == "bash"]


def performed(skill: str, shell: Shell, said: Mapping[str, str], codes: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Runs every command; each ends as `codes` says of its beginning, else with 0. Command → its JSON."""
    found: dict[str, dict[str, Any]] = {}
    for command in commands(skill):
        # Groups are called as the report before says, the gravest first.
        causes = [cause["id"] for report in found.values() for cause in report.get("causes", ())]
        known = {**said, **dict(zip(("REJECTED", "ACCEPTED"), causes[:1] + causes[-1:], strict=False))}
        text = command
        for name in re.findall(r"<([A-Z_/:]+)>", command):
            text = text.replace(f"<{name}>", known[name])
        assert "\n" not in text, "one command per step"
        code, printed = shell.run(f"{text} 2>errors.txt")
        wanted = next((code for start, code in codes.items() if text.startswith(start)), 0)
        errors = (shell.here / "errors.txt").read_text(encoding="utf-8")
        assert code == wanted, f"{text}\n{printed}\n{errors}"
        if "--json -" in text:
            (line,) = printed.splitlines()
            found[text] = json.loads(line)
            assert found[text].get("exit_code", code) == code
    return found


def test_there_are_four_and_each_says_what_to_ask() -> None:
    assert list(SKILLS) == [
        "capture-goldens",
        "investigate-regression",
        "require-gradient-check",
        "update-golden-values",
    ]
    for name, text in SKILLS.items():
        assert re.match(rf"---\nname: {name}\ndescription: .{{60,}}\n---\n", text), name
        assert "## Ask first" in text
        assert len(commands(name)) >= 5


@pytest.mark.parametrize("name", ["AGENTS.md", "llms.txt"])
def test_every_skill_is_named(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "skills/" in text
    assert name == "AGENTS.md" or all(f"skills/{skill}/SKILL.md" in text for skill in SKILLS)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_scope_is_never_assumed() -> None:
    """What the document says must be asked: karat refuses what a skill would otherwise make up."""
    refreshes = [line for line in commands("update-golden-values") if line.startswith("karat refresh --source")]
    assert [line.count("--scope <SCOPE>") for line in refreshes] == [1] * len(refreshes)
    assert not any("--scope only-failing" in line or "--scope all" in line for line in commands("update-golden-values"))


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["only-failing", "all"])
def test_update_golden_values(repository: Repository, forge: Forge, tmp_path: Path, scope: str) -> None:
    for case in ("a", "b", "c"):
        repository.write(golden_path(case), golden_text(curves(1)))
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    repository.write(golden_path("a"), golden_text(curves(9)))  # somebody's edit, to be discarded
    run = forge.github.run(REPO, conclusion="failure")
    noise = {name: moved(curve, 1 + 1e-7) if name == "lm loss" else curve for name, curve in curves(1).items()}
    for case, conclusion, values in (("a", "failure", curves(2)), ("b", "success", curves(2)), ("c", "failure", noise)):
        run.job(f"gpt/{case} - dev", conclusion=conclusion, labels=["dgx-h100"])
        run.artifact(f"logs-{case}-{run.id}-a1b2", {"golden_values_dev_dgx_h100.json": golden_text(values)})
    shell = Shell(
        tmp_path / "shell",
        GITHUB_API_URL=forge.github_url,
        GITHUB_TOKEN=forge.github.token,
        KARAT_CACHE_DIR=str(tmp_path / "cache"),
    )
    shell.here = repository.root
    said = {"OWNER/NAME": REPO, "RUN_ID": str(run.id), "SCOPE": scope}
    found = performed("update-golden-values", shell, said, {})
    refreshed = next(report for command, report in found.items() if "--scope" in command and "--dry-run" not in command)
    assert refreshed["totals"]["written"] == (2 if scope == "only-failing" else 3)
    # The drift was rejected, the noise accepted.
    staged = repository.git("diff", "--cached", "--name-only").split()
    assert [name for name in staged if not name.endswith("lock.json")] == [golden_path("c")]
    assert (repository.root / golden_path("a")).read_text(encoding="utf-8") == golden_text(curves(1))
    assert forge.github.token not in json.dumps(found) + (repository.root / "pr.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_investigate_regression(repository: Repository, tmp_path: Path) -> None:
    for number in range(1, 17):
        cost = 106 if number >= 9 else 100
        repository.write("bench.py", f"import random\nprint('cost', {cost} * random.gauss(1, 0.002))\n")
        repository.write(f"logs/2026-09-{number:02}.log", f"cost {cost + number % 3 / 10}\n")
        repository.commit()
    shell = Shell(tmp_path / "shell")
    shell.here = repository.root
    said = {
        "GLOB": "logs/*.log",
        "REGEX": "cost ([0-9.]+)",
        "DIRECTION": "lower",
        "OLD": "HEAD~15",
        "NEW": "HEAD",
        "COMMAND": "python bench.py",
    }
    codes = {"karat hunt --commits HEAD~15..HEAD --value 'cost ([0-9.]+)' --better lower --dry-run": 0}
    codes |= {"karat changes": 1, "karat hunt --commits": 1, "karat hunt report": 1}
    performed("investigate-regression", shell, said, codes)
    assert "regression" in (repository.root / "issue.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_require_gradient_check(repository: Repository, tmp_path: Path) -> None:
    for name in ("ops.py", "test_softmax.py", "test_scale.py"):
        repository.write(f"op_tests/{name}" if name.startswith("test") else name, OPERATORS[name])
    repository.write("karat.toml", '[policy]\nnamespaces = ["ops"]\n\n[policy.approvers]\ngradient = ["@ann"]\n')
    repository.write("conftest.py", "")
    repository.commit()
    repository.write("op_tests/README.md", "One file per operator.\n")
    repository.commit()
    shell = Shell(tmp_path / "shell")
    shell.here = repository.root
    performed("require-gradient-check", shell, {"TESTS": "op_tests", "BASE": "main~1"}, {})


@pytest.mark.slow
def test_capture_goldens(repository: Repository, tmp_path: Path) -> None:
    repository.write("models/test_double.py", TEST)
    repository.write("phone.py", "def run(program, inputs):\n    return 2 * inputs[0]\n")
    shell = Shell(tmp_path / "shell")
    shell.here = repository.root
    said = {"TESTS": "models", "NAME": "models/nightly", "STORE": "store", "MODULE:FUNCTION": "phone:run"}
    found = performed("capture-goldens", shell, said, {})
    assert len(found) == 5


def test_a_skill_that_is_copied_elsewhere_stands_alone() -> None:
    checks: list[Callable[[str], bool]] = [lambda text: "](" not in text, lambda text: len(text.splitlines()) < 120]
    assert [name for name, text in SKILLS.items() if not all(check(text) for check in checks)] == []
