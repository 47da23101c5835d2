"""CODEOWNERS: who owns a path, as GitHub and as GitLab read the file.

The two agree on little but the file's name. GitHub: gitignore's patterns, the last one that matches wins,
inline comments, lines it cannot read are skipped. GitLab: File.fnmatch's patterns, sections that each
have a say, owners of a section, optional sections, numbers of approvals, exclusions. Pure: text in, owners out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from typing import Literal

import msgspec
from msgspec.structs import replace

from karat.system.foreign import wildcards
from karat.system.foreign.wildcards import Step

ForgeName = Literal["github", "gitlab"]

PLACES: dict[ForgeName, tuple[str, ...]] = {
    "github": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    "gitlab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
}
"""Where each looks, in its order; the first that is there is the only one."""
_WORDS = re.compile(r"(?:\\.|\S)+")
_OWNER = re.compile(r"@{1,2}[\w.-]+(?:/[\w.-]+)*|[^\s@]+@[^\s@]+\.[^\s@]+")
_LONGEST_OWNER = 400
"""Characters of a name; forges and mail have shorter ones, and the expression may take the square of their number."""
_TOKEN = re.compile(
    r"\\(?P<plain>.)|(?P<stars>\*+)|(?P<one>\?)|(?P<set>\[[!^]?[^\]/]{1,256}\])|[^\\*?\[]+|.", re.DOTALL
)
_HEADING = re.compile(r"(\^)?\[([^\]]+)\](?:\[(\d{1,9})\])?(.*)")


class OwnerSection(msgspec.Struct, frozen=True, kw_only=True):
    """Owners of one path that have a say of their own; GitHub knows only one, without a name."""

    owners: tuple[str, ...] = ()
    name: str = ""
    count: int = 1  # How many of them must approve.
    optional: bool = False


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a pattern and its owners; none means that nobody owns what it matches."""

    pattern: str
    owners: tuple[str, ...]
    section: str = ""
    exclusion: bool = False


class CodeOwners(msgspec.Struct, frozen=True, kw_only=True):
    forge: ForgeName
    rules: tuple[Rule, ...]
    headings: dict[str, OwnerSection] = {}

    def of(self, path: str) -> tuple[OwnerSection, ...]:
        """The sections that have owners of the path; none where nobody owns it."""
        found: dict[str, Rule] = {}
        excluded = set()
        for rule in self.rules:
            if matches(rule.pattern, path, self.forge):
                if rule.exclusion:
                    excluded.add(rule.section)
                else:
                    found[rule.section] = rule
        return tuple(
            replace(self.headings.get(name.casefold(), OwnerSection()), name=name, owners=rule.owners)
            for name, rule in found.items()
            if rule.owners and name not in excluded
        )


def parse(text: str, forge: ForgeName) -> CodeOwners:
    """The rules of a file; what the forge would skip is skipped."""
    lines = text.removeprefix("\ufeff").splitlines()
    rules: list[Rule] = []
    if forge == "github":
        for line in lines:
            words = [*takewhile(lambda word: not word.startswith("#"), _WORDS.findall(line))]
            if not words or words[0].startswith(("!", "\\#")) or re.search(r"[\[\]]", words[0]):
                continue  # GitHub says of these that they do not work
            pattern, *names = words
            if all(is_owner(word) and not word.startswith("@@") for word in names):
                rules.append(Rule(pattern=pattern, owners=tuple(names)))
        return CodeOwners(forge=forge, rules=tuple(rules))
    headings: dict[str, OwnerSection] = {}
    spelled: dict[str, str] = {"": ""}
    name = ""
    defaults: tuple[str, ...] = ()
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if heading := _HEADING.fullmatch(line):
            # One section under two headings: what is required once is required.
            key = heading[2].strip().casefold()
            name, defaults = spelled.setdefault(key, heading[2].strip()), _owners(heading[4])
            before = headings.get(key, OwnerSection(optional=True))
            headings[key] = OwnerSection(
                count=max(before.count, int(heading[3] or 1)), optional=before.optional and heading[1] is not None
            )
            continue
        pattern, *_ = _WORDS.findall(line)
        owners = _owners(line[len(pattern) :]) or defaults
        bare = pattern.removeprefix("!")
        rules.append(Rule(pattern=bare, owners=owners, section=name, exclusion=bare != pattern))
    return CodeOwners(forge="gitlab", rules=tuple(rules), headings=headings)


def is_owner(word: str) -> bool:
    """Whether a word names a person or a team: `@user`, `@org/team`, an e-mail address."""
    return len(word) <= _LONGEST_OWNER and _OWNER.fullmatch(word) is not None


def _owners(text: str) -> tuple[str, ...]:
    """GitLab takes whatever looks like an owner, also behind a #."""
    return tuple(word for word in text.split() if is_owner(word))


def matches(pattern: str, path: str, forge: ForgeName) -> bool:
    """Whether a pattern means a path (relative to the root, with slashes)."""
    return wildcards.fits(_steps(pattern, forge), path)


_ANY, _IN_NAME = re.compile(".", re.DOTALL), re.compile("[^/]")


@cache
def _steps(pattern: str, forge: ForgeName) -> tuple[Step, ...]:
    out: list[Step] = []
    below: tuple[Step, ...] = ()
    if forge == "github":
        # Gitignore's patterns; but `docs/*` is what lies in docs itself, and nothing further down.
        parts = pattern.strip("/").split("/")
        if parts == [""]:
            return (wildcards.nothing,)
        if "/" not in pattern.rstrip("/"):
            out.append(wildcards.any_folders)
        if pattern.endswith("/"):
            below = wildcards.words("/"), wildcards.one(_ANY), wildcards.any_number
        elif parts[-1] != "*" or len(parts) == 1:
            below = (wildcards.maybe(wildcards.words("/"), wildcards.any_number),)
    else:
        # File.fnmatch with FNM_PATHNAME and FNM_DOTMATCH, after GitLab's own additions.
        whole = "/**/*" if pattern == "*" else pattern
        whole = whole if whole.startswith("/") else f"/**/{whole}"
        parts = (f"{whole}**/*" if whole.endswith("/") else whole)[1:].split("/")
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**" and forge == "github":
            out += (wildcards.one(_ANY), wildcards.any_number) if last else (wildcards.any_folders,)
        elif part == "**" and not last:
            out.append(wildcards.named_folders)
        else:
            out += [*_segment(part, brackets=forge == "gitlab"), *([] if last else [wildcards.words("/")])]
    return (*out, *below)


def _segment(part: str, *, brackets: bool) -> Iterator[Step]:
    """The part of a pattern between two slashes."""
    yield wildcards.ahead(_IN_NAME)
    for token in _TOKEN.finditer(part):
        if token["plain"]:
            yield wildcards.words(token["plain"])
        elif token["stars"]:
            yield wildcards.within_folder
        elif token["one"]:
            yield wildcards.one(_IN_NAME)
        elif token["set"] and brackets:
            inside = token["set"][1:-1]
            negated = inside[:1] in {"!", "^"}
            listed = re.sub(r"([\[\]\\^&|~])", r"\\\1", inside[1:] if negated else inside)
            # Two hyphens are one that begins or ends a range; Python warns that they may come to mean something else.
            listed = re.sub(r"(?!^)--", r"-\\-", re.sub(r"^--", r"\\--", listed))
            try:
                yield wildcards.one(re.compile(f"(?!/)[{'^' if negated else ''}{listed}]"))
            except re.error:  # a range that ends before it begins matches nothing
                yield wildcards.nothing
        else:
            yield wildcards.words(token[0])
