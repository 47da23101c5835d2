"""Snapshots in a pytest session: compared as a test asks for them, written once all of the test has passed.

What a test asked for and wrote travels in its last report, so that the controller of pytest-xdist knows it as well.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from karat.captures.plugin import DESELECTED
from karat.config import Config, load
from karat.findings import CannotVerify, KaratError, UsageError
from karat.goldens.paths import PathFilter, narrow
from karat.report.words import count, log_line
from karat.snapshots.files import Place, place_of, unused
from karat.snapshots.golden import FileSnapshot, Outcome, TensorSnapshot
from karat.system.ci import in_ci
from karat.system.command import Command
from karat.system.git import find_root
from karat.system.names import folded

_PARTIAL = ("keyword", "markexpr", "deselect", "lf", "stepwise", "collectonly")
"""Options with which tests are left out."""
_SHOWN = 20


class RunningTest:
    """One test, and each of its repeats."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.config = config_around(item.path.parent)
        inside = [node.name for node in item.listchain() if isinstance(node, pytest.Class) or node is item]
        self.node = "::".join(inside)
        self.place = place_around(item.path, self.node)
        self.asked: dict[Path, FileSnapshot | TensorSnapshot] = {}
        self.first: dict[Path, FileSnapshot | TensorSnapshot] = {}  # Of the first of several repeats.
        self.pending: dict[Path, bool] = {}  # What is to be written → whether it is new.
        self.found: dict[Path, Path] = {}  # Target → the golden that speaks for it.
        self.failed = False

    @property
    def command(self) -> Command:
        """What stores the snapshots of this test alone."""
        return Command("pytest", f"{os.path.relpath(self.item.path)}::{self.node}", "--karat-update")


class SnapshotPlugin:
    """Registered when the first test asks for `golden`, or when snapshots are to be written."""

    def __init__(self, config: pytest.Config) -> None:
        self._glob: str | None = config.getoption("karat_update")
        self._repeat: int = config.getoption("karat_repeat") or 1
        self._number = 1
        self._owners: dict[str, str] = {}
        self.test: RunningTest | None = None
        if self._repeat < 1 or (self._repeat > 1 and self._glob is None):
            raise pytest.UsageError(
                "--karat-repeat: expected a number of at least 2, together with --karat-update: "
                "what it records is kept beside the goldens"
            )
        if self._glob is not None and in_ci() and not config.getoption("karat_update_in_ci"):
            raise pytest.UsageError(
                "--karat-update: CI is set, and in CI no golden is rewritten: run it on your machine and commit the "
                "result, or add --karat-update-in-ci if CI is to write them"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """With --karat-repeat, run a test with snapshots several times, fixtures and all; the last one is told."""
        if self._repeat == 1 or "golden" not in getattr(item, "fixturenames", ()):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports: list[pytest.TestReport] = []
        for number in range(1, self._repeat + 1):
            self._number = number
            last = number == self._repeat
            # As if another test of the same parent came next, so that only what is the test's own is torn down.
            behind = nextitem if last else item.parent
            reports = runtestprotocol(item, log=False, nextitem=behind)  # type: ignore[arg-type]
            if any(not report.passed for report in reports):
                break
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self._number = 1
        return True

    def begin(self, item: pytest.Item) -> None:
        """A test has asked for `golden`."""
        if self.test is None or self.test.item is not item or self._number == 1:
            self.test = RunningTest(item)
        self.test.asked = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write or forget after teardown."""
        report = yield
        test = self.test
        if test is None or test.item is not item:
            return report
        test.failed |= not report.passed
        if call.when == "teardown":
            told: dict[str, Any] = {
                "file": str(item.path),
                "node": test.node,
                "asked": [str(path) for path in test.asked],
                "written": [],
                "said": [],
                "partial": item.config.stash.get(DESELECTED, False),
            }
            report.karat_snapshots = told  # type: ignore[attr-defined]  # the summary reads it, in any process
            if test.failed:
                told["said"] += [f"{os.path.relpath(p)} was not written: its test did not pass" for p in test.pending]
            elif self._number == self._repeat:
                try:
                    self._write(test, told)
                except KaratError as error:
                    report.outcome, report.longrepr = "failed", f"{error}\nnext: {error.next_command}"
        return report

    def _write(self, test: RunningTest, told: dict[str, Any]) -> None:
        root = None
        with suppress(CannotVerify):
            root = find_root(test.item.path.parent)
        covers = PathFilter(test.config.paths, test.config.exclude).covers
        for target, new in test.pending.items():
            snapshot = test.first[target]
            told["said"] += snapshot.write(target, root)
            told["written"].append([str(target), new])
            path = golden_path(target, test.config)
            if snapshot.shape != "bundle" and not covers(path):
                said = f"{path} is no golden for karat diff: add its folder to paths in [goldens] of karat.toml"
                told["said"].append(said)
        for target, snapshot in test.first.items() if self._repeat > 1 else ():
            golden = target if target in test.pending else test.found.get(target)
            if golden is not None and isinstance(snapshot, FileSnapshot) and snapshot.repeats:
                told["said"] += snapshot.write_samples(golden, root)

    def hold(self, snapshot: FileSnapshot | TensorSnapshot, environment: str) -> None:
        """Compare a snapshot with its golden, or have it written if that was asked for; AssertionError otherwise."""
        __tracebackhide__ = True
        test = self.test
        if test is None:
            raise UsageError(f"{snapshot.call}: expected a running test, found none", next_command="pytest")
        target = test.place.path(snapshot.name, snapshot.shape, environment)
        owner = self._owners.setdefault(folded(str(target)), test.item.nodeid)
        if target in test.asked or owner != test.item.nodeid:
            who = "this test" if owner == test.item.nodeid else owner
            said = f"{snapshot.call}({snapshot.name!r}): {who} has a snapshot of that name already; each needs its own"
            raise UsageError(said, next_command=Command("pytest", test.item.nodeid))
        test.asked[target] = snapshot
        if isinstance(snapshot, TensorSnapshot):
            snapshot.identity = test.place.identity(snapshot.name, environment)
        if self._number > 1:
            first = test.first.get(target)
            if isinstance(first, FileSnapshot) and isinstance(snapshot, FileSnapshot):
                first.repeats += snapshot.repeats
            return
        test.first[target] = snapshot
        found = test.place.closest(snapshot.name, snapshot.shape, environment)
        compare = snapshot.first if found is None else snapshot.compare
        outcome = compare(found or target, golden_path(found or target, test.config), test.config)
        if found is not None and outcome.passed:
            test.found[target] = found
            return
        # It is to be written if the glob names it, its test, or its path.
        glob, names = self._glob, (snapshot.name, test.node, test.item.nodeid)
        named = glob is not None and any(fnmatchcase(name, glob) for name in names)
        if glob is not None and not named:
            named = narrow(golden_path(target, test.config), [glob])
        if named and not outcome.unfit:
            test.pending[target] = not target.exists()
            return
        message = "\n".join(_message(test, snapshot, target, found, outcome))
        raise AssertionError(message)


def _message(
    test: RunningTest, snapshot: FileSnapshot | TensorSnapshot, target: Path, found: Path | None, outcome: Outcome
) -> Iterator[str]:
    """What a failed test says: what is wrong, then what to do."""
    what = {"bundle": "tensors"}.get(snapshot.shape, snapshot.shape)
    if found is None:
        yield f"no golden yet for the {what} {snapshot.name!r}: expected {os.path.relpath(target)}, found none"
    else:
        yield f"the {what} {snapshot.name!r} differ{'' if what == 'tensors' else 's'} from the golden {os.path.relpath(found)}"
        yield from outcome.said
    if outcome.unfit:
        yield f"  it cannot become the golden: {outcome.unfit}"
    if outcome.unfit and found is not None:
        yield f"  to have no such golden any more, delete {os.path.relpath(found)}"
    elif found is None:
        yield f"  to create it: {test.command}"
    else:
        look = Command("karat", "diff", "--only", golden_path(found, test.config))
        said = "this changes the working tree alone: git holds the golden as it was"
        if found != target:
            look = Command("karat", "diff", os.path.relpath(found), os.path.relpath(target))
            said = f"this writes {os.path.relpath(target)}: the golden of this environment"
        yield f"  to review it: {test.command} && {look}"
        yield f"  ({said})"


@cache
def config_around(folder: Path) -> Config:
    """The configuration for the tests of a folder."""
    return load(folder)


def place_around(file: Path, node: str) -> Place:
    """Where the snapshots of a test lie, as its configuration says."""
    config = config_around(file.parent)
    folder = config.snapshots.folder
    if folder is None or config.file is None:
        return place_of(file, node)
    return place_of(file, node, config.file.parent / folder, config.file.parent)


def golden_path(path: Path, config: Config) -> str:
    """A golden as `karat diff` calls it: from the root of the repository."""
    root = config.root.resolve()
    resolved = path.parent.resolve() / path.name
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(resolved)


def summary(reporter: pytest.TerminalReporter, told: list[dict[str, Any]], status: int) -> None:
    """What was written, what there is to say, and which snapshots nobody asks for any more."""
    written = sorted((os.path.relpath(Path(path)), new) for one in told for path, new in one["written"])
    lines = [f"{'created' if new else 'changed'} {path}" for path, new in written[:_SHOWN]]
    if len(written) > _SHOWN:
        lines.append(f"… and {len(written) - _SHOWN:,} more")
    lines += [said for one in told for said in one["said"]]
    if written:
        lines.append(f"{count(len(written), 'snapshot')} written to the working tree; next: karat review")
    # Only where all tests of all named folders ran, and passed or were skipped.
    config = reporter.config
    left_out = any(config.getoption(name, None) for name in _PARTIAL) or any(one["partial"] for one in told)
    left_out |= bool(reporter.stats.get("deselected"))
    folders = all((config.invocation_params.dir / word).is_dir() for word in config.args)
    if status == pytest.ExitCode.OK and folders and not left_out:
        stale = [os.path.relpath(path) for path in _unused(reporter, told)]
        lines += [f"stale: no test asks for {path}" for path in stale[:_SHOWN]]
        if len(stale) > _SHOWN:
            lines.append(f"… and {len(stale) - _SHOWN:,} more")
        if stale:
            lines.append("delete the stale ones if nobody needs them")
    if lines:
        reporter.section("karat: snapshots")
    for line in lines:
        reporter.write_line(log_line(line))


def _unused(reporter: pytest.TerminalReporter, told: list[dict[str, Any]]) -> Iterator[Path]:
    """Snapshots of the files that were run, and of files that are no more."""
    config = reporter.config
    asked = {Path(path) for one in told for path in one["asked"]}
    tests = {Path(one["file"]): Path(one["file"]).parent for one in told}
    # A test that was skipped asked for nothing, and its snapshots are wanted all the same.
    spared, whole = set(), {"passed", "", "warnings", "deselected"}
    grouped = getattr(config.option, "dist", "") == "loadgroup"
    for report in (r for kind, reports in reporter.stats.items() if kind not in whole for r in reports):
        name, _, node = str(getattr(report, "nodeid", "")).partition("::")
        node = node.rpartition("@")[0] if grouped and "@" in node else node
        spared.add(place_around(config.rootpath / name, node))
    places = [place_around(Path(one["file"]), one["node"]) for one in told]
    yield from unused(places, asked, {place.folder for place in spared})
    patterns = config.getini("python_files")
    for above in sorted({(place_around(file, "").file.parent, folder) for file, folder in tests.items()}):
        goldens, folder = above
        there = {place_around(file, "").file.name for file in folder.glob("*.py")}
        for path in sorted(goldens.iterdir()) if goldens.is_dir() else ():
            # Other goldens may lie beside; only what is called like a file of tests is a snapshot.
            is_test = any(fnmatchcase(f"{path.name}.py", pattern) for pattern in patterns)
            if path.is_dir() and is_test and path.name not in there:
                yield path
