"""What runs a case: a function in a worker process, or a command that reads files and leaves files.

A worker that crashed or hung costs its case, and a new one takes over.
A command gets its inputs in the raw form of `karat.bundles.tensor_files`; their digests are checked while they are
written, so that a damaged case is noticed before anything runs. Its outputs are compared tensor by tensor without
loading them whole.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from karat.bundles import manifest as manifests
from karat.bundles.cases import Case, Spool
from karat.bundles.extents import whole_file
from karat.bundles.manifest import Manifest, TensorRecord
from karat.bundles.tensor_files import TABLE, encode_rows, file_names, read_raw, row_of
from karat.findings import Finding, fail, info
from karat.replays import judge
from karat.replays.judge import ReplayedCase
from karat.replays.options import CommandSpec, Progress, ReplayOptions
from karat.replays.processes import (
    LOG,
    CaseJob,
    Worker,
    WorkerLost,
    WorkerSetup,
    WorkFolders,
    describe_exit,
    printed_last,
    wait_for_end,
)
from karat.system.pool import in_parallel
from karat.system.processes import end_group
from karat.system.secrets import scrub, secrets_in
from karat.tensors.compare import compare_tensors
from karat.tensors.digests import TensorDigest, hash_of, require_digest
from karat.tensors.report import shape_text
from karat.tensors.tensor import Damaged, TensorExtent, read_blocks

_PATIENCE = 30.0


class Runner:
    """Replays cases, one at a time; whatever a program does, it answers."""

    def __init__(self, options: ReplayOptions, folders: WorkFolders, environment: Mapping[str, str]) -> None:
        self._options, self._folders, self._environment = options, folders, environment

    def replay(self, case: Case) -> ReplayedCase:
        """What became of the case."""
        work = self._folders.folder(case.path)
        started = time.monotonic()
        try:
            replayed = judge.attempted(case, lambda: self._replay(case, work))
        finally:
            kept = self._folders.done(work)
        # Messages quote what a program printed.
        secrets = secrets_in(os.environ)
        findings = tuple(msgspec.structs.replace(f, message=scrub(f.message, secrets)) for f in replayed.findings)
        seconds = replayed.seconds or time.monotonic() - started
        return msgspec.structs.replace(replayed, findings=findings, seconds=seconds, work=kept)

    def _replay(self, case: Case, work: Path) -> ReplayedCase:
        raise NotImplementedError

    def prepare(self) -> object:
        """Raise what is wrong with the program before a case is run."""

    def stop(self) -> None:
        """End whatever runs, from any thread; who waits for it is told that it failed."""

    def close(self) -> None:
        """Release everything, once nothing is replayed here any more."""


def replay_all(todo: Sequence[Case], runners: Sequence[Runner], progress: Progress | None = None) -> list[ReplayedCase]:
    """What became of each case, in order. Nothing is left running, also after Ctrl-C."""
    idle: queue.SimpleQueue[Runner] = queue.SimpleQueue()
    for runner in runners:
        idle.put(runner)

    def replay(number: int) -> tuple[int, ReplayedCase]:
        runner = idle.get()
        try:
            return number, runner.replay(todo[number])
        finally:
            idle.put(runner)

    def stop() -> None:
        for runner in runners:
            runner.stop()

    results: dict[int, ReplayedCase] = {}
    tasks = [partial(replay, number) for number in range(len(todo))]
    try:
        done = in_parallel(tasks, len(runners), stop=stop)
        with contextlib.closing(cast("Generator[tuple[int, ReplayedCase], None, None]", done)):
            for number, result in done:
                results[number] = result
                if progress is not None:
                    progress(len(results), len(todo))
    finally:
        stop()
        with contextlib.suppress(queue.Empty):
            for _ in runners:
                idle.get(timeout=_PATIENCE)
    return [results[number] for number in range(len(todo))]


class FunctionRunner(Runner):
    """Hands cases to a worker that calls a function."""

    def __init__(
        self, setup: WorkerSetup, options: ReplayOptions, folders: WorkFolders, environment: Mapping[str, str]
    ) -> None:
        super().__init__(options, folders, environment)
        self._setup = setup
        self._worker: Worker | None = None

    def prepare(self) -> Worker:
        """Start the worker; `UsageError` if the function cannot be imported."""
        if self._worker is None:
            self._worker = Worker(self._setup, self._environment)
        return self._worker

    def _replay(self, case: Case, work: Path) -> ReplayedCase:
        job = CaseJob(path=case.path, work=str(work), keep=self._folders.kept)
        try:
            return self.prepare().replay(job, self._options.timeout)
        except WorkerLost as lost:
            self.close()
            message = f"expected {self._setup.function} to return, but {lost}"
            return judge.failed(case, f"{message}{printed_last(work / LOG)}")

    def stop(self) -> None:
        worker = self._worker
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class CommandRunner(Runner):
    def __init__(
        self, command: CommandSpec, options: ReplayOptions, folders: WorkFolders, environment: Mapping[str, str]
    ) -> None:
        super().__init__(options, folders, environment)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def _replay(self, case: Case, work: Path) -> ReplayedCase:
        if case.manifest.program is None and self._command.uses("program"):
            return judge.failed(case, "the command asks for {program}, but the case was captured without one")
        expected = [record for record in case.manifest.tensors if record.role == "expected"]
        places = self._prepare(case, expected, work)
        judge.verify_expected(case)
        problem = self._run(self._command.filled(places), work / LOG)
        if problem:
            message = f"expected the command to end with 0, but {problem}"
            return judge.failed(case, f"{message}{printed_last(work / LOG)}")
        return self._compare(case, expected, read_outputs(work / "outputs", expected))

    def _prepare(self, case: Case, expected: list[TensorRecord], work: Path) -> dict[str, str]:
        """Write the files that the command is given; the outputs' folder is empty."""
        for name in ("inputs", "outputs", "program"):
            (work / name).mkdir()
        inputs = [record for record in case.manifest.tensors if record.role == "input"]
        write_inputs(case, inputs, work / "inputs")
        files = file_names(record.name for record in expected)
        rows = (row_of(record, "", files[record.name]) for record in expected)
        (work / "expected.txt").write_bytes(encode_rows(rows))
        (work / manifests.NAME).write_bytes(manifests.encode(case.manifest))
        places = {
            "program": "",
            "inputs": str(work / "inputs"),
            "outputs": str(work / "outputs"),
            "expected": str(work / "expected.txt"),
            "manifest": str(work / manifests.NAME),
        }
        if case.manifest.program is not None:
            program = work / "program" / Path(case.manifest.program.file).name
            case.copy_program(program)
            places["program"] = str(program)
        return places

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
                    env=self._environment,
                )
        except OSError as error:
            return f"it could not be started: {error.strerror or error}"
        started = time.monotonic()
        status = wait_for_end(self._process, timeout=self._options.timeout)
        took = time.monotonic() - started
        timeout = self._options.timeout
        if status < 0 and timeout and took >= timeout:
            return f"it took longer than {timeout:g} s"
        return describe_exit(status) if status else None

    def _compare(self, case: Case, expected: list[TensorRecord], outputs: Outputs) -> ReplayedCase:
        criteria = judge.criteria_of(case.manifest, self._options.case)
        there = [record.name for record in expected if record.name in outputs.tensors]
        made = outputs.tensors
        with Spool(case) as spool:
            comparisons = tuple(compare_tensors(name, spool.tensor(name), made[name], **criteria) for name in there)
        found = [finding for comparison in comparisons for finding in comparison.findings]
        if comparisons or not expected:
            found += [fail("shape-changed", problem) for problem in outputs.problems]
            lost = [] if outputs.problems else [record.name for record in expected if record.name not in there]
            missing = "expected it among the outputs, found none"
            found += [fail("lost-tensor", f"{name}: {missing}", metric=name) for name in lost]
        extra = (*(name for name in outputs.tensors if name not in there), *outputs.extra)
        additional = f"expected {len(expected)} outputs, found an additional one"
        found += [fail("gained-tensor", f"{name}: {additional}") for name in extra]
        found += judge.tolerance_findings(case.manifest, self._options.case)
        found += values_outside_tensors(case.manifest)
        if not expected:
            # Running without comparing must not look like a match.
            said = "the program ran, but the case expects no tensor, so nothing was compared"
            found.append(fail("nothing-compared", said, next="karat replay --help"))
        elif not comparisons:
            problem = "; ".join(outputs.problems) or "it left no output"
            return judge.failed(case, f"expected outputs in {{outputs}}, but {problem}", *found)
        return judge.compared(case, self._options.case, comparisons, found)

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process)


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    tensors: Mapping[str, TensorExtent]  # By the name of the expected tensor, or whatever else the command called it.
    problems: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # Files of no expected tensor.


def write_inputs(case: Case, records: Sequence[TensorRecord], folder: Path) -> None:
    """Write the inputs in the raw form; `Damaged` if they are not what was captured."""
    files = file_names(record.name for record in records)
    rows = []
    with Spool(case) as spool:
        for record in records:
            tensor, file = spool.tensor(record.name), files[record.name]
            made = TensorDigest(tensor.dtype, tensor.shape)
            kind = hash_of(record.digest)
            own = made if kind == "blake3" else TensorDigest(tensor.dtype, tensor.shape, kind)
            with (folder / file).open("xb") as target:
                for block in read_blocks(tensor.extent):
                    for digest in {made, own}:
                        digest.update(block)
                    target.write(block)
            require_digest(record.name, record.digest, own.text())
            rows.append(row_of(record, made.text(), file))
    (folder / TABLE).write_bytes(encode_rows(rows))


def read_outputs(folder: Path, expected: Sequence[TensorRecord]) -> Outputs:
    """What a command left.

    With a table, names, dtypes and shapes are the table's; `output/0` stands for `expected/0`. Without one, files go
    by the names that the expected tensors have in the raw form, and are taken for what is expected.
    """
    if (folder / TABLE).exists():
        try:
            rows = read_raw(folder)
        except Damaged as error:
            return Outputs(tensors={}, problems=(str(error),))
        named = {}
        for row, tensor in rows:
            first, slash, rest = row.name.partition("/")
            named[f"expected{slash}{rest}" if first == "output" else row.name] = tensor
        return Outputs(tensors=named)
    files = file_names(record.name for record in expected)
    tensors, problems = {}, []
    for record in expected:
        path = folder / files[record.name]
        if path.is_file() and path.stat().st_size == record.nbytes:
            extent = whole_file(path)
            tensors[record.name] = TensorExtent(dtype=record.dtype, shape=record.shape, extent=extent)
        elif path.exists():
            found = f"{path.stat().st_size:,} bytes" if path.is_file() else "no plain file"
            problems.append(
                f"{path.name}: expected {record.nbytes:,} bytes ({record.dtype} {shape_text(record.shape)}), "
                f"found {found}; a {TABLE} beside it can say another dtype or shape"
            )
    known = set(files.values())
    extra = tuple(path.name for path in sorted(folder.glob("*.bin")) if path.name not in known)
    return Outputs(tensors=tensors, problems=tuple(problems), extra=extra)


def values_outside_tensors(manifest: Manifest) -> Iterator[Finding]:
    """What a command was not given as a file, or could not give back as one."""
    given = "the inputs are no tensors; the command finds them in {manifest}, under inputs"
    lost = "the expected values are no tensors, which a command cannot give back; they were not compared"
    for structure, said in ((manifest.inputs, given), (manifest.expected, lost)):
        if number := sum(1 for _ in plain_values(structure)):
            yield info("plain-values", f"{number} of {said}")


def plain_values(structure: Any) -> Iterator[Any]:
    """Numbers, text and the like in a recorded structure; None is left out."""
    kind, content = next(iter(structure.items()), ("", ())) if isinstance(structure, dict) else ("", ())
    if kind in {"tensor", "scalar"} or structure is None:
        return
    if kind and ("fields" in structure or kind.endswith("dict")):
        content = [value for _, value in structure.get("fields", content)]
    elif kind not in {"tuple", "list", "set", "frozenset"}:
        yield structure
        return
    for value in content:
        yield from plain_values(value)
