"""Values: any list of texts as a timeline; the command finds its own in `{value}` and $KARAT_VALUE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from karat.engines.job import Command
from karat.findings import Finding, UsageError
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.probe.jobs import fill_in
from karat.hunts.settings import HuntSettings, Stage, ValueSettings
from karat.hunts.timelines.timeline import Workspace


class Values:
    """A list of texts, in the order in which they were written down."""

    name = "values"

    def __init__(self, texts: Sequence[str], root: Path) -> None:
        self.points: Sequence[Point] = [_point(text) for text in texts]
        self.findings: Sequence[Finding] = ()
        self._root = root

    def identity(self, point: Point) -> Mapping[str, str]:
        """The value itself, unless `identify` says that another `value` was under test."""
        return {"value": point.parts["value"]}

    def prepare(self, point: Point) -> Sequence[Command]:  # noqa: ARG002 - a timeline's signature
        """There is nothing to bring there."""
        return ()

    def command(self, point: Point, command: Command) -> Command:
        """The command in hunt.toml's folder, with the value in its words and its environment."""
        value = point.parts["value"]
        return msgspec.structs.replace(
            command,
            argv=tuple(fill_in(word, {"{value}": value}) for word in command.argv),
            env={**command.env, "KARAT_VALUE": value},
            cwd=str(self._root),
        )

    def ahead(self, points: Sequence[Point]) -> None:
        """There is nothing to fetch."""

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:  # noqa: ARG002
        """A value has no parts."""
        return None

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """The values after the old one: those between them that could not be tried may have made it as well."""
        ids = [point.id for point in self.points]
        first, last = sorted((ids.index(old.id), ids.index(new.id)))
        return [Suspect(part="value", id=one) for one in ids[first + 1 : last + 1]]

    def close(self) -> None:
        """There is nothing to end."""


def open_values(
    settings: HuntSettings,
    stage: Stage,  # noqa: ARG001 - a factory's signature
    window: Window | None,
    place: Workspace,
) -> Values:
    """The values of [values]; within a window only those between its ends."""
    texts = _texts(settings.values or ValueSettings(), place.root)
    twice, times = next(iter(Counter(texts).most_common(1)), ("", 0))
    if times > 1:
        raise UsageError(
            f"values: expected each value once, found {twice!r} twice",
            next_command="edit hunt.toml",
        )
    if any("\0" in text for text in texts):
        raise UsageError(
            "values: expected texts that a program can be given, found a NUL in one",
            next_command="edit hunt.toml",
        )
    if window is not None and {window.old.id, window.new.id} <= set(texts):
        texts = texts[texts.index(window.old.id) : texts.index(window.new.id) + 1]
    return Values(texts, place.root)


def _point(text: str) -> Point:
    return Point(id=text, label=text, parts={"value": text})


def _texts(settings: ValueSettings, root: Path) -> list[str]:
    if not settings.file:
        return list(settings.list)
    path = root / settings.file
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"values.file: expected a text file with one value per line in {path}, but: {error}",
            next_command="edit hunt.toml",
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
