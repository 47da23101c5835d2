"""Suspects: every commit between two points, with title, author, time and link.

Those that were taken away count as much as those that were added: a branch may have been set back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from karat.hunt import git_program
from karat.hunt.history import moment
from karat.hunt.links import commit_link
from karat.hunt.mirrors import Mirror
from karat.hunt.point import Point, Suspect
from karat.report.words import printable

# Nothing in a commit can hold a zero byte, so nothing can pass for another field.
_FORM = "%m%x00%H%x00%ct%x00%an%x00%s%x00%b"
_FIELDS = 6
_REVERTS = re.compile(r"This reverts commit ([0-9a-f]{7,64})")


def suspects_between(mirrors: Mapping[str, Mirror], old: Point, new: Point) -> tuple[Suspect, ...]:
    """What lies between two points, oldest first, repository by repository."""
    found: list[Suspect] = []
    for name, mirror in mirrors.items():
        before, after = old.parts.get(name), new.parts.get(name)
        if before and after and before != after:
            found.extend(_of_repository(mirror, before, after))
    return tuple(found)


def _of_repository(mirror: Mirror, old: str, new: str) -> Iterable[Suspect]:
    words = ("-z", "--topo-order", "--reverse", "--left-right", f"--format={_FORM}")
    out = git_program.local(mirror.path, "log", *words, f"{old}...{new}", "--")
    fields = out.decode("utf-8", "replace").split("\0")
    page = mirror.page_url
    for start in range(0, len(fields) - 1, _FIELDS):
        side, commit, time, author, title, body = fields[start : start + _FIELDS]
        yield Suspect(
            part=mirror.name,
            id=commit,
            title=_title(printable(title), body, removed=side == "<"),
            author=printable(author),
            when=moment(int(time)),
            link=commit_link(page, commit, mirror.settings.link),
        )


def _title(title: str, body: str, *, removed: bool) -> str:
    reverted = _REVERTS.search(body)
    noted = f"{title} (reverts {reverted[1][:12]})" if reverted else title
    return f"taken away: {noted}" if removed else noted
