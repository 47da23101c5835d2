"""`golden`, the fixture: `check` and `capture` of captures, and what a test asks to be kept beside it: files and tensors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import pytest
from msgspec.structs import replace

from karat.bundles.cases import Case
from karat.bundles.compare import compare_values
from karat.bundles.layout import OWN
from karat.bundles.manifest import Comparator, Identity
from karat.bundles.places import FolderPlace
from karat.bundles.structure import flatten
from karat.bundles.values import Flat
from karat.bundles.verify import verify_case
from karat.bundles.write import NewCase, write_case
from karat.captures.check import Passed, by_caller, candidate, compare, describe_mismatch
from karat.captures.environment import created, environment, seeds
from karat.captures.functions import ActiveSubtests, CaptureDetails, require_known
from karat.captures.session import publish
from karat.captures.standalone import identity_of_item
from karat.config import Config
from karat.findings import CannotVerify, Severity, UsageError
from karat.goldens import formats, shapes
from karat.goldens.saves import save
from karat.goldens.shapes import Reading, Series, Shape
from karat.report.words import count, few
from karat.runs.repeats import SampledRun, Samples, render_samples, samples_path
from karat.snapshots.files import checked_environment
from karat.snapshots.judge import Judged, judge, lines, names_of, rules_for, tolerance_of
from karat.snapshots.values import as_written, document_of, not_finite, series_of, table_of
from karat.system.command import Command
from karat.system.files import bytes_of
from karat.system.foreign.limits import GOLDEN, read_plain
from karat.system.hashes import sha256_hex
from karat.tensors.comparison import ComparisonReport
from karat.tensors.tensor import CannotStore, Damaged, Tensor

if TYPE_CHECKING:
    from karat.captures.pytest_session import CapturePlugin
    from karat.snapshots.session import SnapshotPlugin


class Golden:
    """What a test holds: `series`, `table`, `tensors` and `document` compare with what is stored beside the test.

    `pytest --karat-update` stores it. `check` compares two values of the test itself, and captures them.
    """

    def __init__(self, request: pytest.FixtureRequest, snapshots: SnapshotPlugin) -> None:
        self._item: pytest.Item = request.node
        self._snapshots = snapshots
        self._environment = ""
        self._plugin: CapturePlugin | None = request.config.pluginmanager.get_plugin("karat-capturing")
        self._active = ActiveSubtests()
        if self._plugin is not None and "subtests" in request.fixturenames:
            self._active.watch(request.getfixturevalue("subtests"))
            if self._plugin.test is not None:
                self._active.changed = self._plugin.test.in_subtest

    def check(self, actual: Any, expected: Any, *, inputs: Any, **details: Unpack[CaptureDetails]) -> ComparisonReport:
        """Raise `karat.Mismatch` unless actual is as expected; then capture the case, if capturing is on.

        Without rtol or atol, each dtype's own tolerance holds. Several checks in one test need a
        `subtest` each, or they would be one case.
        """
        __tracebackhide__ = True
        require_known("golden.check", details)
        report, passed = compare(expected, actual, self._item.nodeid, details)
        self._capture({"inputs": inputs, "expected": expected, "actual": actual}, passed, details)
        return report

    def capture(self, *, inputs: Any, expected: Any, **details: Unpack[CaptureDetails]) -> None:
        """Capture a case that the test compared by its own means, which is weaker evidence.

        rtol, atol and the like say how, for replays.
        """
        require_known("golden.capture", details)
        self._capture({"inputs": inputs, "expected": expected}, by_caller(expected, details), details)

    def _capture(self, values: dict[str, Any], passed: Passed, details: CaptureDetails) -> None:
        if self._plugin is not None:
            subtest = self._active.name(details.get("subtest"))
            identity = identity_of_item(self._item, details, self._plugin.settings, subtest)
            self._plugin.capture(candidate(identity, values, passed, details))

    def environment(self, name: str) -> None:
        """Say where this test runs, such as `cuda-sm90`, if its numbers are others there: it has goldens of its own.

        The closest one counts: that of `cuda-sm90`, else of `cuda`, else the one without an environment.
        """
        self._environment = checked_environment(name)

    def series(
        self, name: str, values: Any, *, rtol: float | None = None, atol: float | None = None, start: int = 0
    ) -> None:
        """Compare a curve with its golden: a list or array of values from step `start` on, or a dict of step → value.

        A dict of name → curve is several curves in one file. None is a step without a sample; NaN always fails.
        """
        __tracebackhide__ = True
        says = tolerance_of(rtol, atol, "golden.series")
        self._hold(FileSnapshot(name, "golden.series", series_of(_name("series", name), values, start), says))

    def table(self, name: str, rows: Any, *, rtol: float | None = None, atol: float | None = None) -> None:
        """Compare rows with their golden: a dict of row → value, a dict of row → columns, or a list of dicts."""
        __tracebackhide__ = True
        says = tolerance_of(rtol, atol, "golden.table")
        self._hold(FileSnapshot(name, "golden.table", table_of(_name("table", name), rows), says))

    def document(self, name: str, value: Any, *, rtol: float | None = None, atol: float | None = None) -> None:
        """Compare any other value that JSON can hold with its golden: by structure, and numbers within the tolerance."""
        __tracebackhide__ = True
        says = tolerance_of(rtol, atol, "golden.document")
        self._hold(FileSnapshot(_name("document", name), "golden.document", document_of(value), says))

    def tensors(  # noqa: PLR0913 - one call says how to compare
        self,
        name: str,
        tensors: Any,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        integers: bool = False,
        check_dtype: bool = True,
    ) -> None:
        """Compare tensors with their golden: an array of numpy, torch or jax, or any dict, list or dataclass of them.

        Without rtol or atol, each dtype's own tolerance holds; integers are exact unless `integers`.
        """
        __tracebackhide__ = True
        tolerance_of(rtol, atol, "golden.tensors")
        criteria = {"rtol": rtol, "atol": atol, "integers": integers, "equal_nan": equal_nan}
        self._hold(TensorSnapshot(_name("tensors", name), tensors, {**criteria, "check_dtype": check_dtype}))

    def _hold(self, snapshot: FileSnapshot | TensorSnapshot) -> None:
        __tracebackhide__ = True
        self._snapshots.hold(snapshot, self._environment)


def _name(method: str, name: object) -> str:
    if isinstance(name, str) and name.strip():
        return name
    said = f"golden.{method}: expected a name for the snapshot, such as 'loss', found {name!r:.60}"
    raise UsageError(said, next_command="see docs/snapshots.md")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison with the golden came to."""

    passed: bool
    said: Sequence[str] = ()  # What is wrong, line by line.
    unfit: str = ""  # Why it must not become the golden, if it must not.


class FileSnapshot:
    """One call of `golden.series`, `golden.table` or `golden.document`."""

    def __init__(self, name: str, call: str, golden: shapes.Golden, says: dict[str, Any]) -> None:
        self.name, self.call, self.shape = name, call, golden.shape
        self._says, self._golden = says, golden
        self.repeats: list[Series] = [golden] if isinstance(golden, Series) else []

    def compare(self, file: Path, shown: str, config: Config) -> Outcome:
        try:
            expected = formats.read(read_plain(file, GOLDEN), shown)
        except OSError as error:
            said = f"expected to read the golden {file}, but: {error.strerror or error}"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(file))) from error
        actual = as_written(self._golden)[1]
        judged = self._judge(expected, actual, file, shown, config)
        if judged.passed:
            return Outcome(passed=True)
        wrong = [*lines(judged, shown, actual.golden or self._golden, expected.golden)]
        unfit = self._unfit(config, file, shown)
        if judged.incomplete and not unfit:
            unfit = "what the golden has is missing; if that is meant, remove the golden first"
        return Outcome(passed=False, said=wrong, unfit=unfit)

    def first(self, file: Path, shown: str, config: Config) -> Outcome:
        """Held against itself, where there is no golden: whether it is fit to become one."""
        return Outcome(passed=False, unfit=self._unfit(config, file, shown))

    def _unfit(self, config: Config, file: Path, shown: str) -> str:
        if odd := list(not_finite(self._golden)):
            return f"a golden must not hold NaN or infinities: {few(odd, 3, '; ')}"
        reading = as_written(self._golden)[1]
        if self._judge(reading, reading, file, shown, config).passed:
            return ""
        return "nothing in it would be compared: give it an rtol, or a rule in karat.toml"

    def _judge(self, expected: Reading, actual: Reading, file: Path, shown: str, config: Config) -> Judged:
        golden = actual.golden or self._golden
        book = rules_for(config, file, shown, (self._says, self.call), names_of(golden))
        return judge(expected, golden, book, shown, config)

    def write(self, target: Path, root: Path | None) -> Iterator[str]:
        """Put it in the golden's place, in the style of what stands there; yields what there is to say."""
        seen = bytes_of(target)
        data = as_written(self._golden, seen)[0]
        try:
            kept = save(target, data, seen, root=root)
        except CannotVerify:
            if bytes_of(target) != data:  # or another session was quicker, and wrote the very same
                raise
            return
        for finding in kept:
            yield f"{finding.message}: {finding.next}"

    def write_samples(self, golden: Path, root: Path | None) -> Iterator[str]:
        """Keep the repeats beside the golden, in place of those before."""
        runs = [(series, sha256_hex(as_written(series)[0])) for series in self.repeats]
        names = tuple(SampledRun(name=f"repeat {n}", sha256=sha) for n, (_, sha) in enumerate(runs, 1))
        file = samples_path(golden)
        data = render_samples(Samples(runs=names, series=tuple(series for series, _ in runs)))
        for finding in save(file, data, bytes_of(file), root=root):
            yield f"{finding.message}: {finding.next}"
        look = Command("karat", "tolerance", "--golden", os.path.relpath(golden))
        if len({sha for _, sha in runs}) == 1:
            yield f"{count(len(runs), 'repeat')} of {self.name} were equal: they say nothing of noise"
        else:
            yield f"{self.name}: tolerance from {count(len(runs), 'repeat')}; to see it: {look}"


class TensorSnapshot:
    """One call of `golden.tensors`."""

    call = "golden.tensors"
    shape: Shape = "bundle"

    def __init__(self, name: str, value: Any, criteria: dict[str, Any]) -> None:
        self.name = name
        self.identity: Identity | None = None
        self._value, self._criteria = value, criteria
        try:
            flat = flatten(value, "expected")
        except CannotStore as error:
            said = f"golden.tensors({name!r}) cannot be stored: {error}"
            raise UsageError(said, next_command="see docs/snapshots.md") from None
        # Copied: the test may go on writing to its arrays, and what it said counts.
        held = {
            key: replace(one, data=memoryview(bytes(one.data)))
            for key, one in flat.tensors.items()
            if isinstance(one, Tensor)
        }
        self._flat = Flat(role="expected", structure=flat.structure, tensors=held)

    def compare(self, folder: Path, shown: str, _config: Config) -> Outcome:
        place = FolderPlace(folder, shown)
        case = Case(place, "", place.files())
        damage = [f.message for f in verify_case(case) if f.severity is Severity.FAIL]
        if damage:
            return Outcome(passed=False, said=[f"  the golden is damaged: {message}" for message in damage])
        try:
            report = compare_values(case.flat("expected"), self._flat, **self._criteria)
        except (Damaged, OSError) as error:
            look = Command("karat", "verify", shown)
            raise CannotVerify(f"expected to read the golden {shown}, but: {error}", next_command=look) from error
        if report.passed:
            return Outcome(passed=True)
        unfit = self.first(folder, shown, _config).unfit
        if not unfit and any(f.kind == "lost-tensor" for f in report.findings):
            unfit = "a tensor that the golden has is missing; if that is meant, remove the golden first"
        said = describe_mismatch(report, self.name).splitlines()
        return Outcome(passed=False, said=[f"  {line}" for line in said], unfit=unfit)

    def first(self, _folder: Path, _shown: str, _config: Config) -> Outcome:
        """Held against itself, where there is no golden: whether it is fit to become one."""
        report = compare_values(self._flat, self._flat, **self._criteria)
        if report.passed:
            return Outcome(passed=False)
        why = next(f.message for f in (*report.findings, *(f for c in report.comparisons for f in c.findings)))
        return Outcome(passed=False, unfit=f"it would not even match itself: {why}")

    def write(self, target: Path, root: Path | None) -> Iterator[str]:
        """Put it in the golden's place, whole."""
        if self.identity is None:
            raise ValueError("expected the identity to be set before writing")
        staged = target.parent / f"{OWN}-{os.urandom(6).hex()}"
        try:
            staged.mkdir(parents=True)
            write_case(
                staged,
                NewCase(
                    identity=self.identity,
                    inputs=(),
                    expected=self._flat,
                    comparator=Comparator(name="karat", **self._criteria),
                    environment=environment(root or target.parent, (self._value,)),
                    seeds=seeds(),
                    session=staged.name.removeprefix(f"{OWN}-"),
                    created=created(),
                ),
            )
            publish(staged, target, staged.name)
        except OSError as error:
            said = f"expected to write {target}, but: {error.strerror or error}"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(target.parent))) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        yield from ()
