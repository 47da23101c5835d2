"""A worker: `python -m karat.ops.worker`, a process that checks one operator after the other.

It is a process of its own, so that an operator that crashes, hangs or eats the memory costs itself and nothing else. What
it has found so far is told sample by sample.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from karat.findings import KaratError
from karat.gradients.adapters.calls import Leaf, flatten
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.deep.boundary import arguments_at
from karat.gradients.gradcheck import gradcheck
from karat.gradients.problem import error_line
from karat.gradients.report import GradComparison, GradReport, GradVerdict, Level
from karat.ops.catalogue import BUILT_IN, Operator, Sample, load
from karat.ops.script import TOLERANCES, Fault, pairs, scripts
from karat.replays.processes import receive, send

COLUMNS = ("reverse", "forward", "composed", "orders", "dtypes", "layouts", "laws")
MISSING = "not supported"
OUTCOMES = ("FAIL", "unverified", "known", "INACCURATE", "INCONCLUSIVE", "PASS", MISSING)
"""What a column may say, the gravest first."""
_LAYOUTS = frozenset({"non-contiguous", "non-contiguous-cotangent", "expanded-cotangent"})
_DOUBLE = frozenset({"float64", "complex128"})
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "quick": (),
    "default": ("float32",),
    "deep": ("float32", "bfloat16", "float16"),
}
_NOTHING = ("there is no verified double gradient", "the gradient underflows")
"""Of a low precision whose double run is not PASS, which has a cell of its own; or that has no numbers for the sample."""
_ABSENT = re.compile(
    r"not implemented|NotImplementedError|not supported|unsupported|no second-order gradient|does not support"
    r"|only supports?|does not work for|is not registered|no double grad|cannot be used in train program"
    r"|expected sparse coordinate tensor layout",
    re.IGNORECASE,
)


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know before its first operator."""

    catalogue: str
    level: Level = "default"
    samples: int = 8
    seed: int = 0
    memory: int = 8  # GB that the process may have beyond what it has after its imports
    peer: bool = False  # also take the time of the framework's own quick check


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to be audited, or why nothing is."""

    operators: dict[str, str] = {}  # name → why it is not audited; empty for one that is
    versions: dict[str, str] = {}
    problem: str = ""
    next_command: str = ""
    exit_code: int = 0


class Cell(msgspec.Struct, frozen=True):
    """What a column says of one sample."""

    outcome: str
    reason: str = ""


Suspect = tuple[Fault, tuple[str, ...]]  # and the scripts that may show it


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of an operator, or the end: `last` says how many samples there are."""

    sample: str = ""
    cells: dict[str, Cell] = {}
    suspects: tuple[Suspect, ...] = ()
    problem: str = ""  # why the sample could not be checked
    seconds: float = 0.0
    peer_seconds: float = 0.0
    last: int | None = None


def main() -> int:
    """Serve until the parent closes the pipe."""
    # Stdin and stdout under other numbers, so that code that prints or reads does not disturb the conversation.
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    setup = receive(orders, WorkerSetup)
    if setup is None:
        return 0
    if setup.catalogue not in BUILT_IN:
        sys.path.append("")  # somebody's module may lie here; what a framework looks for in vain must not
    try:
        known = load(setup.catalogue)
    except KaratError as error:
        said = Listed(problem=str(error), next_command=error.next_command, exit_code=int(error.exit_code))
        send(answers, said)
        return 0
    with suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path of anybody's
            now = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (now + setup.memory * 10**9, resource.RLIM_INFINITY))
    modules = {one.framework: sys.modules.get(one.framework) for one in known.values()}
    versions = {name: str(getattr(module, "__version__", "")) for name, module in modules.items() if module}
    send(answers, Listed(operators={name: one.skip for name, one in known.items()}, versions=versions))
    while (name := receive(orders, str)) is not None:
        for answer in checked(known[name], setup):
            send(answers, answer)
    return 0


def checked(operator: Operator, setup: WorkerSetup) -> Iterator[Checked]:
    """Every chosen sample, and the end."""
    try:
        every = list(operator.samples(setup.seed))
    except Exception as error:  # noqa: BLE001 - samples are others' code
        yield Checked(problem=f"its samples cannot be drawn: {error_line(error)}")
        every = []
    chosen = [sample for sample in every if _has_elements(sample)]
    if setup.samples < len(chosen) and setup.samples:
        # Spread over all of them: neighbours are alike.
        chosen = [chosen[n * len(chosen) // setup.samples] for n in range(setup.samples)]
    for sample in chosen:
        started = time.perf_counter()
        try:
            report = gradcheck(
                sample.call,
                sample.inputs,
                **_words(operator, sample),
                level=setup.level,
                order=1 if setup.level == "quick" else 2,
                dtypes=_DTYPES[setup.level],
                identity=f"{operator.name} {sample.description}",
            )
        except Exception as error:  # noqa: BLE001 - an operator may raise anything
            yield Checked(sample=sample.description, problem=error_line(error))
            continue
        taken = time.perf_counter() - started
        yield Checked(
            sample=sample.description,
            cells=_cells(report),
            suspects=tuple((one, _scripts(operator, sample, one, report.seed)) for one in _faults(report, sample)),
            seconds=taken,
            peer_seconds=_peer(operator, sample) if setup.peer else 0.0,
        )
    yield Checked(last=len(every))


def _words(operator: Operator, sample: Sample) -> dict[str, Any]:
    """What a check and a script are told alike."""
    return {
        "op": operator.name,
        "names": None if isinstance(sample.inputs, Mapping) else [f"x{n}" for n in range(len(sample.inputs))],
        "kwargs": sample.kwargs,
        "wrt": sample.wrt,
        "backward": sample.backward,
        "framework": operator.framework,
    }


def _scripts(operator: Operator, sample: Sample, fault: Fault, seed: int) -> tuple[str, ...]:
    """What may show a fault; whatever stands in the way of a script costs that script alone."""
    try:
        if fault.at:
            problem = open_problem(sample.call, sample.inputs, **_words(operator, sample))
            args, named = arguments_at(problem, seed, fault.at)
            inputs = tuple(args) or {key: named.pop(key) for key in sample.inputs}
            source = sample.source or sample.rebuild.rpartition("\ninputs, kwargs = ")[0]
            sample = replace(sample, inputs=inputs, kwargs=named, source=source, rebuild="")
        return tuple(scripts(operator.framework, sample, fault))
    except Exception:  # noqa: BLE001 - values of strangers are written out
        return ()


def _has_elements(sample: Sample) -> bool:
    """Whether there is a number to differentiate by."""
    chosen = [value for key, value in pairs(sample).items() if sample.wrt is None or key in sample.wrt]
    leaves: list[Leaf] = []
    flatten(chosen, lambda value: hasattr(value, "shape"), "", leaves)
    return any(0 not in leaf.value.shape for leaf in leaves)


def _column(one: GradComparison) -> str:
    if one.dtype not in _DOUBLE:
        return "dtypes"
    if one.mode not in {"reverse", "forward"}:
        return "composed"
    return "orders" if one.order > 1 else one.mode


def _cells(report: GradReport) -> dict[str, Cell]:
    """Column → the worst that was found there; what has no elements says nothing."""
    flat = any(note.startswith("the second derivative is zero") for note in report.notes)
    cells = [("orders", Cell("PASS"))] if flat else []
    for one in report.comparisons:
        outcome, vacuous = one.verdict.value, one.verdict is GradVerdict.PASS and one.vacuous
        if one.reason.startswith(_NOTHING) or "no elements" in one.reason:
            continue
        if one.verdict is not GradVerdict.PASS and _ABSENT.search(one.reason):
            outcome = MISSING
        elif one.verdict is GradVerdict.FAIL and _slight(one):
            outcome = GradVerdict.INACCURATE.value
        cells.append((_column(one), Cell("INCONCLUSIVE" if vacuous else outcome, one.reason)))
    for law in report.properties:
        refused = law.verdict is GradVerdict.FAIL and _ABSENT.search(law.detail)
        if law.verdict is not GradVerdict.INCONCLUSIVE and not refused:
            cells.append((_law_column(report, law.name), Cell(law.verdict.value, f"{law.name}: {law.detail}")))
    found: dict[str, Cell] = {}
    for column, cell in cells:
        if column not in found or OUTCOMES.index(cell.outcome) < OUTCOMES.index(found[column].outcome):
            found[column] = cell
    return found


def _slight(one: GradComparison) -> bool:
    """Whether it is less than a script can tell from what rounding does to a sum of float32 numbers."""
    return one.dtype == "float32" and one.order == 1 and one.error < TOLERANCES["float32"][0]


def _law_column(report: GradReport, law: str) -> str:
    if law == "forward-reverse":
        # Which of the two modes is wrong, differences have said.
        wrong = {_column(one) for one in report.comparisons if one.verdict is GradVerdict.FAIL}
        return "reverse" if "reverse" in wrong and "forward" not in wrong else "forward"
    return "layouts" if law in _LAYOUTS else "laws"


def _faults(report: GradReport, sample: Sample) -> Iterator[Fault]:
    """One for each column, the gravest first: how to show it."""
    elements = {(one.input, one.output, one.dtype): one.coordinate for one in report.diagnoses}
    for one in report.comparisons:
        if one.verdict is not GradVerdict.FAIL or _ABSENT.search(one.reason) or _slight(one):
            continue
        # `grad(x)`: of all outputs together; `tangent(out)`: of that output.
        of_gradient, out = one.output.startswith("grad("), one.output.removeprefix("tangent(").removesuffix(")")
        element = elements.get((one.input, one.output, one.dtype)) if one.order == 1 else None
        yield Fault(
            column=_column(one),
            sample=sample.description,
            input=_path(one.input, by_order=not isinstance(sample.inputs, Mapping)),
            output=None if of_gradient else _path(out.removeprefix("out").removeprefix(".")),
            modes=tuple(one.mode.split("-over-")) if "-over-" in one.mode else (one.mode,) * one.order,
            dtype="float64" if one.dtype in _DOUBLE else one.dtype,
            element=element,
            at=one.at,
            reason=f"{one.input} → {one.output}{f' at {one.at}' if one.at else ''}: {one.reason}",
        )
    for law in report.properties:
        if law.verdict is GradVerdict.FAIL and not _ABSENT.search(law.detail):
            yield Fault(
                column=_law_column(report, law.name),
                sample=sample.description,
                law=law.name,
                modes=("forward",) if law.name == "forward-reverse" else ("reverse",),
                reason=f"{law.name}: {law.detail}",
            )


def _path(name: str, *, by_order: bool = False) -> tuple[int | str, ...]:
    parts = [part for part in name.split(".") if part]
    if by_order:
        parts[0] = parts[0].removeprefix("x")
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _peer(operator: Operator, sample: Sample) -> float:
    """Seconds that the framework's own quick check takes for the same sample; 0 where it has none."""
    if operator.framework != "torch" or isinstance(sample.inputs, Mapping):
        return 0.0
    import torch
    from torch.utils import _pytree as tree

    wanted = range(len(sample.inputs)) if sample.wrt is None else sample.wrt
    leaf = lambda a: a.clone().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a  # noqa: E731
    inputs = [tree.tree_map(leaf, one) if n in wanted else one for n, one in enumerate(sample.inputs)]
    flat, form = tree.tree_flatten(inputs)
    started = time.perf_counter()
    with suppress(Exception):  # its verdict is not asked for
        torch.autograd.gradcheck(
            lambda *x: sample.call(*tree.tree_unflatten(x, form), **sample.kwargs), flat, fast_mode=True
        )
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
