"""The map in ARCHITECTURE.md: who may import whom, and how large a room may grow. Every test lists all offenders."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import karat

pytestmark = pytest.mark.xdist_group("arrows")  # the trees are parsed once

ROOT = Path(karat.__file__).parent

# Each room may import the rooms named here, itself, and findings; nobody else.
ALLOWED: dict[str, set[str]] = {
    "__init__": {"api", "bundles", "captures", "compare", "diffs", "goldens", "gradients", "optests", "tensors"},
    "__main__": {"cli"},
    "api": {
        "changepoints",
        "checks",
        "compare",
        "config",
        "diffs",
        "goldens",
        "hunts",
        "refreshes",
        "replays",
        "settings",
        "sources",
        "system",
    },
    "audits": {"bundles", "compare", "diffs", "goldens", "report", "settings", "store", "system"},
    "bundles": {"report", "system", "tensors"},
    "captures": {"bundles", "config", "report", "settings", "snapshots", "system", "tensors"},
    "changepoints": {"goldens", "report", "system"},
    "checks": {"compare", "goldens", "report", "runs", "settings", "system"},
    "cli": {
        "api",
        "audits",
        "changepoints",
        "checks",
        "config",
        "diffs",
        "goldens",
        "hunts",
        "net",
        "ops",
        "policy",
        "presets",
        "refreshes",
        "replays",
        "report",
        "reviews",
        "runs",
        "sample",
        "schemas",
        "settings",
        "setups",
        "sources",
        "store",
        "system",
    },
    "compare": {"goldens", "report", "tensors"},
    "config": {"compare", "goldens", "presets", "settings", "system"},
    "diffs": {"bundles", "compare", "goldens", "report", "store", "system", "tensors"},
    "engines": {"report", "system"},
    "findings": set(),
    "goldens": {"system"},
    "gradients": {"report", "tensors"},
    "hunts": {"changepoints", "checks", "config", "engines", "net", "report", "system"},
    "integrations": {"captures"},
    "net": {"system"},
    "ops": {"gradients", "optests", "replays", "report", "system", "tensors"},
    "optests": {"gradients", "policy"},
    "policy": {"config", "goldens", "gradients", "net", "report", "settings", "system"},
    "presets": {"compare", "policy", "settings", "system"},
    "refreshes": {"compare", "diffs", "goldens", "report", "settings", "sources", "system"},
    "replays": {"bundles", "goldens", "report", "store", "system", "tensors"},
    "report": {"system"},
    "reviews": {"bundles", "compare", "config", "diffs", "goldens", "refreshes", "report", "system", "tensors"},
    "runs": {"compare", "goldens", "report", "settings", "system"},
    "sample": set(),
    "schemas": set(),
    "setups": {"config", "engines", "goldens", "hunts", "net", "report", "system"},
    "settings": {"goldens"},
    "snapshots": {
        "bundles",
        "captures",
        "checks",
        "compare",
        "config",
        "goldens",
        "report",
        "runs",
        "system",
        "tensors",
    },
    "sources": {"net", "settings", "system"},
    "store": {"bundles", "goldens", "net", "report", "system", "tensors"},
    "system": set(),
    "tensors": {"report", "system"},
}
PURE = ("compare",)
IMPURE = {"os", "io", "subprocess", "socket", "pathlib", "time", "random", "sys", "tempfile", "shutil"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(tree: ast.Module) -> set[str]:
    """Every module named in an import anywhere in the file, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
            if node.module == "karat":
                found |= {f"karat.{alias.name}" for alias in node.names}
    return found


def arrows(tree: ast.Module) -> set[str]:
    """The rooms of karat that a module imports."""
    names = {name.split(".")[1] for name in imports(tree) if name.startswith("karat.")}
    return {name for name in names if not name.startswith("__")}


def test_rooms_import_only_what_the_design_allows() -> None:
    wrong = [
        f"{shown(path)}: {there}"
        for path, tree in modules().items()
        for there in sorted(arrows(tree) - ALLOWED.get(room(path), set()) - {room(path), "findings"})
    ]
    relative = [shown(path) for path, tree in modules().items() if "." in "".join(n[:1] for n in imports(tree))]
    drawn: dict[str, set[str]] = {here: set() for here in ALLOWED}
    for path, tree in modules().items():
        drawn.setdefault(room(path), set()).update(arrows(tree))
    unused = [f"{here}: {there}" for here, rooms in ALLOWED.items() for there in rooms - drawn[here]]
    assert (wrong, relative, unused) == ([], [], [])


def test_pure_rooms_have_no_io_and_no_clock() -> None:
    offenders = []
    looked = 0
    for path, tree in modules().items():
        said = ast.get_docstring(tree) or ""
        if room(path) not in PURE and "Pure." not in said and "Pure:" not in said:
            continue
        looked += 1
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        calls = {function.id for function in called if isinstance(function, ast.Name)}
        # A day may be handed in; it is not asked for.
        methods = {function.attr for function in called if isinstance(function, ast.Attribute)}
        bad = (
            {name.split(".")[0] for name in imports(tree)} & IMPURE
            | calls & {"open", "print", "input", "eval", "exec"}
            | methods & {"today", "now", "utcnow"}
        )
        offenders += [f"{shown(path)}: {name}" for name in sorted(bad)]
    assert looked > 20
    assert offenders == []


def test_no_pickle_no_eval_no_shell() -> None:
    offenders = []
    for path, tree in modules().items():
        bad = {name.split(".")[0] for name in imports(tree)} & {"pickle", "marshal", "shelve", "dill"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    bad |= {node.func.id} & {"eval", "exec", "compile"}
                bad |= {keyword.arg or "" for keyword in node.keywords} & {"shell"}
        offenders += [f"{shown(path)}: {name}" for name in sorted(bad)]
    assert offenders == []


def test_modules_and_folders_stay_small_and_have_telling_names() -> None:
    large = [
        f"{shown(path)}: {lines} lines"
        for path in modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 640
    ]
    folders = Counter(path.parent for path in modules() if path.name != "__init__.py")
    wide = [f"{shown(folder)}: {count} modules" for folder, count in folders.items() if count > 15]
    vague = [shown(path) for path in modules() if path.stem in VAGUE]
    assert (large, wide, vague) == ([], [], [])
