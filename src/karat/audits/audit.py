"""Audit: a tree → what is wrong with its goldens today. The front door of this room.

Each golden is read and judged alone, as `karat diff` judges a new one. What one golden cannot say of itself comes from the
others (copies), from git (when it was last refreshed) and from the tests of the tree (whose golden it is). Captured cases in a
folder, a zip or a store are audited by themselves.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from karat.bundles.compare import CONTROLS, control_findings
from karat.bundles.layout import MANIFEST, OWN, candidates, case_folders, folders_above, is_of_zips
from karat.compare.change import Change
from karat.diffs.history import kept_history
from karat.diffs.sides import Item, OnDisk
from karat.diffs.workers import Task, compare_items
from karat.findings import Finding, Severity, fail, info, warn
from karat.goldens.paths import Globs, PathFilter, identity_of, walk
from karat.report.words import count, few, severity_counts
from karat.settings import AuditSettings
from karat.system import git
from karat.system.command import Command
from karat.system.foreign.limits import SOURCE, read_plain

if TYPE_CHECKING:
    from karat.diffs.diff import DiffOptions

_MONTH = 365.2425 / 12 * 86_400
_NAMED = 4
_WORD = re.compile(r"[\w.-]+")


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, gravest first."""

    goldens: int
    tests: int  # Tests that the configuration knows how to find.
    known: int = 0  # Findings that the baseline lists; they are info.
    notes: tuple[str, ...] = ()  # What was not looked at, and why.
    unjudged: tuple[str, ...] = ()  # Kinds of findings that there may be and that were not looked for.
    findings: tuple[Finding, ...] = ()

    def headline(self) -> str:
        worst = len({f.path for f in self.findings if f.severity is Severity.FAIL and f.path})
        parts = [f"{count(self.goldens, 'golden')}: {severity_counts(self.findings) or 'nothing to object to'}"]
        parts += [f"{count(worst, 'file')} must not stay so"] if worst else []
        parts += [count(self.tests, "test")] if self.tests else []
        parts += [f"{self.known:,} known"] if self.known else []
        return " · ".join(parts)


class _Tree(msgspec.Struct, frozen=True):
    """What is audited: the goldens, everything else that lies beside them, and what is to be said of the audit itself."""

    root: Path
    files: frozenset[str]
    repository: bool
    options: DiffOptions
    settings: AuditSettings
    goldens: dict[str, Mapping[str, str]] = {}  # Golden → its identity.
    notes: list[str] = []
    unjudged: set[str] = set()

    def leave_out(self, what: str, why: str, *kinds: str) -> None:
        self.notes.append(f"not looked at: {what}; {why}")
        self.unjudged.update(kinds)


def audit(root: Path, options: DiffOptions, settings: AuditSettings, *, today: date) -> AuditReport:
    """All goldens of a work tree, or of any other folder; `options.only` narrows them."""
    repository = git.find_root(root) == root
    files, goldens = goldens_of(root, options, repository=repository)
    if not goldens:
        said = f"expected goldens in {root}, found none that match {', '.join(options.only or options.globs)}"
        nothing = fail("nothing-compared", said, next="karat config --show-origin")
        return AuditReport(goldens=0, tests=0, findings=(nothing,))
    items = [Item(path, None, OnDisk(str(root / path)), certain=True) for path in goldens]
    task = Task(cases=options.cases, rules=options.rules, status=options.status)
    read = compare_items(items, task, jobs=options.jobs, progress=options.progress)
    tree = _Tree(root, files, repository, options, settings, {c.path: c.identity for c in read.changes})
    tests = {path: known for path in sorted(files) if (known := identity_of(path, settings.tests))}
    findings = [
        *(finding for change in read.changes for finding in change.findings if finding.kind != "new-golden"),
        *_copies(read.changes, {path: new for path, (_, new) in read.digests.items() if new}),
        *_without_test(tree, tests),
        *_without_name(tree),
        *_stale(tree, datetime.combine(today, time(), UTC).timestamp()),
    ]
    advised = [f if f.next else replace(f, next=Command("git", "log", "--oneline", "--", f.path)) for f in findings]
    return AuditReport(
        goldens=len(goldens),
        tests=len(tests),
        notes=tuple(tree.notes),
        unjudged=tuple(sorted(tree.unjudged)),
        findings=tuple(sorted(advised, key=_order)),
    )


def goldens_of(root: Path, options: DiffOptions, *, repository: bool) -> tuple[frozenset[str], list[str]]:
    """Every file of a tree, and the goldens among them; what belongs to a captured case is none."""
    listed = (os.path.relpath(folder / name, root) for folder, _, names in walk(root) for name in names)
    found = git.work_tree_files(root) if repository else listed
    files = frozenset(path for path in found if os.path.lexists(root / path))  # not what is deleted, but not committed
    is_golden = PathFilter(options.globs, options.exclude, options.only)
    cases: frozenset[str] = frozenset()
    if any(candidates(files)):
        from karat.diffs.cases import head_on_disk

        cases = case_folders(files, lambda path: head_on_disk(root / path))
    return files, sorted(p for p in files if is_golden(p) and not cases.intersection(folders_above(p)))


def _order(finding: Finding) -> tuple[object, ...]:
    return finding.severity.rank, finding.kind, finding.path, finding.metric or ""


def _copies(changes: Sequence[Change], digests: Mapping[str, bytes]) -> Iterator[Finding]:
    """Goldens with equal bytes; of an empty one its own finding says enough."""
    alike: dict[bytes, list[Change]] = defaultdict(list)
    for change in changes:
        if change.path in digests and not any(f.kind == "empty" and f.metric is None for f in change.findings):
            alike[digests[change.path]].append(change)
    for group in alike.values():
        if len(group) > 1:
            first, *others = (change.path for change in group)
            # Runs are never alike to the last digit; tables of outcomes often are.
            say = warn if group[0].shape == "series" else info
            said = f"the same bytes as {few(others, _NAMED)}: copied, or written for the wrong case"
            look = Command("git", "log", "--oneline", "--", first, *others[:_NAMED])
            yield say("copied-golden", said, path=first, next=look)


def _without_test(tree: _Tree, tests: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Goldens whose case has no test, and tests whose case has no golden."""
    wanted = tree.settings.tests
    if not tests:
        if wanted or not tree.settings.named_in:
            why = f"no file matches {few(wanted, 2)}" if wanted else "karat.toml has no [audit] tests"
            tree.leave_out("which goldens have a test", why, "untested-golden", "test-without-golden")
        return
    identities = [*tests.values(), *filter(None, tree.goldens.values())]
    shared = sorted(set.intersection(*map(set, identities)))
    of_tests, of_goldens = ({_case(one, shared) for one in side.values()} for side in (tests, tree.goldens))
    for path, known in tree.goldens.items():
        if (case := _case(known, shared)) not in of_tests:
            said = f"expected a test of {case or 'its case'}, found none: no {few(wanted, 2)}"
            yield warn("untested-golden", said, path=path)
    asked_for = PathFilter(("**",), tree.options.exclude, tree.options.only)
    for path, known in tests.items():
        if (case := _case(known, shared)) not in of_goldens and asked_for(path):
            look = Command("ls", "-l", path.rpartition("/")[0] or ".")
            yield warn("test-without-golden", f"expected a golden of {case}, found none", path=path, next=look)


def _case(identity: Mapping[str, str], shared: Sequence[str]) -> str:
    """What tests and goldens have in common, as one word."""
    return "/".join(identity[name] for name in shared) if identity else ""


def _without_name(tree: _Tree) -> Iterator[Finding]:
    """Goldens that are named in none of the files in which tests name them."""
    globs = tree.settings.named_in
    is_text = Globs(globs)
    words: set[str] = set()
    for path in sorted(filter(is_text.fullmatch, tree.files)) if globs else ():
        try:
            words.update(_WORD.findall(read_plain(tree.root / path, SOURCE).decode("utf-8", "replace")))
        except OSError as error:
            tree.leave_out(path, f"{error.strerror or error}", "untested-golden")
    if globs and not words:
        tree.leave_out("which goldens are named", f"no file matches {few(globs, 2)}", "untested-golden")
    for path in tree.goldens if words else ():
        name = identity_of(path, tree.settings.names).get("name")
        if name and name not in words:
            yield warn("untested-golden", f"expected its name {name} in {few(globs, 2)}, found it in none", path=path)


def _stale(tree: _Tree, now: float) -> Iterator[Finding]:
    """Goldens that no commit touched for long, and whether others of their platform were refreshed since."""
    limit, root = tree.settings.stale_months, tree.root
    why = ""
    if not tree.repository or not git.has_commit(root):
        why = "there is no git history"
    elif (git.common_folder(root) / "shallow").exists():
        why = "the clone is shallow (git fetch --unshallow brings the rest)"
    if why and limit:
        tree.leave_out("how old goldens are", why, "stale-golden")
    if why or not limit:
        return
    kept = kept_history(root, git.root_and_head(root)[1], tree.options, compare=False)
    last: dict[str, int] = {}
    for refresh in kept.refreshes:
        for golden in refresh.goldens:
            last[golden.path] = max(last.get(golden.path, 0), refresh.seconds)
    platforms = {path: known.get("platform", "") for path, known in tree.goldens.items() if last.get(path)}
    ages: dict[str, list[int]] = defaultdict(list)
    for path in sorted(platforms, key=last.__getitem__):
        ages[platforms[path]].append(last[path])
    for path, platform in platforms.items():
        months = int((now - last[path]) / _MONTH)
        if months >= limit:
            times = ages[platform]
            since = len(times) - bisect_right(times, last[path])
            say = warn if since * 2 > len(times) else info
            day = datetime.fromtimestamp(last[path], UTC).date()
            where = f" on {platform}" if platform else ""
            others = f"{since:,} of {count(len(times), 'golden')}{where} were refreshed since"
            said = f"last changed on {day}, {count(months, 'month')} ago; {others}"
            yield say("stale-golden", said, path=path, numbers={"months": months, "refreshed_since": since})


def name_of(finding: Finding) -> str:
    """What a baseline calls a finding; it stays the same as long as the defect does."""
    return " ".join(part for part in (finding.kind, finding.path, finding.metric) if part)


def against_baseline(
    report: AuditReport, listed: Sequence[str], path: str, again: Command, *, whole: bool = True
) -> AuditReport:
    """The report with what is listed as info, and with what is listed and no longer wrong as a failure.

    Of what was not looked at, and unless it is the `whole` tree, nothing is known to be no longer wrong.
    """
    names = set(listed)
    waiting = {name for name in listed if whole and name.partition(" ")[0] not in report.unjudged}
    findings, known = [], 0
    for finding in report.findings:
        name = name_of(finding)
        if name in names and finding.severity is not Severity.INFO:
            known += 1
            finding = replace(finding, severity=Severity.INFO, message=f"{finding.message} (known: {path})")  # noqa: PLW2901
        waiting.discard(name)
        findings.append(finding)
    for name in sorted(waiting):
        said = f"{path}: {name} is listed and no longer wrong; shorten the list"
        findings.append(fail("baseline-stale", said, path=path, metric=name, next=again.plus("--update-baseline")))
    return replace(report, known=known, findings=tuple(sorted(findings, key=_order)))


def is_bundle(word: str) -> bool:
    """Whether a word means captured cases: a zip, a capture folder or a case, a folder of zips, a reference of a store."""
    from karat.store.place import split_word

    path = Path(word)
    if path.is_dir():
        return (path / OWN).is_dir() or (path / MANIFEST).is_file() or is_of_zips(path)
    return (path.suffix == ".zip" and path.is_file()) or split_word(word) is not None


def audit_bundle(word: str) -> AuditReport:
    """What the captured cases of one place are not worth. Only manifests are read; bytes are for `karat verify`."""
    from karat.bundles.cases import cases
    from karat.store.place import open_word

    with closing(open_word(word)) as place:
        found = cases(place)
        findings = [*place.findings(), *(finding for case in found for finding in case.findings)]
    for case in found:
        if any(finding.severity is Severity.FAIL for finding in case.findings):
            continue
        manifest, label = case.manifest, case.manifest.identity.label
        findings += control_findings(manifest, Severity.WARN)
        means = manifest.comparator
        if means.name == "caller" and means.rtol is None and means.atol is None:
            said = f"{label} was compared by the test's own means, and told no tolerance"
            then = Command("karat", "help", "untold-tolerance")
            findings.append(warn("untold-tolerance", said, path=case.path, next=then))
        expected = [record for record in manifest.tensors if record.role == "expected"]
        if odd := [record.name for record in expected if record.statistics.nan or record.statistics.inf]:
            said = f"{label} expects NaN or infinity in {', '.join(odd)}"
            findings.append(warn("not-finite", said, path=case.path, next=Command("karat", "verify", word)))
    if not found:
        then = Command("karat", "verify", word)
        findings.append(fail("nothing-compared", f"{word}: expected captured cases, found none", path=word, next=then))
    wrong = Counter(control for case in found for control in case.manifest.vacuous or ())
    untried = sum(case.manifest.vacuous is None for case in found)
    notes = [f"{count(wrong[name], 'case')} would pass with {CONTROLS[name]}" for name in CONTROLS if wrong[name]]
    if untried:
        notes.append(f"wrong outputs were not tried when {count(untried, 'case')} was captured; capture again")
    return AuditReport(goldens=len(found), tests=0, notes=tuple(notes), findings=tuple(sorted(findings, key=_order)))
