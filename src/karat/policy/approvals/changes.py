"""The waivers that a range of commits adds or makes laxer, found by structure and not by text; nothing is run.

Waivers stand in Python files, in lists of exemptions, on baselines and in settings, wherever these lie: what a changed file
is, its content says. What cannot be judged to be stricter is a change.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from karat.findings import CannotVerify, Finding, UsageError, fail, info, warn
from karat.goldens.paths import glob_matcher
from karat.policy.approvals.waivers import PolicyChange, Waiver, waivers_of
from karat.policy.exemptions import ExemptionFile, parse as parse_exemptions
from karat.policy.scan.source import Unreadable, parse
from karat.system import git
from karat.system.command import Command
from karat.system.foreign import toml
from karat.system.foreign.limits import SOURCE, TEXT, TooLong

CONFIGURATIONS = ("karat.toml", "pyproject.toml")  # Files that may say something of the policy, in any folder.
_LINK, _SUBMODULE = "120000", "160000"
_DETOURS = {_LINK: "a symbolic link", _SUBMODULE: "a submodule"}
_READ = (".py", ".toml", ".json")  # What a policy may be made of, wherever it lies.
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
    homes, old = renamed or {}, list(old)

    def identity(waiver: Waiver) -> tuple[str, tuple[str, ...]]:
        return homes.get(waiver.path, waiver.path), waiver.identity

    def moved(waiver: Waiver) -> Hashable:  # only a whole definition can be known again
        return (waiver.identity, waiver.grant, waiver.body) if waiver.body and waiver.scope else None

    added, left = _unmatched(old, new, lambda w: (identity(w), w.grant), moved, identity)
    before = {(waiver.path, waiver.identity): waiver for waiver in left}
    return [PolicyChange(waiver=waiver, before=before.pop(identity(waiver), None)) for waiver in added]


def lost_guards(
    old: Iterable[Waiver], new: Iterable[Waiver], renamed: Mapping[str, str] | None = None
) -> list[PolicyChange]:
    """What kept gradients checked on the old side, and has no like on the new one: in its place, moved, or renamed."""
    homes = renamed or {}
    lost, there = _unmatched(
        new,
        old,
        lambda w: (homes.get(w.path, w.path), w.identity),
        lambda w: w.identity,
        lambda w: (w.kind, w.about, w.op, w.body if not w.op else ""),
    )
    now = {guard.identity: guard for guard in there}
    gone = {(guard.path, guard.scope) for guard in lost if guard.kind == "base"}  # with all that stood in them
    return [
        PolicyChange(waiver=now.get(guard.identity, guard), before=guard if guard.identity in now else None)
        for guard in lost
        if guard.kind == "base" or (guard.path, guard.scope.partition(".")[0]) not in gone
    ]


def _unmatched(
    there: Iterable[Waiver], asked: Iterable[Waiver], *keys: Callable[[Waiver], Hashable]
) -> tuple[list[Waiver], list[Waiver]]:
    """Those of `asked` that no other explains by any key and is as lax, in their order; and those that explained none."""
    # The laxest excuses most, so it is the first to be used, and by the laxest.
    left, waiting = (sorted(side, key=lambda w: tuple(-amount for amount in w.amounts)) for side in (there, asked))
    order = {id(waiver): place for place, waiver in enumerate(asked)}
    for key in keys:
        by_key: dict[Hashable, list[Waiver]] = defaultdict(list)
        for one in left:
            by_key[key(one)].append(one)
        rest, taken = [], set[int]()
        for waiver in waiting:
            alike = by_key[key(waiver)] if key(waiver) is not None else []
            found = next((one for one in alike if waiver.no_laxer_than(one)), None)
            if found is None:
                rest.append(waiver)
            else:
                alike.remove(found)
                taken.add(id(found))
        waiting, left = rest, [one for one in left if id(one) not in taken]
    return sorted(waiting, key=lambda waiver: order[id(waiver)]), left


def file_waiver(path: str, what: str, value: str, shown: str = "who may approve") -> Waiver:
    return Waiver(rule="policy", kind="setting", path=path, about=what, value=value, shown=shown)


class Range(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    base: str  # The commit that the branch began at.
    head: str


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    paths: tuple[str, str]  # Before and after; the same, unless it was renamed.
    oids: tuple[str | None, str | None]  # None: it is not there on that side, or no plain file.
    detour: str = ""
    """`a symbolic link` or `a submodule`, where it is one on the new side: what is behind it is not here."""


def changed_files(span: Range) -> Iterator[ChangedFile]:
    """Every file that differs, renames followed."""
    options = ("-r", "-z", "--raw", "--no-abbrev", "--find-renames")
    out = git.run_git(span.root, "diff-tree", *options, span.base, span.head, "--")
    fields = iter(out.split(b"\0"))
    for meta in filter(None, fields):
        old_mode, new_mode, old, new, status = meta.lstrip(b":").decode().split(" ")
        first = os.fsdecode(next(fields))
        second = os.fsdecode(next(fields)) if status[0] in "RC" else first
        was, is_ = (mode not in {"000000", *_DETOURS} for mode in (old_mode, new_mode))
        yield ChangedFile(
            paths=(first, second), oids=(old if was else None, new if is_ else None), detour=_DETOURS.get(new_mode, "")
        )


class CommitTree:
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

    def first(self, paths: Sequence[str]) -> tuple[str, bytes] | None:
        found = ((path, self.read(path)) for path in paths)
        return next(((path, data) for path, data in found if data is not None), None)


def range_of(root: Path, base: str, head: str) -> Range:
    """From where the two have parted to the head."""
    new = commit_of(root, head)
    old = commit_of(root, base)
    try:
        begin = git.run_git(root, "merge-base", old, new).decode().strip()
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


class RangeChanges(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[PolicyChange, ...]
    findings: tuple[Finding, ...] = ()
    files: int = 0  # How many changed Python files were read.


def policy_changes(span: Range, globs: Sequence[str], lists: Collection[str] = ()) -> RangeChanges:
    """Every waiver that the range adds or makes laxer.

    `globs`: which Python files are looked into, all without any; `lists`: where exemptions and baseline are said to be.
    """
    reader = _WaiverCollector(span, globs, lists)
    (old_guards, old_grants), (new_guards, new_grants) = (
        ([w for w in side if w.guard], [w for w in side if not w.guard]) for side in reader.waivers
    )
    renamed = {one.paths[1]: one.paths[0] for one in reader.changed}
    back = {old: new for new, old in renamed.items()}
    found = [*added_grants(old_grants, new_grants, renamed), *lost_guards(old_guards, new_guards, back)]
    return RangeChanges(changes=tuple(found), findings=tuple(reader.findings), files=reader.files)


class _WaiverCollector:
    """Collects the waivers of both sides; what cannot be read is a finding, and never silence."""

    def __init__(self, span: Range, globs: Sequence[str], lists: Collection[str]) -> None:
        self.findings: list[Finding] = []
        self.files = 0
        self.changed = [*changed_files(span)]
        self.waivers: tuple[list[Waiver], list[Waiver]] = [], []
        self._span = span
        self._lists = lists
        self._globs = [glob_matcher(glob) for glob in globs]
        plain = [one for one in self.changed if any(one.oids)]
        for one in (one for one in self.changed if one.detour):
            path = one.paths[1]
            leads = any(f"{known}/".startswith(f"{path}/") for known in self._lists)
            if leads or (path.endswith(_READ) and one.detour != "a submodule"):
                self._unreadable(path, 1, f"found {one.detour}, which may lead anywhere")
            else:  # folders are only reported: a data folder would stop every merge
                text = f"{path} is {one.detour} that the range adds or changes; what is behind it is not checked"
                self.findings.append(warn("unreadable", text, path=path))
        oids = [oid for one in plain for oid in one.oids if oid]
        with closing(git.Blobs(self._span.root)) as reader:
            data = dict(zip(oids, reader.read(oids, SOURCE.value()), strict=True))
        for one in plain:
            both = [self._content(one, at, data) for at in (0, 1)]
            self.files += any(map(self._wanted, one.paths))
            for at, (content, path) in enumerate(zip(both, one.paths, strict=True)):
                if not path.endswith(".py"):
                    self.waivers[at].extend(self._listed(content, path, at))
                elif content is not None and self._wanted(path):
                    try:
                        self.waivers[at].extend(waivers_of(parse(content), path))
                    except Unreadable as error:
                        self._unreadable(path, at, f"expected Python, found: {error}")
            if posixpath.basename(one.paths[1]) in CONFIGURATIONS:
                self._settings(one.paths[1], both)

    def _content(self, one: ChangedFile, at: int, data: Mapping[str, bytes | int | None]) -> bytes | None:
        oid, path = one.oids[at], one.paths[at]
        found = data[oid] if oid else b""
        if found is None:
            fetch = Command("git", "-C", str(self._span.root), "fetch", "--refetch")
            raise CannotVerify(f"this clone lacks the object {oid}", next_command=fetch)
        if isinstance(found, int):
            if self._wanted(path) if path.endswith(".py") else path.endswith(".toml") or path in self._lists:
                self._unreadable(path, at, str(TooLong(path, found, SOURCE).strerror))
            return None
        return found if oid else None

    def _settings(self, path: str, both: Sequence[bytes | None]) -> None:
        """Every key of [policy] that says something else now; which of that is laxer is for people to say."""
        tables: list[Mapping[str, Any]] = []
        for data in both:
            found: Any = None
            try:
                found = toml.loads((data or b"").decode("utf-8"))
            except ValueError as error:
                if data is both[1]:  # an old mistake that somebody has put right grants nothing
                    self._unreadable(path, 1, f"expected TOML, found: {error}")
            for key in ("tool", "karat", "policy") if path.endswith("pyproject.toml") else ("policy",):
                found = found.get(key) if isinstance(found, dict) else None
            tables.append(found if isinstance(found, dict) else {})
        old, new = tables
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                value = msgspec.json.encode(new.get(key), order="sorted").decode()
                self.waivers[1].append(file_waiver(path, f"[policy] {key}", value, value))

    def _listed(self, data: bytes | None, path: str, at: int) -> Iterator[Waiver]:
        """Waivers on a list of exemptions or a baseline; nothing of any other file."""
        from karat.policy.gate.lists import BASELINE

        if data is not None and b"exemption" in data:
            try:
                is_list = "exemption" in toml.loads(data.decode("utf-8"))
            except ValueError:
                is_list = path.endswith(".toml") and posixpath.basename(path) not in CONFIGURATIONS
            found = parse_exemptions(data, path) if is_list else ExemptionFile()
            self.findings += found.findings if at else ()
            # An earlier end and a smaller bound are stricter; whatever else changes is another exemption.
            for entry in found.entries:
                ends = float(entry.expires.toordinal()) if entry.expires else inf
                bounds = (entry.max_relative_error or 0.0, entry.nondeterminism_bound or 0.0)
                words = (entry.kind, entry.reason, entry.owner, entry.issue or "")
                until = f", until {entry.expires.isoformat()}" if entry.expires else ""
                limit = f", up to {max(bounds):g}" if max(bounds) else ""
                yield Waiver(
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
        if data is not None and BASELINE.schema.encode() in data:
            try:
                ops = BASELINE.parse(data, path)
                yield from (Waiver(rule="baseline", kind="baseline", path=path, about="baseline", op=op) for op in ops)
            except UsageError as error:
                if at and (path.endswith(".json") or path in self._lists):
                    self._unreadable(path, at, str(error))

    def _unreadable(self, path: str, at: int, why: str) -> None:
        commit = (self._span.base, self._span.head)[at][:12]
        if at == 0:
            text = f"{path} at {commit}: {why}; all that it grants now counts as added"
            self.findings.append(info("unreadable", text, path=path))
        else:
            show = Command("git", "show", f"{commit}:{path}")
            text = f"{path} at {commit}: {why}; what it grants is unknown"
            self.findings.append(fail("cannot-read", text, path=path, next=show))

    def _wanted(self, path: str) -> bool:
        return path.endswith(".py") and (not self._globs or any(glob.fullmatch(path) for glob in self._globs))
