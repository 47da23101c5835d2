"""Call the user's function with what was captured, and compare what it returns with what was expected.

This runs in a worker. Expected values are verified before the function is called, and read again from disk once
it has returned, so that nothing it does can reach them. What a call changes in the process (working folder,
environment, random numbers, framework settings) is put back before the next case.
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
from typing import Any

from msgspec import structs

from karat.bundles.cases import Case, cases
from karat.bundles.compare import compare_values
from karat.bundles.structure import flatten
from karat.findings import KaratError
from karat.replays import judge
from karat.replays.outcome import ReplayedCase
from karat.replays.processes import CaseJob, WorkerSetup
from karat.store.place import open_word
from karat.tensors.tensor import CannotStore, Damaged, Tensor


class Caller:
    def __init__(self, setup: WorkerSetup, function: Callable[..., Any]) -> None:
        self._setup, self._function = setup, function
        self._state = ProcessState()
        self._cases = {case.path: case for case in cases(open_word(setup.bundle, store=setup.store))}

    def replay(self, job: CaseJob) -> ReplayedCase:
        case = self._cases[job.path]
        started = time.monotonic()
        try:
            replayed = self._replay(case, job)
        except Damaged as damage:
            replayed = judge.damaged(case, str(damage))
        except (KaratError, OSError) as error:
            replayed = judge.unreadable(case, error)
        return structs.replace(replayed, seconds=time.monotonic() - started)

    def _replay(self, case: Case, job: CaseJob) -> ReplayedCase:
        options = self._setup.options
        inputs = case.inputs(framework=options.framework, verify=options.verify)
        program = None
        if case.manifest.program is not None:  # a copy that the function may do anything to
            program = Path(job.work) / "program" / Path(case.manifest.program.file).name
            case.copy_program(program)
        if options.verify:
            judge.verify_expected(case)
        try:
            with self._state.same():
                outputs = self._function(program, inputs.value)
        except BaseException as error:  # noqa: BLE001 - whatever a program raises is its outcome
            traceback.print_exc()
            return judge.failed(case, f"expected {self._setup.function} to return, but {_raised(error)}")
        if job.keep:
            _keep(outputs, Path(job.work) / "outputs")
        try:
            report = compare_values(case.flat("expected"), outputs, **judge.criteria_of(case.manifest, options))
        except (CannotStore, ValueError) as error:
            return judge.failed(case, f"expected outputs that can be compared, but {error}")
        findings = (*report.all_findings(), *inputs.findings, *judge.tolerance_findings(case.manifest, options))
        return judge.compared(case, options, report.comparisons, findings)


def _raised(error: BaseException) -> str:
    """What was raised, and where in the user's own code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name != Path(__file__).name]
    where = f" ({Path(frames[0].filename).name}:{frames[0].lineno}, in {frames[0].name})" if frames else ""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - its own __str__ may be broken
        text = "its message could not be read"
    return f"it raised {type(error).__name__}{f': {text}' if text else ''}{where}"


def _keep(outputs: Any, folder: Path) -> None:
    from karat.bundles.tensor_files import write_raw

    try:
        flat = flatten(outputs, "expected")
    except CannotStore:
        return  # the comparison says so, and where
    folder.mkdir()
    held = [(name, tensor) for name, tensor in flat.tensors.items() if isinstance(tensor, Tensor)]
    write_raw(folder, (("output", name, tensor) for name, tensor in held))


class ProcessState:
    """The state of the process before the first call, put back after each."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Callable[[Any], object], Any]] = {}

    @contextlib.contextmanager
    def same(self) -> Iterator[None]:
        """A call that finds the state of the first one."""
        for name, get, put in _settings():
            # A framework counts from when it is loaded; nobody could have changed it before.
            if name not in self._found:
                with contextlib.suppress(OSError):  # a working folder that is gone
                    self._found[name] = put, get()
        try:
            yield
        finally:
            for put, value in self._found.values():
                with contextlib.suppress(OSError):
                    put(value)


def _settings() -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], object]]]:
    """Name, how to get it, how to set it."""
    yield "folder", os.getcwd, os.chdir
    yield "environment", lambda: dict(os.environ), _set_environment
    yield "import path", sys.path.copy, lambda found: sys.path.__setitem__(slice(None), found)
    yield "random", random.getstate, random.setstate
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        yield "numpy.random", numpy.random.get_state, numpy.random.set_state
        yield "numpy.errors", numpy.geterr, lambda found: numpy.seterr(**found)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        yield "torch.random", torch.get_rng_state, torch.set_rng_state
        yield "torch.grad", torch.is_grad_enabled, torch.set_grad_enabled
        yield "torch.dtype", torch.get_default_dtype, torch.set_default_dtype
        yield "torch.threads", torch.get_num_threads, lambda n: torch.get_num_threads() == n or torch.set_num_threads(n)
        on, only_warns = torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled
        put = torch.use_deterministic_algorithms
        yield "torch.deterministic", lambda: (on(), only_warns()), lambda found: put(found[0], warn_only=found[1])


def _set_environment(found: dict[str, str]) -> None:
    if os.environ != found:
        os.environ.clear()
        os.environ.update(found)
