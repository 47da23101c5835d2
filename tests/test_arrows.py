"""The design's arrows: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import karat

ROOT = Path(karat.__file__).parent

# Each room may import the rooms after it in its line, itself, and findings; nobody else.
ALLOWED: dict[str, set[str]] = {
    "findings": set(),
    "goldens": set(),
    "compare": {"goldens", "tensors"},
    "report": {"compare", "goldens", "tensors"},
    "sources": set(),
    "runs": {"goldens", "report"},
    "tensors": set(),
    # Archives and buckets of strangers are opened the way sources do.
    "bundles": {"sources", "tensors"},
    "captures": {"bundles", "config", "goldens", "replay", "tensors"},
    "store": {"bundles", "goldens", "report", "sources", "tensors"},
    "replay": {"bundles", "goldens", "report", "store", "tensors"},
    "gradients": {"tensors"},
    "policy": {"config", "goldens", "gradients", "report", "sources"},
    "optests": {"config", "gradients", "policy"},
    "changes": {"goldens", "report", "runs"},
    "engines": set(),
    "hunt": {"changes", "check", "config", "engines", "goldens", "report", "runs", "sources"},
    "diff": {"bundles", "compare", "goldens", "store", "tensors"},
    "check": {"compare", "diff", "goldens", "report", "runs"},
    "refresh": {"compare", "diff", "goldens", "report", "sources"},
    # Of other rooms, config only knows what may be written into karat.toml.
    "config": {"bundles", "check", "compare", "goldens", "policy", "refresh", "runs", "store"},
    "demo": set(),
    "cli": {
        "bundles",
        "changes",
        "check",
        "compare",
        "config",
        "demo",
        "diff",
        "engines",
        "goldens",
        "hunt",
        "policy",
        "refresh",
        "replay",
        "report",
        "runs",
        "sources",
        "store",
    },
    "__init__": {
        "bundles",
        "captures",
        "compare",
        "diff",
        "goldens",
        "gradients",
        "optests",
        "tensors",
    },
    "__main__": {"cli"},
}
PURE = ("compare",)
IMPURE = {
    "os",
    "io",
    "subprocess",
    "socket",
    "pathlib",
    "time",
    "random",
    "sys",
    "tempfile",
    "shutil",
}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Every module named in an import anywhere in the file, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows"
            found.add(node.module or "")
            if node.module == "karat":
                found |= {f"karat.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_import_only_what_the_design_allows(path: Path) -> None:
    here = room(path)
    for name in imports(path):
        if name == "karat" or not name.startswith("karat."):
            continue
        there = name.split(".")[1]
        if there.startswith("__"):  # karat.__version__
            continue
        assert there in ALLOWED[here] | {here, "findings"}, f"{here} must not import {name}"


def test_every_arrow_is_used() -> None:
    drawn: dict[str, set[str]] = {here: set() for here in ALLOWED}
    for path in modules():
        drawn[room(path)] |= {name.split(".")[1] for name in imports(path) if "karat." in name}
    assert [
        (here, arrows - drawn[here]) for here, arrows in ALLOWED.items() if arrows - drawn[here]
    ] == []


def is_pure(path: Path) -> bool:
    """By its room, or by its own word."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return room(path) in PURE or "Pure." in said or "Pure:" in said


@pytest.mark.parametrize("path", [p for p in modules() if is_pure(p)], ids=lambda p: p.name)
def test_pure_rooms_have_no_io_and_no_clock(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & IMPURE
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = {function.id for function in called if isinstance(function, ast.Name)}
    assert not calls & {"open", "print", "input", "eval", "exec"}
    # A day may be handed in; it is not asked for.
    methods = {function.attr for function in called if isinstance(function, ast.Attribute)}
    assert not methods & {"today", "now", "utcnow"}


def test_every_room_is_in_the_table() -> None:
    assert {room(path) for path in modules()} <= ALLOWED.keys()


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_pickle_no_eval_no_shell(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name.split(".")[0] for name in imports(path)} & {
        "pickle",
        "marshal",
        "shelve",
        "dill",
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert not (
                isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec", "compile"}
            )
            assert "shell" not in {keyword.arg for keyword in node.keywords}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small_and_have_telling_names(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
