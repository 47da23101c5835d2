"""A station that runs a command: files in, files out, compared tensor by tensor without loading them whole."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from karat.bundles import manifest as manifests
from karat.bundles.cases import Case
from karat.bundles.manifest import TensorRecord
from karat.bundles.spooling import Spool
from karat.findings import Finding, KaratError, Severity
from karat.replay.crew import end_of, ending, kill_group, tail
from karat.replay.judging import measure_of, with_origin
from karat.replay.options import Command, Judging
from karat.replay.outcome import Replayed, outcome_of
from karat.replay.placing import nothing_compared, placed
from karat.replay.raw_files import Outputs, read_outputs, write_expected_list, write_inputs
from karat.replay.runners import filled, uses
from karat.replay.structures import values_outside_tensors
from karat.replay.telling import damaged, failed, out_of_reach
from karat.replay.verifying import verify_expected
from karat.replay.workplaces import Workplaces
from karat.tensors.comparing import compare_tensors
from karat.tensors.outcome import Comparison
from karat.tensors.tensor import Damaged

LOG = "log.txt"


class CommandStation:
    """Runs one command after the other."""

    def __init__(
        self, command: Command, judging: Judging, workplaces: Workplaces, timeout: float | None
    ) -> None:
        self._command, self._judging = command, judging
        self._workplaces, self._timeout = workplaces, timeout
        self._process: subprocess.Popen[bytes] | None = None

    def replay(self, case: Case) -> Replayed:
        """What became of the case."""
        work = self._workplaces.folder(case.path)
        started = time.monotonic()
        try:
            replayed = self._replay(case, work)
        except Damaged as damage:
            replayed = damaged(case, str(damage))
        except (KaratError, OSError) as error:
            replayed = out_of_reach(case, error)
        finally:
            kept = self._workplaces.done(work)
        return msgspec.structs.replace(replayed, seconds=time.monotonic() - started, work=kept)

    def _replay(self, case: Case, work: Path) -> Replayed:
        records = case.manifest.tensors
        if case.manifest.program is None and uses(self._command, "program"):
            return failed(
                case, "the command asks for {program}, but the case was captured without one"
            )
        places = self._prepared(case, work)
        if self._judging.verify:
            verify_expected(case)
        problem = self._run(filled(self._command, places), work / LOG)
        if problem:
            printed = tail(work / LOG)
            return failed(case, f"expected the command to end with 0, but {problem}{printed}")
        expected = [record for record in records if record.role == "expected"]
        return self._judged(case, expected, read_outputs(work / "outputs", expected))

    def _prepared(self, case: Case, work: Path) -> dict[str, str]:
        """The files that the command is given; the outputs' folder is empty."""
        records = case.manifest.tensors
        for name in ("inputs", "outputs", "program"):
            (work / name).mkdir()
        inputs = [record for record in records if record.role == "input"]
        write_inputs(case, inputs, work / "inputs", verify=self._judging.verify)
        expected = [record for record in records if record.role == "expected"]
        write_expected_list(expected, work / "expected.txt")
        (work / manifests.NAME).write_bytes(manifests.encode(case.manifest))
        program = case.manifest.program
        if program is not None:
            case.copy_program(work / "program" / Path(program.file).name)
        return {
            "program": str(work / "program" / Path(program.file).name) if program else "",
            "inputs": str(work / "inputs"),
            "outputs": str(work / "outputs"),
            "expected": str(work / "expected.txt"),
            "manifest": str(work / manifests.NAME),
        }

    def _run(self, words: list[str], log: Path) -> str | None:
        """Run it to its end; what went wrong, or None."""
        try:
            with log.open("wb") as file:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            return f"it could not be started: {error.strerror or error}"
        started = time.monotonic()
        status = end_of(self._process, patience=self._timeout)
        took = time.monotonic() - started
        if status < 0 and self._timeout and took >= self._timeout:
            return f"it took longer than {self._timeout:g} s"
        return ending(status) if status else None

    def _judged(self, case: Case, expected: list[TensorRecord], outputs: Outputs) -> Replayed:
        measure = measure_of(case.manifest, self._judging, case.path)
        comparisons = tuple(self._compared(case, expected, outputs))
        nothing_left = bool(expected) and not comparisons
        found = [finding for comparison in comparisons for finding in comparison.findings]
        found += () if nothing_left else _lost(expected, outputs)
        found += [*_not_asked_for(expected, outputs), *measure.findings]
        found += values_outside_tensors(case.manifest)
        if not expected:
            found.append(nothing_compared(case.path, "the case expects no tensor"))
        findings = placed(found, case.path)
        if nothing_left:
            problem = "; ".join(outputs.problems) or "it left no output"
            return failed(case, f"expected outputs in {{outputs}}, but {problem}", *findings)
        return Replayed(
            path=case.path,
            identity=case.manifest.identity,
            outcome=outcome_of(comparisons, findings),
            comparisons=tuple(with_origin(c, self._judging) for c in comparisons),
            findings=findings,
        )

    def _compared(
        self, case: Case, expected: list[TensorRecord], outputs: Outputs
    ) -> Iterator[Comparison]:
        measure = measure_of(case.manifest, self._judging, case.path)
        with Spool(case) as spool:
            for record in expected:
                if record.name in outputs.tensors:
                    yield compare_tensors(
                        record.name,
                        spool.tensor(record.name),
                        outputs.tensors[record.name],
                        rtol=measure.rtol,
                        atol=measure.atol,
                        equal_nan=measure.equal_nan,
                        check_dtype=measure.check_dtype,
                    )

    def stop(self) -> None:
        """End the command that runs, and what it started."""
        if self._process is not None:
            kill_group(self._process)

    def close(self) -> None:
        """Nothing is held between commands."""


def _lost(expected: list[TensorRecord], outputs: Outputs) -> Iterator[Finding]:
    for problem in outputs.problems:
        yield Finding(kind="shape-changed", severity=Severity.FAIL, message=problem)
    if outputs.problems:
        return
    for record in expected:
        if record.name not in outputs.tensors:
            yield Finding(
                kind="lost-tensor",
                severity=Severity.FAIL,
                metric=record.name,
                message=f"{record.name}: expected it among the outputs, found none",
            )


def _not_asked_for(expected: list[TensorRecord], outputs: Outputs) -> Iterator[Finding]:
    known = {record.name for record in expected}
    extra = [name for name in outputs.tensors if name not in known]
    for name in (*extra, *outputs.extra):
        yield Finding(
            kind="gained-tensor",
            severity=Severity.FAIL,
            message=f"{name}: expected {len(known)} outputs, found one more that nobody expects",
        )
