"""No report advises to take a change: `next:` is what to look at, "to take it" stands apart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import karat
from karat.findings import warn
from karat.report.json import finding_json
from karat.report.terminal import finding_lines
from karat.system.command import Command, takes

ROOT = Path(karat.__file__).parent
# Where such a command is made, each said as "to take it", "to create it", or under a key of its own.
APART = {
    "cli/goldens/stage.py": "the examples of the help",
    "runs/record.py": "Recorded.take",
    "checks/check.py": "Checked.refresh",
    "reviews/report.py": "to take it",
    "snapshots/session.py": "to create it, to review it",
    "system/command.py": "the rule",
}


@pytest.mark.parametrize(
    "command",
    [
        "git add -- golden.json",
        "git commit -m x",
        "karat stage",
        "karat accept '*'",
        "karat record run.json -o golden.json",
        "karat refresh --accept-incomplete",
        "pytest test_x.py --karat-update",
        "karat policy gate evidence --add-to-baseline relu",
    ],
)
def test_a_command_that_takes_a_change_is_known_and_never_the_next_one(command: str) -> None:
    assert takes(command)
    finding = warn("value-drift", "moved", next=command)
    assert finding_json(finding)["next"] is None
    assert ("     to take it: ", "dim") in [piece for line in finding_lines(finding) for piece in line]


@pytest.mark.parametrize(
    "command",
    [
        "karat diff --only a.json",
        "karat stage --help",
        "git restore -- a",
        "karat record --help",
        "git log -- add",
        "karat record a -o b --dry-run",
    ],
)
def test_a_command_that_only_looks_or_drops_does_not(command: str) -> None:
    assert not takes(command)


def _words(call: ast.Call) -> str:
    """A `Command(…)` of literals as text, `…` for the rest."""
    return " ".join(a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else "…" for a in call.args)


def advised(tree: ast.AST) -> list[str]:
    """What stands behind `next=` and `next_command=`, and every `Command` of words."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in {"Command", "plus"}:
            found.append(_words(node))
        for keyword in node.keywords:
            if keyword.arg in {"next", "next_command", "advice", "again", "login"}:
                found += [
                    part.value
                    for part in ast.walk(keyword.value)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
    return found


def test_no_advice_in_the_sources_takes_a_change() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}: {words}"
        for path in ROOT.rglob("*.py")
        for words in advised(ast.parse(path.read_text(encoding="utf-8")))
        if takes(words) and str(path.relative_to(ROOT)) not in APART
    }
    assert wrong == set()


def test_the_scan_sees_what_it_is_for() -> None:
    text = 'fail("k", "m", next=f"karat stage {x}")\nerror(next_command=Command("git", "add", "--", name))'
    assert [takes(words) for words in advised(ast.parse(text))].count(True) >= 2
    assert str(Command("karat", "stage", "--reason", "a b")) == "karat stage --reason 'a b'"
