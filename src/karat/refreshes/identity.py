"""Identity: what names and manifests say about which golden something is.

An identity is a mapping such as {"model": "gpt", "case": "gpt3_tp2", "lane": "dev", "platform":
"dgx_h100"}. Job names, artifact names, paths inside artifacts and manifests each tell a part of it;
the parts must agree. Values are compared without regard to case, because CI systems change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from karat.findings import Finding, Severity
from karat.goldens.paths import PathFilter, glob_regex, identity_of
from karat.refreshes.settings import RefreshSettings

Identity = Mapping[str, str]

NUMBERS = frozenset({"run_id", "job_id", "attempt", "shard", "num_shards"})
"""Placeholders that take digits only, so that a dash in a name cannot be mistaken for theirs."""

OPTIONAL = frozenset({"again"})
"""`{again}` takes `_2nd`, `_3rd`, … or nothing: what a test that runs twice puts behind its file's name."""

_INCIDENTAL = frozenset({"uuid", "restart", "attempt", "job_id", "run_id"})
"""What tells one execution from another, but not one golden from another."""

COMPARED_NEVER = _INCIDENTAL - {"job_id", "run_id"}
"""Names on which identities may differ without a clash."""

_PLACEHOLDER = re.compile(r"(\{[a-z_]+\}|\*\*/)")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]|^\.{0,2}$|^\.git$", re.IGNORECASE)
"""What would leave its folder, or get among git's own files."""


@cache
def pattern_regex(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern with `{name}` placeholders and `**/`."""
    seen: set[str] = set()
    out = []
    for part in _PLACEHOLDER.split(pattern):
        if part == "**/":
            out.append("(?:[^/]+/)*")
        elif _PLACEHOLDER.fullmatch(part):
            name = part[1:-1]
            out.append(f"(?P={name})" if name in seen else f"(?P<{name}>{_form(name)})")
            seen.add(name)
        else:
            out.append(re.escape(part))
    return re.compile("".join(out))


def _form(name: str) -> str:
    if name in NUMBERS:
        return "[0-9]+"
    if name == "again":
        return "(?:_[0-9]+(?:st|nd|rd|th))?"
    return "[0-9a-fA-F-]+" if name == "uuid" else "[^/]+?"


def placeholders(pattern: str) -> tuple[str, ...]:
    """The names a pattern asks for, in order."""
    return tuple(dict.fromkeys(part[1:-1] for part in re.findall(r"\{[a-z_]+\}", pattern)))


def read_identity(
    texts: Iterable[str], patterns: Iterable[str], known: Identity | None = None
) -> Identity | None:
    """The identity that the first fitting pattern reads off the first fitting text, or None.

    What is already known (a run's id) is put into the pattern first, so that it cannot be
    mistaken for a part of a name.
    """
    # Names come from archives that anyone may have made, and patterns take time that grows with them.
    choices = [text for text in texts if _is_of_a_file_system(text)]
    for pattern in patterns:
        regex = pattern_regex(_with_known(pattern, known or {}))
        for text in choices:
            match = regex.fullmatch(text)
            if match:
                return {
                    **match.groupdict(),
                    **{k: v for k, v in (known or {}).items() if f"{{{k}}}" in pattern},
                }
    return None


def _is_of_a_file_system(text: str) -> bool:
    """Whether a name is no longer than a file could be called: nothing longer becomes a golden."""
    return len(text) <= 4096 and all(len(part) <= 255 for part in text.split("/"))


def _with_known(pattern: str, known: Identity) -> str:
    for name, value in known.items():
        # Braces in a value would read as a placeholder; no run id has any.
        if "{" not in value and "*" not in value:
            pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def same(one: str, other: str) -> bool:
    """Whether two values mean the same thing."""
    return one.casefold() == other.casefold()


def clashes(one: Identity, other: Identity) -> list[str]:
    """The names on which two identities disagree."""
    return [
        name
        for name in one.keys() & other.keys()
        if name not in COMPARED_NEVER and not same(one[name], other[name])
    ]


def in_common(one: Identity, other: Identity) -> bool:
    """Whether two identities share a name that says something about the golden."""
    return bool(
        (one.keys() & other.keys()) - _INCIDENTAL | (one.keys() & other.keys() & {"job_id"})
    )


def lasting(identity: Identity) -> Identity:
    """The part of an identity that stays the same from one execution to the next."""
    return {name: value.casefold() for name, value in identity.items() if name not in _INCIDENTAL}


def renamed(identity: Identity, rename: Mapping[str, Mapping[str, str]]) -> Identity:
    """The identity in the goldens' spelling, with `subsuite` derived from `suite` where it is wanted."""
    values = dict(identity)
    if "suite" in values and "subsuite" in rename and "subsuite" not in values:
        values["subsuite"] = values["suite"].rpartition("_")[2]
    return {name: rename.get(name, {}).get(value, value) for name, value in values.items()}


def is_wanted(identity: Identity, values: Mapping[str, Sequence[str]]) -> bool:
    """Whether every value that is restricted is one of those wanted."""
    return all(
        any(fnmatchcase(identity[name], glob) for glob in globs)
        for name, globs in values.items()
        if name in identity
    )


class Filled(msgspec.Struct, frozen=True):
    """A target path, or why there is none."""

    path: str | None
    missing: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()


def fill(template: str, identity: Identity) -> Filled:
    """The template with every placeholder filled in; values that could leave their folder are refused."""
    names = placeholders(template)
    values = {name: identity.get(name, "") for name in names}
    missing = tuple(name for name in names if not values[name] and name not in OPTIONAL)
    unsafe = tuple(name for name in names if values[name] and _UNSAFE.search(values[name]))
    if missing or unsafe:
        return Filled(None, missing, unsafe)
    return Filled(re.sub(r"\{([a-z_]+)\}", lambda m: values[m[1]], template))


# DOC-HERE lookup: Lookup: what agrees with an identity, among thousands, without asking each. Pure.

T = TypeVar("T")


class Lookup(Generic[T]):
    """Things with an identity each, found by any part of it."""

    def __init__(self, things: Iterable[tuple[Identity, T]]) -> None:
        self._things = list(things)
        self._by_value: dict[tuple[str, str], list[int]] = {}
        self._without: dict[str, list[int]] = {}
        names = {name for identity, _ in self._things for name in identity}
        for i, (identity, _) in enumerate(self._things):
            for name in names:
                if name in identity:
                    self._by_value.setdefault((name, identity[name].casefold()), []).append(i)
                else:
                    self._without.setdefault(name, []).append(i)
        self._names = names - COMPARED_NEVER

    def agreeing(self, identity: Identity) -> tuple[T, ...]:
        """Everything that shares a name with the identity and disagrees on none, in order."""
        near = min(
            (
                (
                    self._by_value.get((name, identity[name].casefold()), ()),
                    self._without.get(name, ()),
                )
                for name in identity.keys() & self._names
            ),
            key=lambda found: len(found[0]) + len(found[1]),
            default=((), ()),
        )
        return tuple(
            thing
            for i in sorted((*near[0], *near[1]))
            for known, thing in (self._things[i],)
            if in_common(identity, known) and not clashes(identity, known)
        )


# DOC-HERE manifest: The manifest inside an artifact: what the job itself says about its files.
#
# `karat record --manifest` writes one; any job can, it is a small JSON file. It wins over every name,
# because it was written by whoever knew.

SCHEMA = "karat.artifact/1"
_LARGEST = 1_000_000


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_name": "schema"}):
    """What an artifact says of itself."""

    schema_name: str = SCHEMA
    run_id: str | int | None = None
    attempt: int | None = None
    job: str | None = None
    job_id: str | int | None = None
    conclusion: str | None = None
    commit: str | None = None
    platform: str | None = None
    image: str | None = None
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)

    def as_identity(self) -> Identity:
        """The manifest's part of the identity."""
        told = {"run_id": self.run_id, "job_id": self.job_id, "platform": self.platform}
        plain = {name: str(value) for name, value in told.items() if value is not None}
        return {**plain, **self.identity}


def read_manifest(file: Path, artifact: str) -> Manifest | Finding:
    """The manifest in a file, or the finding that says why it is none."""
    try:
        if file.stat().st_size > _LARGEST:
            return _broken(artifact, f"found {file.stat().st_size:,} bytes")
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        return _broken(artifact, f"found: {error}")
    if manifest.schema_name != SCHEMA:
        return _broken(artifact, f"found {manifest.schema_name!r}")
    return manifest


def manifest_for(member: str, manifests: Mapping[str, Manifest]) -> Manifest | None:
    """The manifest that speaks for a file: the only one, or of several the nearest around it.

    None where several disagree, and none of them lies around the file.
    """
    told = list(manifests.values())
    if all(manifest == told[0] for manifest in told):
        return told[0] if told else Manifest()
    folder = member.rpartition("/")[0]
    while folder not in manifests and folder:
        folder = folder.rpartition("/")[0]
    return manifests.get(folder)


def _broken(artifact: str, found: str) -> Finding:
    return Finding(
        kind="identity-incomplete",
        severity=Severity.FAIL,
        path=artifact,
        message=f"expected {SCHEMA} in the manifest of artifact {artifact}, {found}; nothing was taken from it",
        next="karat schema karat.artifact/1",
    )


# DOC-HERE targets: Targets: the golden that an incoming file becomes.
#
# With `target` configured, the identity fills it in. Without, the golden that already stands must be
# recognisable by its path: one is the end of the other, and never a file name alone.


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
