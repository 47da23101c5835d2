"""Values: any list of texts as a timeline; the command finds its own in `{value}` and $KARAT_VALUE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from karat.engines.job import JobCommand
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.probe.jobs import fill_in
from karat.hunts.settings import HuntSettings, Stage, mistake
from karat.hunts.timelines.timeline import Timeline, Workspace


class Values(Timeline):
    """A list of texts, in the order in which they were written down."""

    name = "values"

    def __init__(self, texts: Sequence[str], root: Path) -> None:
        self.points = [Point(id=text, label=text, parts={"value": text}) for text in texts]
        self._root = root

    def identity(self, point: Point) -> Mapping[str, str]:
        """The value itself, unless `identify` says that another `value` was under test."""
        return {"value": point.parts["value"]}

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        """The command in hunt.toml's folder, with the value in its words and its environment."""
        value = point.parts["value"]
        argv = tuple(fill_in(word, {"{value}": value}) for word in command.argv)
        env = {**command.env, "KARAT_VALUE": value}
        return msgspec.structs.replace(command, argv=argv, env=env, cwd=str(self._root))

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """The values after the old one: those between them that could not be tried may have made it as well."""
        ids = [point.id for point in self.points]
        first, last = sorted((ids.index(old.id), ids.index(new.id)))
        return [Suspect(part="value", id=one) for one in ids[first + 1 : last + 1]]


def open_values(settings: HuntSettings, _stage: Stage, window: Window | None, place: Workspace) -> Values:
    """The values of [values]; within a window only those between its ends."""
    texts = list(settings.values.list) if settings.values else []
    twice, times = next(iter(Counter(texts).most_common(1)), ("", 0))
    if times > 1:
        raise mistake(f"values: expected each value once, found {twice!r} twice")
    if window is not None and {window.old.id, window.new.id} <= set(texts):
        texts = texts[texts.index(window.old.id) : texts.index(window.new.id) + 1]
    return Values(texts, place.root)
