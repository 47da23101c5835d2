"""Targets: the golden that an incoming file becomes.

With `target` configured, the identity fills it in. Without, the golden that already stands must be
recognisable by its path: one is the end of the other, and never a file name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from karat.findings import Finding, Severity
from karat.goldens.paths import PathFilter, glob_regex, identity_of
from karat.refresh.identity import Identity, clashes, fill
from karat.refresh.settings import RefreshSettings


class Targets:
    """Says which golden a file is, from its identity or from the goldens that stand."""

    def __init__(
        self,
        settings: RefreshSettings,
        is_golden: PathFilter,
        known: Iterable[str],
        cases: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._is_golden = is_golden
        self._cases = cases
        self.known = frozenset(known)
        # By the last two parts: thousands of goldens share a file name, few a folder as well.
        self._by_name: dict[str, list[str]] = {}
        self._by_tail: dict[tuple[str, ...], list[str]] = {}
        for path in sorted(self.known):
            parts = path.split("/")
            self._by_name.setdefault(parts[-1], []).append(path)
            self._by_tail.setdefault(tuple(parts[-2:]), []).append(path)
        self._spelt: dict[str, list[str]] = {}
        for path in sorted(self.known):
            self._spelt.setdefault(path.casefold(), []).append(path)

    def may_be_golden(self, member: str) -> bool:
        """Whether a file could be a golden by its name, where no pattern says which are."""
        return member.rpartition("/")[2] in self._by_name or self._is_golden(member)

    def find(self, member: str, artifact: str, identity: Identity) -> str | Finding:
        """The golden's path, or the finding that says why it is not known."""
        if self._settings.target is not None:
            found = self._filled(self._settings.target, member, artifact, identity)
        else:
            found = self._standing(member, artifact, identity)
        return found if isinstance(found, Finding) else self._allowed(found, member, artifact)

    def _filled(
        self, template: str, member: str, artifact: str, identity: Identity
    ) -> str | Finding:
        filled = fill(template, identity)
        if filled.path is not None:
            return self._as_spelt(filled.path, member, artifact)
        if filled.unsafe:
            names = ", ".join(f"{name} = {identity[name]!r}" for name in filled.unsafe)
            return _finding(
                "archive-refused", member, artifact, f"expected plain names, found {names}"
            )
        missing = ", ".join(filled.missing)
        return _finding(
            "identity-incomplete", member, artifact,
            f"nothing tells its {missing}; names and manifest gave {_shown(identity)}",
        )  # fmt: skip

    def _as_spelt(self, path: str, member: str, artifact: str) -> str | Finding:
        """The golden that stands under this path but for upper and lower case, which CI systems change."""
        alike = self._spelt.get(path.casefold(), [])
        if path in self.known or not alike:
            return path
        if len(alike) == 1:
            return alike[0]
        return _finding("identity-incomplete", member, artifact, self._why(alike, path))

    def _standing(self, member: str, artifact: str, identity: Identity) -> str | Finding:
        whole = member if artifact == "." else f"{artifact}/{member}"
        parts = whole.split("/")
        if len(parts) == 1:
            # Nothing but the name was given, so the name must do.
            near = self._by_name.get(parts[0], [])
        else:
            near = [*self._by_tail.get(tuple(parts[-2:]), ()), *self._by_tail.get((parts[-1],), ())]
        alone = len(self._by_name.get(parts[-1], ())) == 1
        scored = [
            (_tail(parts, path.split("/")), path)
            for path in near
            if not clashes(identity, identity_of(path, self._cases))
            and _agrees(parts, member.split("/"), path.split("/"), alone=alone)
        ]
        best = max((score for score, _ in scored), default=0)
        likely = [path for score, path in scored if score == best]
        if len(likely) == 1:
            return likely[0]
        return _finding("identity-incomplete", member, artifact, self._why(likely, parts[-1]))

    def _why(self, likely: Sequence[str], name: str) -> str:
        if len(likely) > 1:
            return f"it may be any of {len(likely)} goldens ({', '.join(likely[:3])}, …)"
        alike = self._by_name.get(name)
        if alike:
            return f"only the end of its path fits {alike[0]}, and folders of another name may mean another case"
        return "no golden of that name stands, and [refresh] target is not set"

    def _allowed(self, path: str, member: str, artifact: str) -> str | Finding:
        if path not in self.known and any(
            glob_regex(glob).fullmatch(path) for glob in self._settings.known_only
        ):
            why = f"no golden stands at {path}, and files of its kind are taken only where one does"
            return _finding("not-a-golden", member, artifact, why, Severity.WARN)
        if not self._is_golden.covers(path):
            return _finding(
                "outside-goldens", member, artifact,
                f"it would go to {path}, which is not under the golden paths",
            )  # fmt: skip
        return path


def _agrees(
    whole: Sequence[str], member: Sequence[str], golden: Sequence[str], *, alone: bool
) -> bool:
    """Whether nothing in two paths disagrees: one of them is the other's end.

    An artifact's name is no folder of the repository's, so it may disagree; but where several goldens
    share a file name, it may be just what tells them apart.
    """
    shared = _tail(whole, golden)
    return shared in {len(whole), len(golden)} or (alone and shared >= len(member))


def _tail(one: Sequence[str], other: Sequence[str]) -> int:
    """How many last parts two paths share."""
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count


def _shown(identity: Identity) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(identity.items())) or "nothing"


def _finding(
    kind: str, member: str, artifact: str, why: str, severity: Severity = Severity.FAIL
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        path=member,
        message=f"{member} of artifact {artifact}: {why}",
        next="karat config --show-origin",
    )
