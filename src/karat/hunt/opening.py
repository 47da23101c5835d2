"""Opening: from a stage to its timeline.

Timelines register under the entry point `karat.timelines`, the built-in ones like a third party's: a callable that takes
the settings, the stage, the window of a coarser stage and the place, and returns a `Timeline`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable

from karat.findings import UsageError
from karat.hunt.point import Window
from karat.hunt.settings import HuntSettings, Stage
from karat.hunt.stages import GROUP, stages
from karat.hunt.timeline import Place, Timeline

__all__ = ["open_timeline", "stages"]

Factory = Callable[[HuntSettings, Stage, Window | None, Place], Timeline]
_BUILT_IN = {
    "containers": "karat.hunt.containers:open_containers",
    "checkouts": "karat.hunt.checkouts:open_checkouts",
    "commits": "karat.hunt.commits:open_commits",
    "packages": "karat.hunt.packages:open_packages",
    "values": "karat.hunt.values:open_values",
}


def open_timeline(
    settings: HuntSettings, stage: Stage, window: Window | None, place: Place
) -> Timeline:
    """The timeline of a stage: its points are listed, and nothing is pulled or built yet."""
    _goldens(settings, place)
    timeline = _factory(stage.timeline)(settings, stage, window, place)
    if not timeline.points:
        raise UsageError(
            f"stage {stage.text!r}: expected points to put under test, found none",
            next_command="edit hunt.toml",
        )
    return timeline


def _goldens(settings: HuntSettings, place: Place) -> None:
    """A golden that is not there would make every point broken, after all of them were built."""
    for number, metric in enumerate(settings.probe.metrics, 1):
        if metric.golden is not None and not (place.root / metric.golden).exists():
            raise UsageError(
                f"probe.metrics number {number} ({metric.name}): expected a golden in {place.root / metric.golden}, found none",
                next_command="edit hunt.toml",
            )


def _factory(name: str) -> Factory:
    if name in _BUILT_IN:
        factory: Factory = pkgutil.resolve_name(_BUILT_IN[name])
        return factory
    from importlib.metadata import entry_points  # noqa: PLC0415 - only for third parties' timelines

    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        raise UsageError(f"stages: no timeline is called {name!r}", next_command="edit hunt.toml")
    try:
        theirs: Factory = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"expected the timeline {name!r} in {point.value}, but it cannot be imported: {error}",
            next_command="pip check",
        ) from error
    return theirs
