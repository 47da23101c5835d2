"""The waivers that a range of commits adds or makes laxer, found by structure and not by text; nothing is run.

Waivers stand in Python files, in exemptions.toml, on the baseline, and in karat.toml.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from math import inf
from pathlib import Path, PurePosixPath

import msgspec

from karat.findings import CannotVerify, Finding, UsageError, fail, info, warn
from karat.goldens.paths import glob_matcher
from karat.policy.approvals.names import CommitFiles
from karat.policy.approvals.waivers import PolicyChange, Waiver, waivers_of
from karat.policy.exemptions import parse
from karat.policy.scan.source import Unreadable
from karat.policy.settings import PolicySettings
from karat.system import git
from karat.system.command import Command
from karat.system.foreign.limits import SOURCE, TEXT, TooLong

CONFIGURATIONS = ("karat.toml", "pyproject.toml")  # Files that may say something of the policy, in any folder.
Key = Callable[[Waiver], Hashable]
_LINK, _SUBMODULE = "120000", "160000"
_DETOURS = {_LINK: "a symbolic link", _SUBMODULE: "a submodule"}
_SHORT_FOR = ("refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")
"""What git takes a short name for, the first that is there; tags come before branches."""
_STEPS = re.compile(r"[~^@:].*", re.DOTALL)


def added_grants(
    old: Iterable[Waiver], new: Iterable[Waiver], renamed: Mapping[str, str] | None = None
) -> list[PolicyChange]:
    """What the new side grants and the old one did not, in the new side's order.

    `renamed`: new path → old path. Each old waiver explains one new one: what stands unchanged in its file, or
    moved to another with all of its definition, is no change, and neither is what became stricter or went away.
    """
    left, waiting = list(old), list(new)
    order = {id(w): i for i, w in enumerate(waiting)}
    homes = {id(w): (renamed or {}).get(w.path, w.path) for w in waiting}

    def place(waiver: Waiver) -> str:
        return homes.get(id(waiver), waiver.path)

    waiting, _ = _pair(left, waiting, lambda w: (place(w), w.identity, w.grant))
    # The same in another file: only a whole definition can be known again.
    waiting, _ = _pair(left, waiting, lambda w: (w.identity, w.grant, w.body) if w.body and w.scope else None)
    waiting, same = _pair(left, waiting, lambda w: (place(w), w.identity))
    found = [PolicyChange(waiver=w, before=before) for w, before in same if not w.no_laxer_than(before)]
    waiting, same = _pair(left, waiting, lambda w: (place(w), w.rule, w.kind, w.scope, w.about, w.grant))
    for waiver, before in same:
        note = f"it was about op {before.op or '(unnamed)'}, and is about {waiver.op or '(unnamed)'}"
        found.append(PolicyChange(waiver=waiver, before=before, note=note))
    waiting, same = _pair(left, waiting, lambda w: (place(w), w.rule, w.kind, w.about, w.grant))
    for waiver, before in same:
        note = f"it stood on {before.scope or 'the module'}; under another name it is approved again"
        note = f"its scope was {before.scope}" if waiver.kind == "exemption" else note
        found.append(PolicyChange(waiver=waiver, before=before, note=note))
    found += [PolicyChange(waiver=w) for w in waiting]
    return sorted(found, key=lambda change: order[id(change.waiver)])


def lost_guards(old: Iterable[Waiver], new: Iterable[Waiver]) -> list[PolicyChange]:
    """What kept gradients checked on the old side, and has no like on the new one: in its place, moved, or renamed."""
    keys: tuple[Key, ...] = (
        lambda w: (w.path, w.identity),
        lambda w: w.identity,
        lambda w: (w.kind, w.about, w.op, w.body if not w.op else ""),
    )
    lost, there = list(old), list(new)
    for key in keys:
        by_key: dict[Hashable, list[Waiver]] = defaultdict(list)
        for guard in there:
            by_key[key(guard)].append(guard)
        waiting, lost, taken = lost, [], set[int]()
        for guard in waiting:
            alike = by_key[key(guard)]
            found = next((one for one in alike if guard.no_laxer_than(one)), None)
            if found is None:
                lost.append(guard)
            else:
                alike.remove(found)
                taken.add(id(found))
        there = [guard for guard in there if id(guard) not in taken]
    now = {guard.identity: guard for guard in there}
    gone = {(guard.path, guard.scope) for guard in lost if guard.kind == "base"}  # with all that stood in them
    return [
        PolicyChange(waiver=now.get(guard.identity, guard), before=guard if guard.identity in now else None)
        for guard in lost
        if guard.kind == "base" or (guard.path, guard.scope.partition(".")[0]) not in gone
    ]


def _laxness(waiver: Waiver) -> tuple[float, ...]:
    return tuple(-amount for amount in waiver.amounts)


def _pair(left: list[Waiver], waiters: list[Waiver], key: Key) -> tuple[list[Waiver], list[tuple[Waiver, Waiver]]]:
    """New waivers without an old one of the same key, and those with one, which is taken off `left`; None is nobody's key."""
    by_key: dict[Hashable, deque[Waiver]] = defaultdict(deque)
    # The laxest excuses most, so it is the first to be used, and by the laxest.
    for candidate in sorted(left, key=_laxness):
        by_key[key(candidate)].append(candidate)
    by_key.pop(None, None)
    rest: list[Waiver] = []
    paired: list[tuple[Waiver, Waiver]] = []
    for waiver in sorted(waiters, key=_laxness):
        if same := by_key.get(key(waiver)):
            paired.append((waiver, same.popleft()))
        else:
            rest.append(waiver)
    gone = {id(before) for _, before in paired}
    left[:] = [w for w in left if id(w) not in gone]
    return rest, paired


def exemption_waivers(data: bytes, path: str) -> tuple[list[Waiver], tuple[Finding, ...]]:
    """The entries of exemptions.toml, and what is wrong with the others, which cover nothing.

    An earlier end and a smaller bound are stricter; whatever else changes is another exemption.
    """
    found = parse(data, path)
    waivers = []
    for entry in found.entries:
        ends = float(entry.expires.toordinal()) if entry.expires else inf
        bounds = (entry.max_relative_error or 0.0, entry.nondeterminism_bound or 0.0)
        words = (entry.kind, entry.reason, entry.owner, entry.issue or "")
        until = f", until {entry.expires.isoformat()}" if entry.expires else ""
        limit = f", up to {max(bounds):g}" if max(bounds) else ""
        waivers.append(
            Waiver(
                rule=entry.rule,
                kind="exemption",
                path=path,
                line=entry.line,
                scope=entry.scope,
                op=entry.op,
                about=f"exemption from {entry.rule}",
                amounts=(ends, *bounds),
                value=msgspec.json.encode([" ".join(word.split()) for word in words]).decode(),
                shown=f"{entry.kind}: {' '.join(entry.reason.split())} ({entry.owner}{until}{limit})",
            )
        )
    return waivers, found.findings


def setting_waivers(old: PolicySettings, new: PolicySettings, path: str) -> list[Waiver]:
    """What the new settings no longer ask for; stricter ones are no waiver."""
    found = [("exclude", glob) for glob in new.exclude if glob not in old.exclude]
    found += [("namespaces", f"without {n}") for n in old.namespaces if n not in new.namespaces]
    found += [("devices", f"without {n}") for n in old.devices if n not in new.devices]
    if new.tests != old.tests:
        found.append(("tests", ", ".join(new.tests) or "every Python file"))
    was, now = ({k: set(v) for k, v in each.approvers.items()} for each in (old, new))
    if was != now:
        people = (f"{rule}: {', '.join(who)}" for rule, who in sorted(new.approvers.items()))
        found.append(("approvers", "; ".join(people) or "nobody"))
    for key in ("signers", "forge", "evidence"):
        if getattr(new, key) != getattr(old, key):
            found.append((key, getattr(new, key) or "by the CI's variables"))
    if old.complete and not new.complete:
        found.append(("complete", "false"))
    return [
        Waiver(rule="policy", kind="setting", path=path, about=f"[policy] {key}", value=value, shown=value)
        for key, value in found
    ]


def file_waiver(path: str, what: str, value: str) -> Waiver:
    """A file that says who may approve."""
    return Waiver(rule="policy", kind="setting", path=path, about=what, value=value, shown="who may approve")


class Range(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    base: str  # The commit that the branch began at.
    head: str


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs between the two; None: it is not there on that side."""

    old_path: str | None
    new_path: str | None
    old: str | None
    new: str | None
    detour: str = ""
    """`a symbolic link` or `a submodule`, where it is one on the new side: what is behind it is not here."""


def changed_files(span: Range) -> list[ChangedFile]:
    """Every file that differs, renames followed."""
    options = ("-r", "-z", "--raw", "--no-abbrev", "--find-renames")
    out = git.run_git(span.root, "diff-tree", *options, span.base, span.head, "--")
    fields = iter(out.split(b"\0"))
    found = []
    for meta in filter(None, fields):
        old_mode, new_mode, old, new, status = meta.lstrip(b":").decode().split(" ")
        first = os.fsdecode(next(fields))
        second = os.fsdecode(next(fields)) if status[0] in "RC" else first
        was, is_ = (mode not in {"000000", *_DETOURS} for mode in (old_mode, new_mode))
        found.append(
            ChangedFile(
                old_path=first if was else None,
                old=old if was else None,
                new=new if is_ else None,
                new_path=second if is_ or new_mode in _DETOURS else None,
                detour=_DETOURS.get(new_mode, ""),
            )
        )
    return found


class CommitTree:
    """The files of one commit, read by path."""

    def __init__(self, root: Path, commit: str) -> None:
        self._root = root
        self.commit = commit

    def read(self, path: str) -> bytes | None:
        entry = self.entry(path)
        # What is not in the tree may still be on the disk, behind a folder that is a link or a submodule.
        above = [] if entry else list(PurePosixPath(path).parents)[:-1]
        for place in (path, *(folder.as_posix() for folder in above)):
            mode = (self.entry(place) if above else entry)[:6].decode()
            if mode == _LINK or (place != path and mode in _DETOURS):
                raise CannotVerify(
                    f"expected a file at {path} of {self.commit[:12]}, found {_DETOURS[mode]} at {place}, which may lead anywhere",
                    next_command=Command("git", "ls-tree", self.commit[:12], "--", place),
                )
        if not entry:
            return None
        _, kind, oid = entry.partition(b"\t")[0].decode().split(" ")
        try:
            return git.read_blob(self._root, oid, TEXT) if kind == "blob" else None
        except TooLong as error:
            show = Command("git", "ls-tree", "-l", self.commit[:12], "--", path)
            raise CannotVerify(f"{path} of {self.commit[:12]}: {error.strerror}", next_command=show) from error

    def entry(self, path: str) -> bytes:
        """What git's tree says of a path: mode, kind and object; nothing where it is not."""
        words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", self.commit, "--", path)
        return git.run_git(self._root, *words).rstrip(b"\0")

    def folders_with(self, names: Collection[str]) -> set[str]:
        """Folders that hold a file of one of these names, seen from the root."""
        paths = map(PurePosixPath, git.tree_paths(self._root, self.commit))
        return {str(path.parent).removeprefix(".") for path in paths if path.name in names}

    def leads_to_a_file(self, path: str) -> bool:
        """Whether a symbolic link leads to a plain file of the same commit."""
        oid = self.entry(path).partition(b"\t")[0].split(b" ")[-1].decode()
        target = os.fsdecode(git.run_git(self._root, "cat-file", "blob", oid))
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return not aim.startswith(("/", "..")) and self.entry(aim)[:3] == b"100"

    def first(self, paths: Sequence[str]) -> tuple[str, bytes] | None:
        """The first of these files that is there."""
        found = ((path, self.read(path)) for path in paths)
        return next(((path, data) for path, data in found if data is not None), None)


def range_of(root: Path, base: str, head: str) -> Range:
    """From where the two have parted to the head."""
    new = commit_of(root, head)
    old = commit_of(root, base)
    try:
        begin = git.merge_base(root, old, new)
    except CannotVerify as error:
        raise CannotVerify(
            f"{base} and {head} have no commit in common (a shallow clone has no history)",
            next_command=Command("git", "-C", str(root), "fetch", "--unshallow", "origin"),
        ) from error
    return Range(root=root, base=begin, head=new)


def commit_of(root: Path, revision: str) -> str:
    """The commit that a revision names; a clear error if there is none."""
    out = git.resolve(root, f"{revision}^{{commit}}")
    if out is None:
        remote, slash, branch = revision.partition("/")
        fetch = Command("git", "fetch", *((remote, branch) if slash else ("--all",)))
        raise CannotVerify(f"there is no commit {revision!r} here", next_command=fetch)
    # Whoever may push a tag could call it origin/main, and appoint approvers there.
    short = _STEPS.sub("", revision)
    names = [rule.format(short) for rule in _SHORT_FOR] if short not in {"", "HEAD"} else []
    asked = ("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "--", *names)
    lines = git.run_git(root, *asked).decode("utf-8", "replace").splitlines() if names else []
    found = {name: oids.split()[-1] for name, _, oids in (line.partition(" ") for line in lines)}
    meant = {name: oid for name, oid in found.items() if name in names}
    if len(set(meant.values())) > 1:
        raise CannotVerify(
            f"expected {short!r} to name one commit, found {' and '.join(sorted(meant))}, which differ; "
            "write the full name of the one you mean",
            next_command=Command("git", "show-ref", short),
        )
    return out


class PlacedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's settings on one side, and the files that they mean, seen from the root."""

    settings: PolicySettings
    file: str = ""
    exemptions: str
    baseline: str


class RangeChanges(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[PolicyChange, ...]
    findings: tuple[Finding, ...] = ()
    files: int = 0  # How many changed Python files were read.


def policy_changes(
    span: Range, old: PlacedSettings, new: PlacedSettings, *others: tuple[PlacedSettings, PlacedSettings]
) -> RangeChanges:
    """Every waiver that the range adds or makes laxer; `others` are settings of other folders, on both sides."""
    pairs = ((old, new), *others)
    lists = {path for _, placed in pairs for path in (placed.exemptions, placed.baseline)}
    reader = _WaiverCollector(span, old.settings.tests, lists)
    for one in changed_files(span):
        reader.note(one)
    before, after, renamed = reader.sources()
    settings: list[Waiver] = []
    for was, now in pairs:
        before += reader.data(CommitTree(span.root, span.base), was, old=True)
        after += reader.data(CommitTree(span.root, span.head), now, old=False)
        # One list under two names is still one list.
        renamed |= {now.exemptions: was.exemptions, now.baseline: was.baseline}
        settings += setting_waivers(was.settings, now.settings, now.file or was.file)
    (old_guards, old_grants), (new_guards, new_grants) = (
        ([w for w in side if w.guard], [w for w in side if not w.guard]) for side in (before, after)
    )
    found = [*added_grants(old_grants, new_grants, renamed), *lost_guards(old_guards, new_guards)]
    return RangeChanges(
        changes=(*found, *(PolicyChange(waiver=waiver) for waiver in settings)),
        findings=tuple(reader.findings),
        files=reader.files,
    )


class _WaiverCollector:
    """Collects the waivers of both sides; what cannot be read is a finding, and never silence."""

    def __init__(self, span: Range, globs: Sequence[str], lists: set[str]) -> None:
        self.findings: list[Finding] = []
        self.files = 0
        self._span = span
        self._lists = lists
        self._globs = [glob_matcher(glob) for glob in globs]
        self._changed: list[ChangedFile] = []  # Python files, wherever they are.
        self._touched: list[ChangedFile] = []  # Those that are looked into.
        self._commits = CommitFiles(span.root, span.base), CommitFiles(span.root, span.head)

    def note(self, one: ChangedFile) -> None:
        if any(path and path.endswith(".py") for path in (one.old_path, one.new_path)):
            self._changed.append(one)
        if one.detour and one.new_path:
            path = one.new_path
            if path in self._lists:
                return  # they are read for themselves
            if self._wanted(path) or posixpath.basename(path) in CONFIGURATIONS:
                self._cannot_read(path, self._span.head, f"found {one.detour}, which may lead anywhere")
            # Folders are only reported: a data folder would stop every merge.
            elif one.detour == "a submodule" or not CommitTree(self._span.root, self._span.head).leads_to_a_file(path):
                text = f"{path} is {one.detour} that the range adds or changes; what is behind it is not checked"
                self.findings.append(warn("unreadable", text, path=path))
        elif any(path and self._wanted(path) for path in (one.old_path, one.new_path)):
            self._touched.append(one)
            self.files += 1

    def sources(self) -> tuple[list[Waiver], list[Waiver], dict[str, str]]:
        """Waivers of the changed Python files on both sides, and which file was which."""
        oids = [oid for one in self._touched for oid in (one.old, one.new) if oid]
        data: dict[str, bytes | int] = {}
        with closing(git.Blobs(self._span.root)) as reader:
            for oid, found in zip(oids, reader.read(oids, SOURCE.value()), strict=True):
                if found is None:
                    fetch = Command("git", "-C", str(self._span.root), "fetch", "--refetch")
                    raise CannotVerify(f"this clone lacks the object {oid}", next_command=fetch)
                data[oid] = found
        old: list[Waiver] = []
        new: list[Waiver] = []
        for one in self._touched:
            if one.old and one.old_path and self._wanted(one.old_path):
                old += self._source(data[one.old], one.old_path, old=True)
            if one.new and one.new_path and self._wanted(one.new_path):
                new += self._source(data[one.new], one.new_path, old=False)
        renamed = {one.new_path: one.old_path for one in self._touched if one.old_path and one.new_path}
        for path in sorted(self._users()):
            before, after = (commit.read(path) for commit in self._commits)
            if before is not None and after is not None:
                old += self._source(before, path, old=True)
                new += self._source(after, path, old=False)
        return old, new, renamed

    def _users(self) -> set[str]:
        """Files that did not change, and may mean something else now, because what they import did."""
        paths = {path for one in self._changed for path in (one.old_path, one.new_path) if path}
        _, after = self._commits
        if not after.mentioning(paths) - paths:
            return set()
        changed: dict[str, set[str]] = {}  # File → its names that stand for something else now.
        for path in paths:
            old, new = (
                names.exports() if (names := commit.names(path)) else frozenset[tuple[str, str]]()
                for commit in self._commits
            )
            changed[path] = {name for name, _ in old ^ new}
        affected = [path for path, names in changed.items() if names]
        found = filter(self._wanted, after.users(affected, set().union(*changed.values())) - paths)
        return {path for path in found if after.names(path)}  # what is no Python was none before

    def data(self, side: CommitTree, placed: PlacedSettings, *, old: bool) -> list[Waiver]:
        """Waivers in exemptions.toml and on the baseline."""
        from karat.policy.gate.baseline import parse as parse_baseline

        found: list[Waiver] = []
        if (text := self._bytes(side, placed.exemptions)) is not None:
            waivers, findings = exemption_waivers(text, placed.exemptions)
            found += waivers
            self.findings += () if old else findings
        if (text := self._bytes(side, placed.baseline)) is not None:
            try:
                ops = parse_baseline(text, placed.baseline)
                path = placed.baseline
                found += [Waiver(rule="baseline", kind="baseline", path=path, about="baseline", op=op) for op in ops]
            except UsageError as error:
                if not old:
                    self._cannot_read(placed.baseline, side.commit, str(error))
        return found

    def _bytes(self, side: CommitTree, path: str) -> bytes | None:
        try:
            return side.read(path)
        except CannotVerify as error:
            self._cannot_read(path, side.commit, str(error))
            return None

    def _source(self, data: bytes | int, path: str, *, old: bool) -> tuple[Waiver, ...]:
        try:
            if isinstance(data, int):
                raise Unreadable(str(TooLong(path, data, SOURCE).strerror))  # noqa: TRY301 - told like any other
            return waivers_of(data, path, self._commits[0 if old else 1].loader(path))
        except Unreadable as error:
            why = f"expected Python, found: {error}"
            if old:
                text = f"{path} at {self._span.base[:12]}: {why}; all that it grants now counts as added"
                self.findings.append(info("unreadable", text, path=path))
            else:
                self._cannot_read(path, self._span.head, why)
            return ()

    def _cannot_read(self, path: str, commit: str, why: str) -> None:
        text = f"{path} at {commit[:12]}: {why}; what it grants is unknown"
        show = Command("git", "show", f"{commit[:12]}:{path}")
        self.findings.append(fail("cannot-read", text, path=path, next=show))

    def _wanted(self, path: str) -> bool:
        if not path.endswith(".py"):
            return False
        return not self._globs or any(glob.fullmatch(path) for glob in self._globs)
