"""Identity: which golden something is, from job names, artifact names, paths and manifests.

An identity is a mapping such as {"model": "gpt", "case": "gpt3_tp2", "lane": "dev", "platform":
"dgx_h100"}. Each name tells a part of it, and the parts must agree. Values are compared without regard
to case, because CI systems change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from karat.findings import Finding, Severity, fail
from karat.goldens.paths import AGAIN, PathFilter, case_pattern, glob_matcher, identity_of, identity_text
from karat.settings import RefreshSettings
from karat.system.foreign.limits import TEXT, read_plain
from karat.system.names import LONGEST_PART, refusal, shown

Identity = Mapping[str, str]
T = TypeVar("T")

_FORMS = {
    **dict.fromkeys(("run_id", "job_id", "attempt", "shard", "num_shards"), "[0-9]+"),
    "again": AGAIN,
    "uuid": "[0-9a-fA-F-]+",
}
"""Placeholders that take digits only, so that a dash in a name cannot be mistaken for theirs; and `{again}`."""

_OF_ONE_RUN = frozenset({"uuid", "restart", "attempt", "job_id", "run_id"})
"""What tells one execution from another, but not one golden from another."""

_NEVER_COMPARED = _OF_ONE_RUN - {"job_id", "run_id"}  # Names on which identities may differ without a clash.

MANIFEST = "karat-manifest.json"  # Inside an artifact: says what no name tells; where both do, they must agree.
DERIVED = frozenset({"subsuite"})  # Names that another one determines.

Name = Annotated[str, msgspec.Meta(max_length=LONGEST_PART)]
Line = Annotated[str, msgspec.Meta(max_length=1000)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What a manifest may say: a part of a path, a line of text, a number that every reader can hold."""


def placeholders(pattern: str) -> tuple[str, ...]:
    """The names a pattern asks for, in order."""
    return tuple(dict.fromkeys(re.findall(r"\{([a-z_]+)\}", pattern)))


def read_identity(
    texts: Iterable[str],
    patterns: Iterable[str],
    known: Identity | None = None,
    values: Mapping[str, Sequence[str]] | None = None,
) -> Identity | None:
    """The identity that the first fitting pattern reads off the first fitting text, or None.

    What is already known (a run's id) is put into the pattern first, so that it cannot be
    mistaken for a part of a name. Names that have a few `values` only take those.
    """
    choices = list(texts)
    plain = {name: words for name, words in (values or {}).items() if not any(set("*?[") & set(w) for w in words)}
    forms = {**_FORMS, **{name: "|".join(map(re.escape, words)) for name, words in plain.items()}}
    for pattern in patterns:
        filled = pattern
        given = {k: v for k, v in (known or {}).items() if f"{{{k}}}" in pattern}
        for name, value in given.items():
            # Braces in a value would read as a placeholder; no run id has any.
            if "{" not in value and "*" not in value:
                filled = filled.replace(f"{{{name}}}", value)
        whole = case_pattern(filled, tuple(forms.items()))
        for text in choices:
            if (found := whole.match(text)) is not None:
                return {**found, **given}
    return None


def clashes(one: Identity, other: Identity) -> list[str]:
    """The names on which two identities disagree."""
    return [
        name for name in (one.keys() & other.keys()) - _NEVER_COMPARED if one[name].casefold() != other[name].casefold()
    ]


def in_common(one: Identity, other: Identity) -> bool:
    """Whether two identities share a name that says something about the golden."""
    return bool((one.keys() & other.keys()) - (_OF_ONE_RUN - {"job_id"}))


def lasting(identity: Identity) -> Identity:
    """The part of an identity that stays the same from one execution to the next."""
    return {name: value.casefold() for name, value in identity.items() if name not in _OF_ONE_RUN}


def agreed(identities: Sequence[Identity]) -> dict[str, str]:
    """What all of several identities say alike."""
    first = identities[0] if identities else {}
    return {k: v for k, v in first.items() if all(one.get(k) == v for one in identities)}


def renamed(identity: Identity, rename: Mapping[str, Mapping[str, str]]) -> Identity:
    """The identity in the goldens' spelling, with `subsuite` derived from `suite` where it is wanted."""
    values = dict(identity)
    if "suite" in values and "subsuite" in rename and "subsuite" not in values:
        values["subsuite"] = values["suite"].rpartition("_")[2]
    return {name: rename.get(name, {}).get(value, value) for name, value in values.items()}


def is_wanted(identity: Identity, values: Mapping[str, Sequence[str]]) -> bool:
    """Whether every value that is restricted is one of those wanted."""
    return all(
        any(fnmatchcase(identity[name], glob) for glob in globs) for name, globs in values.items() if name in identity
    )


def platform_of(settings: RefreshSettings, *tellers: Iterable[str]) -> Identity:
    """The platform that the first teller of any names, as an identity; none if it names several, or nobody does.

    A machine's labels tell better than names: the suite `cpu_inductor_timm` runs on x86 and on aarch64.
    """
    for texts in tellers:
        lower = [text.casefold() for text in texts]
        globs = settings.platforms.items()
        names = {name for glob, name in globs if any(fnmatchcase(text, glob.casefold()) for text in lower)}
        if names:
            return {"platform": names.pop()} if len(names) == 1 else {}
    return {}


class Filled(msgspec.Struct, frozen=True):
    """A target path, or why there is none."""

    path: str | None
    missing: tuple[str, ...] = ()
    unsafe: str | None = None


def fill(template: str, identity: Identity) -> Filled:
    """The template with every placeholder filled in; a path under which nothing may be written is refused."""
    values = {name: identity.get(name, "") for name in placeholders(template)}
    missing = tuple(name for name, value in values.items() if not value and name != "again")
    path = re.sub(r"\{([a-z_]+)\}", lambda m: values[m[1]], template)
    slashed = [f"{name} = {shown(value)}" for name, value in values.items() if "/" in value]
    wrong = None if missing else refusal(path)
    unsafe = ", ".join(slashed) or (wrong and f"{shown(path)}, which {wrong}")
    return Filled(None if missing or unsafe else path, missing, unsafe)


def target_of_result(path: str, known: Identity, settings: RefreshSettings) -> tuple[str | None, Identity]:
    """The golden that a file on this disk is a result of, by the names that it and the folders around it have.

    The folder may be an artifact as the CI calls it, or the files of one may lie here without it: then `known` has to
    say the rest. Where something is not known, what is known of the case.
    """
    folders = path.split("/")
    tails = [pattern.rpartition("/")[2] for pattern in settings.members]
    ends = ["/".join(folders[n:]) for n in range(len(folders))]
    own = read_identity(ends, settings.members) or read_identity(ends[-1:], tails)
    if own is None or any(map(settings.skips, folders)):
        return None, {}
    artifacts = [name for folder in folders[:-1] for name in (folder, f"{folder}.zip")]
    outer = renamed({**(read_identity(artifacts, settings.artifacts) or {}), **known}, settings.rename)
    identity = {**outer, **renamed(own, settings.rename)}
    if clashes(outer, identity) or not is_wanted(identity, settings.values):
        return None, {}
    identity = {**platform_of(settings, [identity.get("machine", path)]), **identity}
    target = settings.target_of(identity.get("platform", ""))
    return fill(target, identity).path if target else None, identity if outer else {}


class Lookup(Generic[T]):
    """Things with an identity each, found by any part of it without asking each of thousands."""

    def __init__(self, things: Iterable[tuple[Identity, T]]) -> None:
        self._things = list(things)
        self._names = {name for identity, _ in self._things for name in identity} - _NEVER_COMPARED
        # Those without a name agree with whatever it is.
        self._by_value: dict[tuple[str, str | None], list[int]] = {}
        for i, (identity, _) in enumerate(self._things):
            for name in self._names:
                value = identity[name].casefold() if name in identity else None
                self._by_value.setdefault((name, value), []).append(i)

    def agreeing(self, identity: Identity) -> tuple[T, ...]:
        """Everything that shares a name with the identity and disagrees on none, in order."""
        named = {name: identity[name].casefold() for name in identity.keys() & self._names}
        by_value = self._by_value.get
        near = min(([*by_value(one, ()), *by_value((one[0], None), ())] for one in named.items()), key=len, default=[])
        found = (self._things[i] for i in sorted(near))
        return tuple(it for known, it in found if in_common(identity, known) and not clashes(identity, known))


MANIFEST_SCHEMA = "karat.artifact/1"


class ArtifactManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"schema_name": "schema"}):
    """What the job itself says about the files in its artifact, beside what names tell; the two must agree.

    Any job can write one, it is a small JSON file.
    """

    schema_name: str = MANIFEST_SCHEMA
    run_id: Name | Number | None = None
    attempt: Number | None = None
    job: Line | None = None
    job_id: Name | Number | None = None
    conclusion: Name | None = None  # success, failure, cancelled, timed_out, …
    commit: Name | None = None
    platform: Name | None = None
    image: Line | None = None
    identity: Annotated[Mapping[Name, Name], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=dict)
    """Placeholder → value, e.g. model, case, lane."""

    def as_identity(self) -> Identity:
        fields = {"run_id": self.run_id, "job_id": self.job_id, "platform": self.platform}
        return {**{k: str(v) for k, v in fields.items() if v is not None}, **self.identity}


def read_manifest(file: Path, artifact: str) -> ArtifactManifest | Finding:
    """The manifest in a file, or the finding that says why it is none."""
    try:
        manifest = msgspec.json.decode(read_plain(file, TEXT), type=ArtifactManifest)
        if manifest.schema_name == MANIFEST_SCHEMA:
            return manifest
        found = f"found {manifest.schema_name!r}"
    except OSError as error:
        found = f"but: {error.strerror or error}"
    except (ValueError, RecursionError) as error:
        found = f"found: {error}"
    said = f"expected {MANIFEST_SCHEMA} in the manifest of artifact {artifact}, {found}; nothing was taken from it"
    return fail("identity-incomplete", said, path=artifact, next="karat schema karat.artifact/1")


def manifest_for(member: str, manifests: Mapping[str, ArtifactManifest]) -> ArtifactManifest | None:
    """The manifest that speaks for a file: the only one, or of several the nearest around it.

    `manifests` has them by folder. None where several disagree, and none of them lies around the file.
    """
    different = list(manifests.values())
    if all(manifest == different[0] for manifest in different):
        return different[0] if different else ArtifactManifest()
    folder = member.rpartition("/")[0]
    while folder not in manifests and folder:
        folder = folder.rpartition("/")[0]
    return manifests.get(folder)


class Targets:
    """Says which golden an incoming file becomes.

    With `target` configured, the identity fills it in. Without, an existing golden must be recognisable
    by its path: one is the end of the other, and never a file name alone.
    """

    def __init__(
        self, settings: RefreshSettings, is_golden: PathFilter, known: Iterable[str], cases: Sequence[str] = ()
    ) -> None:
        self._settings, self._is_golden, self._cases = settings, is_golden, cases
        self.known = frozenset(known)
        # By the last two parts: thousands of goldens share a file name, few a folder as well.
        self._lookups: dict[str | None, Lookup[tuple[Identity, str]]] = {}
        self._by_name: dict[str, list[str]] = {}
        self._by_tail: dict[tuple[str, ...], list[str]] = {}
        self._by_casefold: dict[str, list[str]] = {}
        for path in sorted(self.known):
            parts = path.split("/")
            self._by_name.setdefault(parts[-1], []).append(path)
            self._by_tail.setdefault(tuple(parts[-2:]), []).append(path)
            self._by_casefold.setdefault(path.casefold(), []).append(path)

    def may_be_golden(self, member: str) -> bool:
        """Whether a file could be a golden by its name, where no pattern says which are."""
        return member.rpartition("/")[2] in self._by_name or self._is_golden(member)

    def find(self, member: str, artifact: str, identity: Identity) -> str | Finding:
        """The golden's path, or the finding that says why it is not known."""

        def refused(kind: str, why: str) -> Finding:
            message = f"{member} of artifact {artifact}: {why}"
            return fail(kind, message, path=member, next="karat config --show-origin")

        target = self._settings.target_of(identity.get("platform", ""))
        if target is None:
            name = member.rpartition("/")[2]
            likely = self._existing(member, artifact, identity)
        else:
            filled, why = fill(target, identity), ""
            if filled.missing:
                by_tree, why = self._told_by_tree(identity, filled.missing)
                filled = fill(target, {**identity, **by_tree})
            if filled.unsafe:
                return refused("archive-refused", f"expected plain names, found {filled.unsafe}")
            if filled.path is None:
                told = (
                    f"{', '.join(filled.missing)}{why}; names and manifest gave {identity_text(identity) or 'nothing'}"
                )
                return refused("identity-incomplete", f"nothing tells its {told}")
            name = filled.path
            # CI systems change upper and lower case.
            alike = self._by_casefold.get(name.casefold())
            likely = [name] if name in self.known or not alike else alike
        if len(likely) != 1:
            alike = self._by_name.get(name)
            why = "there is no golden of that name, and [refresh] target is not set"
            if likely:
                why = f"it may be any of {len(likely)} goldens ({', '.join(likely[:3])}, …)"
            elif alike:
                why = f"only the end of its path fits {alike[0]}, and folders of another name may mean another case"
            return refused("identity-incomplete", why)
        (path,) = likely
        if path not in self.known and any(glob_matcher(glob).fullmatch(path) for glob in self._settings.known_only):
            why = f"there is no golden at {path}, and files of its kind are taken only where one exists"
            return replace(refused("not-a-golden", why), severity=Severity.WARN)
        if not self._is_golden.covers(path):
            return refused("outside-goldens", f"it would go to {path}, which is not under the golden paths")
        return path

    def goldens(self, platform: str) -> Lookup[tuple[Identity, str]]:
        """The tree's goldens with the identities that a platform's target reads off their paths; `cases` without one."""
        target, values = self._settings.target_of(platform), self._settings.values
        if target not in self._lookups:
            read = (
                read_identity([p], [target], values=values) if target else identity_of(p, self._cases)
                for p in self.known
            )
            found = ((identity, path) for identity, path in zip(read, self.known, strict=True) if identity)
            self._lookups[target] = Lookup((one[0], one) for one in found)
        return self._lookups[target]

    def _told_by_tree(self, identity: Identity, missing: Sequence[str]) -> tuple[Identity, str]:
        """The folders of the only place where the tree has the case; else nothing, and why.

        What a file's name tells, such as the platform, is never taken from another golden of the case.
        """
        case, platform = identity.get("case"), identity.get("platform", "")
        folders = (self._settings.target_of(platform) or "").rpartition("/")[0]
        if case is None or not set(missing) <= set(placeholders(folders)):
            return {}, ""
        found = self.goldens(platform).agreeing({"case": case})
        places = sorted({tuple(read[name] for name in missing) for read, _ in found})
        if len(places) == 1:
            return dict(zip(missing, places[0], strict=True)), ""
        under = " and ".join("/".join(place) for place in places[:3])
        return {}, f", and the tree has {case} under {under}" if places else f", and no golden in the tree is of {case}"

    def _existing(self, member: str, artifact: str, identity: Identity) -> list[str]:
        """The existing goldens that share most of a file's path, where nothing disagrees."""
        whole = (member if artifact == "." else f"{artifact}/{member}").split("/")
        if len(whole) == 1:
            # Nothing but the name was given, so the name must do.
            near = self._by_name.get(whole[0], [])
        else:
            near = [*self._by_tail.get(tuple(whole[-2:]), ()), *self._by_tail.get((whole[-1],), ())]
        # One path must be the other's end. An artifact's name is no folder of the repository, so
        # it may disagree; but where several goldens share a file name, it may tell them apart.
        alone = len(self._by_name.get(whole[-1], ())) == 1
        fits = {}
        for path in near:
            parts = path.split("/")
            shared = min(len(whole), len(parts))
            is_end = whole[-shared:] == parts[-shared:] or (alone and f"/{path}".endswith(f"/{member}"))
            if is_end and not clashes(identity, identity_of(path, self._cases)):
                fits[path] = shared
        best = max(fits.values(), default=0)
        return [path for path, shared in fits.items() if shared == best]
