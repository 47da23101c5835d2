"""One scan: paths → Python files → their facts → op tests → findings; and what it says.

For people it is text, for programs schema karat.policy-scan/1 and SARIF.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import msgspec

from karat.findings import KINDS, CannotVerify, ExitCode, Finding, Severity, fail
from karat.goldens.paths import glob_matcher
from karat.policy.exemptions import ExemptionFile
from karat.policy.scan.findings import Inspection, Inspector, OpTestRow, State
from karat.policy.scan.names import Class, Modules, Names, Place
from karat.policy.scan.op_tests import ParsedFiles, Progress, World, cannot_read, finding, glance, look, no_collection
from karat.report import sarif
from karat.report.terminal import Line, by_kind
from karat.report.words import count, line_of
from karat.system.command import Command

SCHEMA = "karat.policy-scan/1"

HELP = {
    "cannot-read": "Make the file readable; unreadable files are not verified.",
    "check-conditional": "Let a check run where no such device is: call check_grad on the CPU as well, or skip visibly.",
    "check-empty": "Let the test call self.check_grad, or remove it: an empty test reads as a check that passed.",
    "check-narrowed": "Check every differentiable input and mode, or say in exemptions.toml which one is left out and why.",
    "evidence-weak": "Drop user_defined_grads: a check against gradients of the same author cannot find their author's mistake.",
    "exempted": "Nothing to do: an entry of exemptions.toml covers it.",
    "exemption-invalid": "Complete the entry of exemptions.toml.",
    "flag-by-hand": "Remove the assignment. Only a completed comparison, or skip_check_grad_ci with a reason, may set it.",
    "grad-check-missing": (
        "Call self.check_grad in a test of the class; or inherit from unittest.TestCase if it is no op test; or use "
        "skip_check_grad_ci(reason=...) with an entry in exemptions.toml."
    ),
    "nothing-compared": "Name a folder that holds op tests, or their base class by --base-class.",
    "skip-without-exemption": "Add an entry to exemptions.toml: op, scope, kind, reason, owner, expiry.",
    "skip-without-reason": 'Write the reason where it can be read: skip_check_grad_ci(reason="...").',
    "tolerance-override": "Bring the tolerance back to the default of the dtype, or add a tolerance entry to exemptions.toml.",
    "unreadable": "Repair the file, or leave it out by --exclude.",
    "unresolved-base": "Scan the folder that holds the base as well, or name it by --base-class.",
}
"""Kind → what to do about it."""
_STATES: Mapping[State, str] = {
    "checked": "with a gradient check",
    "conditional": "with one under a condition",
    "unchecked": "without",
    "skipped": "skipped",
    "exempt": "exempt",
    "integer": "of integers",
    "not-run": "that never run",
    "abstract": "bases without tests",
}
_LEFT_OUT = re.compile(
    r"\.git|\.hg|\.svn|\.tox|\.nox|\.venv|venv|node_modules|__pycache__|build|"
    r"dist|\.eggs|\.mypy_cache|\.ruff_cache|\.pytest_cache|\.ipynb_checkpoints|site-packages"
)
"""Folders that hold what nobody wrote as a test; named on the command line they are scanned."""


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    base_classes: tuple[str, ...] = ()  # More names of base classes that make an op test.
    exclude: tuple[str, ...] = ()
    jobs: int | None = None
    exemptions: ExemptionFile | None = None
    today: date = date.min


class ScannedFiles(msgspec.Struct, frozen=True, kw_only=True):
    found: int  # Python files below the paths.
    parsed: int  # Those that could hold op tests, or what op tests are made of.
    excluded: int  # Files that --exclude left out.
    folders_left_out: int  # Folders such as .git, build and virtual environments.


class ScanReport(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    paths: tuple[str, ...]  # As given.
    files: ScannedFiles
    states: dict[State, int]  # State → how many op tests.
    op_tests: tuple[OpTestRow, ...]
    findings: tuple[Finding, ...]  # Gravest first.


def scan(paths: Sequence[str], options: ScanOptions | None = None, *, progress: Progress | None = None) -> ScanReport:
    """Read every Python file below the paths, and say which op tests check no gradient."""
    options = options or ScanOptions()
    begin = time.perf_counter()
    with no_collection():
        found = find(paths, options.exclude)
        shown = [path for path, _ in found.files]
        glances = look(shown, glance, jobs=options.jobs, progress=progress)
        modules = Modules([*found.files, *found.links])
        files = ParsedFiles(dict(zip(shown, glances, strict=True)), modules.stems, options.base_classes)
        relevant = files.relevant(options.jobs)
        world = World(Names(modules, files.facts), options.base_classes)
        tests = list(world.op_tests(relevant))
        inspector = Inspector(world, options.exemptions, options.today)
        rows: list[OpTestRow] = []
        findings: list[Finding] = []
        classes: dict[tuple[str, int], Inspection] = {}
        for test in tests:
            inspected = inspector.inspect(test)
            rows.append(inspected.row)
            findings += inspected.findings
            key = (test.cls.path, test.cls.index)
            # Of all that a factory makes of a class, one that is not checked says the most about it.
            if key not in classes or inspected.row.state == "unchecked":
                classes[key] = inspected
        for (path, index), inspected in classes.items():
            findings += inspector.of_class(path, world.names.facts(path).classes[index], inspected)
        for path in files.parsed:
            # Flags that are set on a class from outside: `TestX.exist_check_grad = True`.
            for flag in world.names.facts(path).flags:
                targets = world.names.resolve(Place(path, flag.scope), flag.owner) if flag.owner else ()
                if not flag.owner or any(not isinstance(t, Class) or world.lineage.is_op_test(t) for t in targets):
                    text = f"{flag.name} of {flag.owner} is set to {flag.value} by hand; only a comparison may"
                    findings.append(finding("flag-by-hand", Severity.FAIL, path, flag.line, flag.owner, text))
        findings += [*found.findings, *files.problems()]
    holding = {row.path for row in rows} | {test.cls.path for test in tests}
    for path, held in found.by_path.items():
        if holding.isdisjoint(held):  # a path without any op test verifies nothing
            what = f"{count(len(held), 'Python file')} and no op test in any" if held else "no Python file"
            said = f"expected op tests below {path}, found {what}"
            again = Command("karat", "policy", "scan", path, "--base-class", "NAME")
            findings.append(fail("nothing-compared", said, path=path, next=again))
    if options.exemptions is not None:
        findings += options.exemptions.findings
    counts = {"found": len(found.files), "parsed": len(files.parsed)}
    return ScanReport(
        seconds=round(time.perf_counter() - begin, 3),
        paths=tuple(paths),
        files=ScannedFiles(**counts, excluded=found.excluded, folders_left_out=found.left_out),
        states=dict(sorted(Counter(row.state for row in rows).items())),
        op_tests=tuple(rows),
        findings=tuple(sorted(findings, key=lambda f: (f.severity.rank, f.kind, f.path, line_of(f)))),
    )


@dataclass(slots=True)
class FileList:
    """The Python files below the paths, and what was left out on the way."""

    files: list[tuple[str, str]] = field(default_factory=list)  # (as shown, absolute), sorted; each file once.
    links: list[tuple[str, str]] = field(default_factory=list)  # Other names of the same files: (as shown, absolute).
    left_out: int = 0  # Folders that were left out.
    excluded: int = 0  # Files that --exclude left out.
    findings: list[Finding] = field(default_factory=list)
    by_path: dict[str, list[str]] = field(default_factory=dict)  # PATH → the files below it, as shown.


def find(paths: Sequence[str], exclude: Sequence[str] = ()) -> FileList:
    """Every Python file below the paths, links followed to files but not into folders."""
    found = FileList()
    unwanted = [glob_matcher(form) for glob in exclude for form in (glob, f"**/{glob}", f"**/{glob.rstrip('/')}/**")]
    seen: dict[tuple[int, int], str] = {}
    for path in paths:
        here = found.by_path.setdefault(path, [])
        for shown in _walk(path, found):
            if any(pattern.fullmatch(shown.removeprefix("./")) for pattern in unwanted):
                found.excluded += 1
                continue
            try:
                status = os.stat(shown)  # noqa: PTH116 - strings, by the thousand
            except OSError as error:
                found.findings.append(cannot_read(shown, error.strerror or str(error)))
                continue
            key = (status.st_dev, status.st_ino)
            first = seen.setdefault(key, shown) if status.st_ino else shown
            here.append(first)
            (found.files if first is shown else found.links).append((first, os.path.abspath(shown)))  # noqa: PTH100
    found.files.sort()
    return found


def _walk(path: str, found: FileList) -> Iterator[str]:
    if not os.path.lexists(path):
        raise CannotVerify(
            f"expected a folder or a Python file, found nothing at {path}",
            next_command=Command("ls", os.path.dirname(path) or "."),  # noqa: PTH120
        )
    if not os.path.isdir(path):  # noqa: PTH112
        yield path
        return

    def lost(error: OSError) -> None:
        found.findings.append(cannot_read(str(error.filename), error.strerror or str(error)))

    for folder, folders, files in os.walk(path, onerror=lost):
        every = len(folders)
        folders[:] = [
            one for one in folders if not (_LEFT_OUT.fullmatch(one) or os.path.lexists(f"{folder}/{one}/pyvenv.cfg"))
        ]
        found.left_out += every - len(folders)
        yield from (os.path.join(folder, one) for one in sorted(files) if one.endswith(".py"))  # noqa: PTH118


def sarif_log(report: ScanReport, version: str, code: ExitCode) -> bytes:
    tool = sarif.Tool(
        name="karat policy scan",
        version=version,
        tags=("gradients", "tests"),
        help=HELP,
        titles={finding.kind: title(finding.kind) for finding in report.findings},
    )
    return sarif.render(
        report.findings, tool, exit_code=int(code), properties={"states": report.states, "files": report.files.found}
    )


def title(kind: str) -> str:
    """A kind of finding, in words that fit a source file."""
    return "the file cannot be understood as Python" if kind == "unreadable" else KINDS[kind].meaning


def lines(report: ScanReport, *, everything: bool = False) -> Iterator[Line]:
    yield from by_kind(report.findings, title, HELP, everything=everything)
    each = [f"{report.states[state]:,} {words}" for state, words in _STATES.items() if state in report.states]
    classes = f"{len(report.op_tests):,} op test class{'' if len(report.op_tests) == 1 else 'es'}"
    parts = [f"{count(report.files.found, 'file')}, {classes}{': ' if each else ''}{', '.join(each)}"]
    if report.files.excluded:
        parts.append(f"{count(report.files.excluded, 'file')} excluded")
    if report.files.folders_left_out:
        parts.append(f"{count(report.files.folders_left_out, 'folder')} left out (.git, build and the like)")
    yield ((" · ".join([*parts, f"{report.seconds:.1f} s"]), "bold"),)
