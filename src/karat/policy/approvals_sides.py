"""The sides of a range: where the branch began, its head, and the base as it is now, which says who may approve."""

from __future__ import annotations

from collections.abc import Iterator, Set as AbstractSet
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, Finding, KaratError, Severity, UsageError
from karat.goldens import git
from karat.policy.approvals_settings import CODE_OWNERS, check_approvers, placed_at
from karat.policy.changed_policies import CONFIGURATIONS, Changed, Placed, changed
from karat.policy.changed_policies_data import file_waiver
from karat.policy.changed_policies_files import Side, commit_of, range_of
from karat.policy.changed_policies_waiver import PolicyChange, Waiver
from karat.policy.code_owners import PLACES, CodeOwners, Forge, parse
from karat.policy.reviews import Authors, authors_of, co_authors


class Sides:
    """One range of one repository."""

    def __init__(self, folder: Path, base: str, head: str) -> None:
        self.root = git.ensure_repository(
            folder, next_command="cd REPOSITORY && karat policy approvals --base REV"
        )
        within = folder.resolve().relative_to(self.root.resolve()).as_posix()
        self._within = "" if within == "." else within
        self._asked = base
        self.tip = Side(self.root, commit_of(self.root, base))
        # The base as it is now, not as it was when the branch began: whoever has left may approve nothing.
        self.trusted = placed_at(self.tip, self._within)
        check_approvers(self.trusted, self.tip.commit)
        self.forge: Forge | None = None
        self.move(head)

    def move(self, head: str) -> None:
        """Take another commit for the head."""
        self.span = range_of(self.root, self._asked, head)
        self._before = Side(self.root, self.span.base)
        self._after = Side(self.root, self.span.head)

    def parents(self) -> list[str]:
        """The commits that the head was made from."""
        line = git.run_git(self.root, "rev-list", "--parents", "-n1", self.span.head, "--")
        return line.decode().split()[1:]

    def changes(self) -> Changed:
        """What the range grants; changing who may approve is a grant, too."""
        old, new = self._placed(self._within)
        others, findings = self._other_settings({old.file, new.file})
        found = changed(self.span, old, new, *others)
        extra = [PolicyChange(waiver=waiver) for waiver in self._approving_files()]
        return msgspec.structs.replace(
            found, changes=(*found.changes, *extra), findings=(*found.findings, *findings)
        )

    def owners(self, side: Side | None = None) -> CodeOwners | None:
        """CODEOWNERS of a side, by default of the base as it is now."""
        found = (side or self.tip).first(PLACES[self._kind])
        return parse(found[1].decode("utf-8", "replace"), self._kind) if found else None

    def keys(self) -> bytes | None:
        """Whose keys may sign, as the base has it."""
        return self.tip.read(self.trusted.settings.signers)

    def authors(self) -> Authors:
        """Whose work the range is, by its commits; merges make nobody an author."""
        words = ("log", "-z", "--no-merges", "--format=%H%n%ae%n%ce%n%B")
        out = git.run_git(self.root, *words, f"{self.span.base}..{self.span.head}", "--")
        entries = [entry.decode("utf-8", "replace") for entry in out.split(b"\0") if entry]
        return authors_of(person for entry in entries for person in _people(entry))

    def _other_settings(
        self, mine: AbstractSet[str]
    ) -> tuple[list[tuple[Placed, Placed]], list[Finding]]:
        """Tests further down may be held to settings of their own: whoever adds some is no freer for it."""
        pairs, findings = [], []
        sides = [side.folders_with(CONFIGURATIONS) for side in (self._before, self._after)]
        for folder in sorted(sides[0] | sides[1]):
            try:
                pair = self._placed(folder)
            except (UsageError, CannotVerify) as error:
                # What was no better before is an example of a mistake, perhaps, and grants nothing new.
                if not self._same(folder):
                    findings.append(_unreadable(folder, error))
                continue
            if {pair[0].file, pair[1].file} - mine:
                pairs.append(pair)
        return pairs, findings

    def _same(self, folder: str) -> bool:
        sides = (self._before, self._after)
        entries = [[side.entry(f"{folder}/{name}") for name in CONFIGURATIONS] for side in sides]
        return entries[0] == entries[1]

    def _placed(self, folder: str) -> tuple[Placed, Placed]:
        """The settings that held in a folder, and those that hold now."""
        new = placed_at(self._after, folder)
        try:
            return placed_at(self._before, folder), new
        except UsageError:
            return self.trusted, new  # an old mistake that somebody has put right since

    @property
    def _kind(self) -> Forge:
        if self.forge is not None:
            return self.forge
        return "gitlab" if self.tip.read(PLACES["gitlab"][-1]) is not None else "github"

    def _approving_files(self) -> Iterator[Waiver]:
        """CODEOWNERS and the list of keys, where they count and the range changes them."""
        if any(CODE_OWNERS in people for people in self.trusted.settings.approvers.values()):
            new = self.owners(self._after)
            if self.owners(self._before) != new:
                places = PLACES[self._kind]
                found = self._after.first(places) or self._before.first(places)
                yield file_waiver(found[0] if found else CODE_OWNERS, CODE_OWNERS, repr(new))
        keys = self.trusted.settings.signers
        new_keys = self._after.read(keys)
        if self._before.read(keys) != new_keys:
            yield file_waiver(keys, "keys that may sign", repr(new_keys))


def _unreadable(folder: str, error: KaratError) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=f"settings of {folder}: {error}",
        path=folder,
        next=error.next_command,
    )


def _people(entry: str) -> Iterator[tuple[str, str | None, str]]:
    commit, author, committer, message = entry.split("\n", 3)
    yield author, None, f"wrote commit {commit[:12]}"
    yield committer, None, f"committed {commit[:12]}"
    for email in co_authors(message):
        yield email, None, f"is a co-author of commit {commit[:12]}"
