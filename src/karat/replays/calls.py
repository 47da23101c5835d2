"""The state of a process that a function may leave changed, put back before the next case.

A worker goes on from case to case, and what one call did to the process must not decide over the next: where
it stands, what its environment says, how its random numbers and its framework are set. Each case finds all of
that as it was before the first one.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import structs

from karat.bundles.cases import Case, cases
from karat.bundles.compare import compare_values
from karat.bundles.structure import flatten
from karat.findings import Finding, KaratError
from karat.replays.judge import (
    damaged,
    failed,
    measure_of,
    out_of_reach,
    placed,
    verify_expected,
    with_origin,
)
from karat.replays.outcome import Replayed, outcome_of
from karat.replays.processes import Hello, Job
from karat.store.place import open_word
from karat.tensors.tensor import CannotStore, Damaged, Tensor

_Put: TypeAlias = Callable[[], None]


class ProcessState:
    """What the first call found, for all that follow."""

    def __init__(self) -> None:
        self._back: dict[str, _Put] = {}

    @contextlib.contextmanager
    def same(self) -> Iterator[None]:
        """A call that finds the state of the first one, and leaves it to karat."""
        for name, remember in _KINDS.items():
            # A framework counts from when it is there; nobody could have changed it before.
            if name not in self._back and (put := remember()) is not None:
                self._back[name] = put
        try:
            yield
        finally:
            for put in self._back.values():
                put()


def _folder() -> _Put | None:
    try:
        here = os.getcwd()  # noqa: PTH109 - a word to give back, not a path to work with
    except OSError:
        return None  # somebody took it away, and nothing can bring it back

    def put() -> None:
        with contextlib.suppress(OSError):
            os.chdir(here)

    return put


def _environment() -> _Put:
    found = dict(os.environ)

    def put() -> None:
        if os.environ != found:
            os.environ.clear()
            os.environ.update(found)

    return put


def _import_path() -> _Put:
    found = [*sys.path]

    def put() -> None:
        sys.path[:] = found

    return put


def _python_random() -> _Put:
    found = random.getstate()
    return lambda: random.setstate(found)


def _numpy() -> _Put | None:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    numbers, errors = numpy.random.get_state(), numpy.geterr()

    def put() -> None:
        numpy.random.set_state(numbers)
        numpy.seterr(**errors)

    return put


def _torch() -> _Put | None:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    numbers, gradients = torch.get_rng_state(), torch.is_grad_enabled()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    exact = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()

    def put() -> None:
        torch.set_rng_state(numbers)
        torch.set_grad_enabled(gradients)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(exact, warn_only=warn)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return put


_KINDS: dict[str, Callable[[], _Put | None]] = {
    "folder": _folder,
    "environment": _environment,
    "import path": _import_path,
    "random": _python_random,
    "numpy": _numpy,
    "torch": _torch,
}

# DOC-HERE calling: Calling the user's function with what was captured, and holding what it returns against what was expected.
#
# This runs in a worker. Expected values are verified before the function is called, and read again where they
# lie once it has returned, so that nothing it does can reach them.

_HERE = Path(__file__).name


class Caller:
    """Replays cases of one bundle with one function."""

    def __init__(self, hello: Hello, function: Callable[..., Any]) -> None:
        self._hello, self._function = hello, function
        self._state = ProcessState()
        self._cases = {
            case.path: case for case in cases(open_word(hello.bundle, store=hello.store))
        }

    def replay(self, job: Job) -> Replayed:
        """What became of one case."""
        case = self._cases[job.path]
        started = time.monotonic()
        try:
            replayed = self._replay(case, job)
        except Damaged as damage:
            replayed = damaged(case, str(damage))
        except (KaratError, OSError) as error:
            replayed = out_of_reach(case, error)
        return structs.replace(replayed, seconds=time.monotonic() - started)

    def _replay(self, case: Case, job: Job) -> Replayed:
        judging = self._hello.judging
        inputs = case.inputs(framework=judging.framework, verify=judging.verify)
        program = _program(case, Path(job.work))
        if judging.verify:
            verify_expected(case)
        try:
            with self._state.same():
                outputs = self._function(program, inputs.value)
        except BaseException as error:  # noqa: BLE001 - whatever a program raises is its outcome
            traceback.print_exc()
            return failed(case, f"expected {self._hello.function} to return, but {_raised(error)}")
        if job.keep:
            _keep(outputs, Path(job.work) / "outputs")
        return self._judged(case, outputs, inputs.findings)

    def _judged(self, case: Case, outputs: Any, before: tuple[Finding, ...]) -> Replayed:
        measure = measure_of(case.manifest, self._hello.judging, case.path)
        try:
            report = compare_values(
                case.flat("expected"),
                outputs,
                rtol=measure.rtol,
                atol=measure.atol,
                equal_nan=measure.equal_nan,
                check_dtype=measure.check_dtype,
            )
        except (CannotStore, ValueError) as error:
            return failed(case, f"expected outputs that can be compared, but {error}")
        found = (*report.all_findings(), *before, *measure.findings)
        findings = placed(found, case.path)
        return Replayed(
            path=case.path,
            identity=case.manifest.identity,
            outcome=outcome_of(report.comparisons, findings),
            comparisons=tuple(with_origin(c, self._hello.judging) for c in report.comparisons),
            findings=findings,
        )


def _program(case: Case, work: Path) -> Path | None:
    """A copy of the program that the function may do anything to."""
    record = case.manifest.program
    if record is None:
        return None
    target = work / "program" / Path(record.file).name
    target.parent.mkdir()
    case.copy_program(target)
    return target


def _raised(error: BaseException) -> str:
    """What was raised, and the last place in the user's own code."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name != _HERE
    ]
    where = (
        f" ({Path(frames[0].filename).name}:{frames[0].lineno}, in {frames[0].name})"
        if frames
        else ""
    )
    return f"it raised {type(error).__name__}{_said(error)}{where}"


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whoever raises it may have got that wrong as well
        text = "its own text could not be had"
    return f": {text}" if text else ""


def _keep(outputs: Any, folder: Path) -> None:
    """The outputs in the raw form, for whoever wants to look at them."""
    from karat.bundles.tensor_files import write_raw  # noqa: PLC0415 - only with --keep

    try:
        flat = flatten(outputs, "expected")
    except CannotStore:
        return  # the comparison says so, and where
    folder.mkdir()
    held = [(name, tensor) for name, tensor in flat.tensors.items() if isinstance(tensor, Tensor)]
    write_raw(folder, (("output", name, tensor) for name, tensor in held))
