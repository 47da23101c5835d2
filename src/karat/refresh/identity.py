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

import msgspec

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
