"""One scan: paths → Python files → their facts → op tests → findings."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

import msgspec

from karat.findings import CannotVerify, Finding, Severity, fail
from karat.goldens.paths import glob_matcher
from karat.policy.exemptions import ExemptionFile
from karat.policy.scan.findings import Inspection, Inspector, unbound
from karat.policy.scan.names import Class, Modules, Names, Place
from karat.policy.scan.op_tests import Importers, Kin, OpTestClass, ParsedFiles, World
from karat.policy.scan.prefilter import Progress, look, no_collection
from karat.policy.scan.report import OpTestRow, ScanReport, cannot_read, finding, ordered
from karat.report.words import count
from karat.system.command import Command

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
    fail_on: tuple[str, ...] = ("fail",)


def scan(paths: Sequence[str], options: ScanOptions | None = None, *, progress: Progress | None = None) -> ScanReport:
    """Read every Python file below the paths, and say which op tests check no gradient."""
    options = options or ScanOptions()
    begin = time.perf_counter()
    with no_collection():
        found = find(paths, options.exclude)
        shown = [path for path, _ in found.files]
        glances = look(shown, roots=options.base_classes, jobs=options.jobs, progress=progress)
        modules = Modules([*found.files, *found.links])
        importers = Importers(glances, modules)
        kin = Kin(importers, options.base_classes)
        files = ParsedFiles(glances, importers, kin)
        relevant = files.relevant()
        world = World(Names(modules, files.facts), kin, options.base_classes)
        tests = list(world.op_tests(relevant))
        rows, findings = _inspect(world, tests, options)
        for path in files.parsed:
            findings += _stray_flags(world, path)
        findings += unbound(world, world.unbound)
        findings += [*found.findings, *files.problems(), *_paths_without(found, rows, tests)]
    if options.exemptions is not None:
        findings += options.exemptions.findings
    return ScanReport(
        paths=tuple(paths),
        files=len(found.files),
        parsed=len(files.parsed),
        left_out=found.left_out,
        excluded=found.excluded,
        op_tests=tuple(rows),
        findings=ordered(findings),
        fail_on=options.fail_on,
        seconds=time.perf_counter() - begin,
    )


def _inspect(world: World, tests: Sequence[OpTestClass], options: ScanOptions) -> tuple[list[OpTestRow], list[Finding]]:
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
    return rows, findings


def _stray_flags(world: World, path: str) -> Iterator[Finding]:
    """Flags that are set on a class from outside: `TestX.exist_check_grad = True`."""
    for flag in world.names.facts(path).flags:
        targets = world.names.resolve(Place(path, flag.scope), flag.owner) if flag.owner else ()
        if not flag.owner or any(not isinstance(t, Class) or world.lineage.is_op_test(t) for t in targets):
            text = f"{flag.name} of {flag.owner} is set to {flag.value} by hand; only a comparison may"
            yield finding("flag-by-hand", Severity.FAIL, path, flag.line, flag.owner, text)


def _paths_without(found: FileList, rows: Sequence[OpTestRow], tests: Sequence[OpTestClass]) -> Iterator[Finding]:
    """A path without any op test verifies nothing."""
    holding = {row.path for row in rows} | {test.cls.path for test in tests}
    for path, files in found.by_path.items():
        if holding.isdisjoint(files):
            what = f"{count(len(files), 'Python file')} and no op test in any" if files else "no Python file"
            yield fail(
                "nothing-compared",
                f"expected op tests below {path}, found {what}",
                path=path,
                next=Command("karat", "policy", "scan", path, "--base-class", "NAME"),
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
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            found.findings.append(cannot_read(folder, error.strerror or str(error)))
            continue
        for entry in listed:
            try:
                is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file()
                # Pipes and folders behind links are no tests; a link that leads nowhere is reported.
                is_file = is_file or (entry.is_symlink() and not os.path.exists(entry.path))  # noqa: PTH110
            except OSError:
                is_folder, is_file = False, True
            if is_folder and (_LEFT_OUT.fullmatch(entry.name) or os.path.lexists(f"{entry.path}/pyvenv.cfg")):
                found.left_out += 1
            elif is_folder:
                pending.append(entry.path)
            elif is_file and entry.name.endswith(".py"):
                yield entry.path
