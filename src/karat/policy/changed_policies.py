"""Changed policies: the waivers that a range of commits adds or makes laxer, by structure and not by text."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence

import msgspec

from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.goldens.paths import glob_regex
from karat.policy.changed_policies_data import (
    baseline_waivers,
    exemption_waivers,
    setting_waivers,
)
from karat.policy.changed_policies_files import Range, Side, Touched, blobs, touched
from karat.policy.changed_policies_names import Names
from karat.policy.changed_policies_pairing import changes
from karat.policy.changed_policies_source import waivers_of
from karat.policy.changed_policies_waiver import PolicyChange, Waiver
from karat.policy.changed_policies_world import World
from karat.policy.scan_source import Unreadable
from karat.policy.settings import PolicySettings

CONFIGURATIONS = ("karat.toml", "pyproject.toml")
"""Files that may say something of the policy, in any folder."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's settings on one side, and the files that they mean, seen from the root."""

    settings: PolicySettings
    file: str = ""
    exemptions: str
    baseline: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a range comes to."""

    changes: tuple[PolicyChange, ...]
    findings: tuple[Finding, ...] = ()
    files: int = 0
    """How many changed Python files were read."""


def changed(span: Range, old: Placed, new: Placed, *others: tuple[Placed, Placed]) -> Changed:
    """Every waiver that the range adds or makes laxer; `others` are settings of other folders, on both sides."""
    pairs = ((old, new), *others)
    lists = {path for _, placed in pairs for path in (placed.exemptions, placed.baseline)}
    reader = _Reader(span, old.settings.tests, lists)
    for one in touched(span):
        reader.note(one)
    before, after, renamed = reader.sources()
    settings: list[Waiver] = []
    for was, now in pairs:
        before += reader.data(Side(span.root, span.base), was, old=True)
        after += reader.data(Side(span.root, span.head), now, old=False)
        # One list under two names is still one list.
        renamed |= {now.exemptions: was.exemptions, now.baseline: was.baseline}
        settings += setting_waivers(was.settings, now.settings, now.file or was.file)
    found = changes(before, after, renamed)
    return Changed(
        changes=(*found, *(PolicyChange(waiver=waiver) for waiver in settings)),
        findings=tuple(reader.findings),
        files=reader.files,
    )


class _Reader:
    """Collects the waivers of both sides; what cannot be read is a finding, and never silence."""

    def __init__(self, span: Range, globs: Sequence[str], lists: set[str]) -> None:
        self.findings: list[Finding] = []
        self.files = 0
        self._span = span
        self._lists = lists
        self._globs = [glob_regex(glob) for glob in globs]
        self._changed: list[Touched] = []
        """Python files, wherever they are."""
        self._touched: list[Touched] = []
        """Those that are looked into."""
        self._worlds = World(span.root, span.base), World(span.root, span.head)

    def note(self, one: Touched) -> None:
        if any(path and path.endswith(".py") for path in (one.old_path, one.new_path)):
            self._changed.append(one)
        if one.detour and one.new_path:
            if one.new_path not in self._lists:  # which are read for themselves
                self._detour(one.new_path, one.detour)
        elif any(path and self._wanted(path) for path in (one.old_path, one.new_path)):
            self._touched.append(one)
            self.files += 1

    def _detour(self, path: str, what: str) -> None:
        """A file behind a link cannot be verified; folders are said, for a data folder would stop every merge."""
        if self._wanted(path) or posixpath.basename(path) in CONFIGURATIONS:
            self._cannot_read(path, self._span.head, f"found {what}, which may lead anywhere")
        elif what == "a submodule" or not Side(self._span.root, self._span.head).leads_to_a_file(
            path
        ):
            said = f"{path} is {what} that the range adds or changes; what is behind it is not looked at"
            self.findings.append(
                Finding(kind="unreadable", severity=Severity.WARN, message=said, path=path)
            )

    def sources(self) -> tuple[list[Waiver], list[Waiver], dict[str, str]]:
        """Waivers of the changed Python files on both sides, and which file was which."""
        oids = [oid for one in self._touched for oid in (one.old, one.new) if oid]
        data = blobs(self._span.root, oids) if oids else {}
        old: list[Waiver] = []
        new: list[Waiver] = []
        renamed: dict[str, str] = {}
        for one in self._touched:
            if one.old and one.old_path and self._wanted(one.old_path):
                old += self._source(data[one.old], one.old_path, old=True)
            if one.new and one.new_path and self._wanted(one.new_path):
                new += self._source(data[one.new], one.new_path, old=False)
            if one.old_path and one.new_path:
                renamed[one.new_path] = one.old_path
        for path in sorted(self._users()):
            before, after = (world.read(path) for world in self._worlds)
            if before is not None and after is not None:
                old += self._source(before, path, old=True)
                new += self._source(after, path, old=False)
        return old, new, renamed

    def _users(self) -> set[str]:
        """Files that did not change, and may mean something else now, because what they import did."""
        paths = {path for one in self._changed for path in (one.old_path, one.new_path) if path}
        before, after = self._worlds
        if not after.mentioning(paths) - paths:
            return set()
        changed = {path: _differing(before.names(path), after.names(path)) for path in paths}
        stirred = [path for path, names in changed.items() if names]
        names = {name for found in changed.values() for name in found}
        found = filter(self._wanted, after.users(stirred, names) - paths)
        return {path for path in found if after.names(path)}  # what is no Python was none before

    def data(self, side: Side, placed: Placed, *, old: bool) -> list[Waiver]:
        """Waivers in exemptions.toml and in the ratchet's list."""
        found: list[Waiver] = []
        if (text := self._bytes(side, placed.exemptions)) is not None:
            waivers, findings = exemption_waivers(text, placed.exemptions)
            found += waivers
            self.findings += () if old else findings
        if (text := self._bytes(side, placed.baseline)) is not None:
            try:
                found += baseline_waivers(text, placed.baseline)
            except UsageError as error:
                if not old:
                    self._cannot_read(placed.baseline, side.commit, str(error))
        return found

    def _bytes(self, side: Side, path: str) -> bytes | None:
        try:
            return side.read(path)
        except CannotVerify as error:
            self._cannot_read(path, side.commit, str(error))
            return None

    def _source(self, data: bytes, path: str, *, old: bool) -> tuple[Waiver, ...]:
        try:
            return waivers_of(data, path, self._worlds[0 if old else 1].loader(path))
        except Unreadable as error:
            said = f"expected Python, found: {error}"
            if old:
                self._unreadable_before(path, said)
            else:
                self._cannot_read(path, self._span.head, said)
            return ()

    def _unreadable_before(self, path: str, said: str) -> None:
        self.findings.append(
            Finding(
                kind="unreadable",
                severity=Severity.INFO,
                message=f"{path} at {self._span.base[:12]}: {said}; all that it grants now counts as added",
                path=path,
            )
        )

    def _cannot_read(self, path: str, commit: str, said: str) -> None:
        self.findings.append(
            Finding(
                kind="cannot-read",
                severity=Severity.FAIL,
                message=f"{path} at {commit[:12]}: {said}; what it grants is not known",
                path=path,
                next=f"git show {commit[:12]}:{shlex.quote(path)}",
            )
        )

    def _wanted(self, path: str) -> bool:
        if not path.endswith(".py"):
            return False
        return not self._globs or any(glob.fullmatch(path) for glob in self._globs)


def _differing(old: Names | None, new: Names | None) -> set[str]:
    """Names that stand for something else now."""
    sides = [names.exports() if names else frozenset[tuple[str, str]]() for names in (old, new)]
    return {name for name, _ in sides[0] ^ sides[1]}
