"""Call the user's function with what was captured, and compare what it returns with what was expected.

This runs in a worker. Expected values are verified before the function is called, and read again from disk once
it has returned, so that nothing it does can reach them.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

from karat.bundles.cases import Case, cases
from karat.bundles.compare import compare_values
from karat.bundles.structure import flatten
from karat.replays import judge
from karat.replays.judge import ReplayedCase
from karat.replays.processes import CaseJob, WorkerSetup
from karat.store.place import open_word
from karat.tensors.tensor import CannotStore, Tensor


class Caller:
    def __init__(self, setup: WorkerSetup, function: Callable[..., Any]) -> None:
        self._setup, self._function = setup, function
        self._cases = {case.path: case for case in cases(open_word(setup.bundle, store=setup.store))}

    def replay(self, job: CaseJob) -> ReplayedCase:
        case = self._cases[job.path]
        started = time.monotonic()
        replayed = judge.attempted(case, lambda: self._replay(case, job))
        return structs.replace(replayed, seconds=time.monotonic() - started)

    def _replay(self, case: Case, job: CaseJob) -> ReplayedCase:
        options = self._setup.options
        inputs = case.inputs(framework=options.framework)
        program = None
        if case.manifest.program is not None:  # a copy that the function may do anything to
            program = Path(job.work) / "program" / Path(case.manifest.program.file).name
            case.copy_program(program)
        judge.verify_expected(case)
        try:
            with contextlib.chdir(Path.cwd()):  # put back: the bundle may be named by a path from there
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
