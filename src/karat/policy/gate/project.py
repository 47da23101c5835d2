"""A project's policy, read: its exemptions, its baseline (and that rewritten), and the operators of its namespaces.

Operators are found by importing Python modules in a separate process, this module run as
`python -m karat.policy.gate.project ANSWER MODULE…`: a module may print, hang, crash or exit, and that costs its own
answer and nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, NewType, get_origin

import msgspec
from msgspec import structs

from karat.config import Config
from karat.findings import Finding, UsageError, fail
from karat.policy.evidence import Merged
from karat.policy.exemptions import ByOp, read
from karat.policy.gate.decision import Policy
from karat.policy.gate.lists import BASELINE, OpBaseline, judge_ops, rewrite
from karat.policy.tested import name_of, reached
from karat.system.command import Command
from karat.system.processes import end_group

SECONDS = 300.0  # How long importing all namespaces may take.


class Walked(msgspec.Struct, frozen=True, kw_only=True):
    """What importing the namespaces gave; the other process writes it down, all but the findings."""

    ops: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator, by its shortest name → its other names."""
    functions: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator → what it is made of, by name."""
    errors: dict[str, str] = msgspec.field(default_factory=dict)  # Module → why it could not be imported.
    findings: tuple[Finding, ...] = ()


def walk(modules: Sequence[str], *, folder: Path, exclude: Sequence[str] = (), seconds: float = SECONDS) -> Walked:
    """The public callables of modules, by qualified name; `folder` is where Python is started."""
    if not modules:
        return Walked()
    with tempfile.TemporaryDirectory(prefix="karat-") as room:
        answer, log = Path(room) / "answer.json", Path(room) / "log.txt"
        words = [sys.executable, "-m", "karat.policy.gate.project", str(answer), *modules]
        with log.open("wb") as out:
            child = subprocess.Popen(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = child.wait(seconds)
                status = f"it ended with {code}" if code >= 0 else f"it was killed by signal {-code}"
            except BaseException as error:
                # Not reaped yet, so the number is still its own; whatever it started ends with it.
                end_group(child)
                child.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                status = f"it did not finish within {seconds:g} s"
        output = log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        try:
            found = msgspec.json.decode(answer.read_bytes(), type=Walked)
        except (OSError, msgspec.DecodeError):
            why = f"{status}{f': {output[-1]}' if output else ''}"
            return Walked(findings=(_cannot(", ".join(modules), why, modules[0]),))
    ops = [op for op in found.ops if not any(fnmatchcase(op, glob) for glob in exclude)]
    empty = [one for one in modules if not any(op.startswith(f"{one}.") for op in ops)]
    errors = found.errors or dict.fromkeys(empty, "it has no public callables, or all are excluded")
    return Walked(
        ops={op: found.ops[op] for op in sorted(ops)},
        functions=found.functions,
        findings=tuple(_cannot(module, why, module) for module, why in sorted(errors.items())),
    )


def _cannot(modules: str, why: str, one: str) -> Finding:
    return fail(
        "cannot-read",
        f"the namespace {modules} cannot be read: {why}",
        metric=one,
        next=str(Command("python", "-c", f"import {one}")),
    )


def main(words: list[str]) -> int:
    """In the separate process: import modules and write down the operators they hold."""
    target, *modules = words
    found: dict[int, list[Any]] = {}
    errors: dict[str, str] = {}
    for root in modules:
        for module in _modules(root, errors):
            # Every operator once, with all of its names: packages offer again what their modules define.
            listed = getattr(module, "__all__", None)
            for name in map(str, dir(module) if listed is None else listed):
                full = f"{module.__name__}.{name}"
                try:
                    value = getattr(module, name, None)
                    # Classes are no operators, nor are names of types that can be called: `Array = list[float]`.
                    is_type = inspect.isclass(value) or get_origin(value) or isinstance(value, NewType)
                    wanted = callable(value) and not is_type and (listed is not None or _is_own(name, value, root))
                except BaseException as error:  # noqa: BLE001 - a lazy module imports when it is asked
                    errors[full] = _text(error)
                    continue
                if wanted:
                    # With itself: what a lazy module makes anew each time must not have the address of what is gone.
                    found.setdefault(id(value), [value]).append(full)
    ops, functions = {}, {}
    for value, *listed in found.values():
        name, *others = sorted(set(listed), key=lambda name: (name.count("."), name))
        ops[name] = tuple(others)
        # Of other packages an operator may be made of anything; only its own tell it from others.
        package = f"{name.partition('.')[0]}."
        own = [one for each in reached(value) if (one := name_of(each)) and one.startswith(package)]
        if name_of(value):
            functions[name] = (str(name_of(value)), *own)
    answer = Walked(ops=dict(sorted(ops.items())), functions=functions, errors=errors)
    Path(target).write_bytes(msgspec.json.encode(answer))
    return 0


def _modules(name: str, errors: dict[str, str]) -> Iterator[ModuleType]:
    """A module, and its public submodules."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a module is its mistake, not ours
        errors[name] = _text(error)
        return
    yield module
    for one in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not one.name.startswith("_"):
            yield from _modules(f"{name}.{one.name}", errors)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _is_own(name: str, value: object, root: str) -> bool:
    """Public, and not merely imported there: what is not to be found where it says it is from, was made here."""
    if name.startswith("_"):
        return False
    home = getattr(value, "__module__", None)
    if not isinstance(home, str) or home == root or home.startswith(f"{root}."):
        return True
    # A partial, a ufunc or `Function.apply` says where its class is from, and is not there.
    for path in {name, *(str(getattr(value, word, name)) for word in ("__name__", "__qualname__"))}:
        found: object = sys.modules.get(home)
        for part in path.split("."):
            found = getattr(found, part, None)
        # A method is made anew whenever it is asked for.
        if found is value or (inspect.ismethod(value) and found == value):
            return False
    return True


def policy_of(
    config: Config,
    folder: Path,
    *,
    today: date,
    complete: bool,
    again: Command | None = None,
    devices: tuple[str, ...] = (),
) -> Policy:
    """The policy that holds in a folder; namespaces are imported only where all operators are judged.

    `devices` replaces what the configuration says; `again` is the command as it was typed.
    """
    settings = config.policy
    root = config.file.parent if config.file else folder
    walked = walk(settings.namespaces if complete else (), folder=root, exclude=settings.exclude)
    return Policy(
        exemptions=read(root / settings.exemptions, settings.exemptions),
        devices=devices or settings.devices,
        today=today,
        complete=complete,
        findings=walked.findings,
        baseline=OpBaseline(
            ops=walked.ops,
            functions=walked.functions,
            sure=not walked.findings,
            root=root,
            path=settings.baseline,
            listed=BASELINE.read(root / settings.baseline, settings.baseline),
            again=again or Command("karat", "policy", "gate", "--complete"),
        ),
    )


def rewritten(policy: Policy, merged: Merged, added: Sequence[str], *, shorten: bool) -> Policy:
    """The same policy with a shorter baseline, or with more operators on it; the file has been written."""
    baseline = policy.baseline
    if added and not policy.complete:
        text = "--add-to-baseline needs --complete: part of a suite does not show what lacks evidence"
        raise UsageError(text, next_command=baseline.again.plus("--complete"))
    active = ByOp(one for one in policy.exemptions.entries if not one.has_expired(policy.today))
    found = [*judge_ops(merged, active, baseline, complete=policy.complete)]
    stale = {one.metric for one in found if one.kind == "baseline-stale" and shorten}
    lacking = [one.metric for one in found if one.kind == "new-op" and one.metric]
    listed = set(baseline.listed)
    ops = listed - stale
    for pattern in added:
        mine = {op for op in lacking if fnmatchcase(op, pattern)}
        if not mine:
            there = f"{len(baseline.ops):,} operators, {len(lacking):,} of them without evidence"
            raise UsageError(
                f"expected --add-to-baseline {pattern!r} to name operators without evidence, found none among {there}",
                next_command=baseline.again,
            )
        ops |= mine
    if ops != listed:
        rewrite(baseline.root / baseline.path, ops - listed, listed - ops)
    return structs.replace(policy, baseline=structs.replace(baseline, listed=tuple(sorted(ops))))


def journal_folders(named: Sequence[str], config: Config) -> list[Path]:
    """The folders with journals that were named, or the one that the configuration names."""
    if named or config.file is None:
        return [Path(word) for word in named or (config.policy.evidence,)]
    return [Path(os.path.relpath(config.file.parent / config.policy.evidence))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
