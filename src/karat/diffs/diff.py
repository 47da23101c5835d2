"""Two sides → Diff: pairs goldens, reads them in one stream, compares, groups and gives advice.

In: two sides, a rule book, and what to narrow to. Out: a `Diff`, pure data for every report.
Called by `karat diff` and `karat summary`, and from Python. One bad file is one finding; it never
costs the rest of the report. Memory stays flat: bytes and curves of a file are dropped once it is
judged, unless a report needs to draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from karat.compare.change import MOVES, Change, Verdict
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.diffs.result import Diff, gravest_first, groups_of, mark_moves
from karat.diffs.sides import (
    Bundles,
    Index,
    Items,
    OneFile,
    Revision,
    Side,
    WorkTree,
    may_hold_cases,
    pair_up,
    resolve_cached,
    resolve_sides,
    start_listing,
)
from karat.findings import Finding, fail
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter, common_root
from karat.report.words import count
from karat.system import git
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.diffs.cases import BothSides
    from karat.diffs.origins import Locks


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """What to look at, and how to judge it."""

    globs: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    cases: Sequence[str] = ()  # Patterns that read a case's identity off its path.
    rules: RuleBook = field(default_factory=RuleBook)
    status: Sequence[str] = STATUS_ORDER
    only: Sequence[str] = ()
    only_metric: Sequence[str] = ()
    everything: bool = False  # Read unchanged goldens as well.
    keep_curves: bool = False
    provenance: bool = False  # Tell where the values of both sides came from, as their locks say.
    history: bool | None = None
    """Hold moves against those of earlier refreshes; None: if that was asked for before, so that it is quick."""
    preset: str | None = None  # The preset named on the command line, to be named again in the advice.
    store: str | None = None  # The store that `store:REF` stands for.
    jobs: int | None = 1  # Processes to read and compare with; None for as many as there are cores and work for.
    progress: Callable[[int, int], None] | None = None


def diff(
    old: str | None = None,
    new: str | None = None,
    *,
    cwd: str | Path = ".",
    options: DiffOptions | None = None,
    cached: bool = False,
) -> Diff:
    """The difference between two revisions, folders or files; HEAD and the work tree by default, or what is `cached`."""
    here = Path(cwd).absolute()
    left, right = resolve_cached(old, here) if cached else resolve_sides(old, new, here)
    return diff_sides(left, right, options or DiffOptions())


def diff_sides(old: Side, new: Side, options: DiffOptions) -> Diff:
    started = start_listing(old, new)
    from karat.diffs import workers  # noqa: F401 - git lists while numpy is being imported

    listing = started.finish() if started else None
    with ExitStack() as stack:
        cases = None
        if may_hold_cases(old, new, listing):
            from karat.diffs.cases import both

            opened = both(old, new, listing, store=options.store, everything=options.everything)
            cases = stack.enter_context(opened)
        is_golden = PathFilter(options.globs, options.exclude, options.only)
        owned = {"owned": cases.owner()} if cases else {}
        found = [pair_up(old, new, is_golden, listing, everything=options.everything, **owned)]
        listing = None  # nobody holds a hundred thousand paths to the end
        return _diff(old, new, options, found.pop(), cases)


def _diff(old: Side, new: Side, options: DiffOptions, found: Items, cases: BothSides | None) -> Diff:
    """The difference, captured cases included where there are any."""
    from karat.diffs.workers import Task, compare_items

    locks: list[tuple[Locks, list[Finding]]] = []
    if options.provenance:
        from karat.diffs.origins import origins, read_locks

        locks = [read_locks(side, options.globs) for side in (old, new)]
    task = Task(
        cases=options.cases,
        rules=options.rules,
        status=options.status,
        keep_curves=options.keep_curves,
        digests=any(entries for entries, _ in locks),
    )
    compared = compare_items(found.items, task, jobs=options.jobs, progress=options.progress)
    paired, ends = len(found.items), [item.path for item in (*found.items[:1], *found.items[-1:])]
    if cases is None:
        found = replace(found, items=())
    # Where captured cases lie is theirs to say, so the golden patterns are not asked.
    is_case = PathFilter(("**",), options.exclude, options.only)
    unchanged = found.unchanged + compared.unchanged
    unchanged += sum(map(is_case, cases.unchanged)) if cases else 0
    changes = mark_moves(compared.changes, compared.digests)
    compared.changes = []
    bundles: list[Change] = []
    if cases and (pairs := [pair for pair in cases.pairs() if is_case(pair.path)]):
        from karat.diffs.bundles import compare_cases

        everything, jobs = options.everything, options.jobs
        bundles = compare_cases(pairs, everything=everything, jobs=jobs, progress=options.progress)
    changes += bundles
    if options.only_metric:
        seen = (_only_metrics(change, options.only_metric) for change in changes)
        # A golden without such a metric was not looked at, and must not be called the same.
        changes = [c for c in seen if c.metrics or c.findings]
    past = ""
    if isinstance(old, Revision) and history_wanted(old.root, options):
        from karat.diffs.history import read_past, with_history

        known = read_past(old.root, old.commit, options)
        changes, past = list(with_history(changes, known)), known.note
    # Comparing is pure and does not know where the two sides came from; here they meet.
    for at, c in enumerate(changes):  # in place, because a hundred thousand of them are large
        if c.findings:
            told = (f if f.next else replace(f, next=_next(f, c, old, new, options)) for f in c.findings)
            changes[at] = replace(c, findings=tuple(told))
    changes.sort(key=gravest_first)
    return Diff(
        old=old.name,
        new=new.name,
        changes=tuple(changes),
        groups=groups_of(changes, options.rules, unchanged=unchanged),
        findings=(
            *found.findings,
            *(cases.findings(bundles, found.items) if cases else ()),
            *_nothing_compared(paired, found.findings, changes, unchanged, options),
            *(finding for _, unreadable in locks for finding in unreadable),
        ),
        provenance=origins((locks[0][0], locks[1][0]), options.globs, compared.digests) if task.digests else {},
        unchanged=unchanged,
        history=past,
        root=common_root([*ends, *(c.path for c in bundles)]),  # they are sorted
    )


def history_wanted(root: Path, options: DiffOptions) -> bool:
    """Whether to look at the history: if asked, or if somebody did before."""
    return git.history_folder(root).is_dir() if options.history is None else options.history


def _only_metrics(change: Change, wanted: Sequence[str]) -> Change:
    """The change seen through the metrics asked for; what concerns the whole file stays."""
    from karat.compare.pairs import verdict_of

    def asked(metric: str | None) -> bool:
        return metric is None or any(metric == glob or fnmatchcase(metric, glob) for glob in wanted)

    rows = tuple(row for row in change.metrics if asked(row.metric))
    findings = tuple(f for f in change.findings if asked(f.metric))
    verdict = change.verdict
    if verdict not in {Verdict.NEW, Verdict.REMOVED, Verdict.UNREADABLE}:
        verdict = verdict_of(rows, findings)
    return replace(change, metrics=rows, findings=findings, verdict=verdict)


def _nothing_compared(
    paired: int, findings: Sequence[Finding], changes: Sequence[Change], unchanged: int, options: DiffOptions
) -> Iterator[Finding]:
    """Comparing nothing must not look like a match."""
    if not paired and not changes and not unchanged and not findings:
        message = f"expected goldens, found none on either side that match {', '.join(options.only or options.globs)}"
        command = "karat config --show-origin"
    elif options.only_metric and not any(c.metrics for c in changes):
        goldens = count(max(paired, len(changes)), "golden")
        message = f"expected a metric that matches {', '.join(options.only_metric)}, found none in {goldens}"
        command = "karat diff --json -"
    else:
        return
    yield fail("nothing-compared", message, next=command)


def _next(finding: Finding, change: Change, old: Side, new: Side, options: DiffOptions) -> str:
    """The exact command to run next."""
    sides = [old.name, "--cached" if isinstance(new, Index) else new.name]
    if isinstance(new, WorkTree):
        name = new.up + change.path
        if finding.condemns and not change.restorable:
            # HEAD's is no better; an earlier one may be.
            return str(Command("git", "log", "--oneline", "--", name))
        if finding.condemns and change.has_baseline:
            return str(Command("git", "restore", f"--source={old.name}", "--", name))
        if finding.condemns:
            # New, perhaps already staged: a stash takes both away, and can give them back.
            return str(Command("git", "stash", "push", "--include-untracked", "--", name))
        sides = [] if isinstance(old, Revision) and old.name == "HEAD" else [old.name]
    words = ["karat", "diff", *sides]
    # Without these, the same sides would be judged otherwise, or not be found.
    if options.preset:
        words += ["--preset", options.preset]
    in_store = (isinstance(s, Bundles) and s.word.startswith("store:") for s in (old, new))
    if options.store and any(in_store):
        words += ["--store", options.store]
    if not isinstance(new, OneFile):
        words += ["--only", change.path]
    if finding.metric and finding.kind in MOVES:
        words += ["--only-metric", finding.metric]
    return str(Command(*words, "--html", "report.html"))
