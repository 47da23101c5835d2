"""Adaptive: a map of all changes with as few runs as possible.

Pure. A coarse grid first; then the probability of a change between each two tested points (`levels`, `flakes`) says where
to split and what to run again, until nothing is in doubt. Each metric has a map of its own; a run serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from karat.hunt.crashes import believed, edge_spans, edge_wishes, edges
from karat.hunt.flakes import flake_map
from karat.hunt.gridding import chosen, grid_wishes
from karat.hunt.levels import Map, level_map
from karat.hunt.readings import Readings, readings, runs
from karat.hunt.searching import Decision, Metric, Missed, Seen, Span
from karat.hunt.settings import SearchSettings
from karat.hunt.spans import left_wide, missed, spans_of
from karat.hunt.splitting import Board, expected_left, split_wishes
from karat.hunt.wishes import SPECULATION, Wish, allowance, asks


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one metric wants, and what is known of it."""

    wishes: tuple[Wish, ...]
    spans: tuple[Span, ...]
    left: int
    missed: Missed
    flakes: float | None


class Adaptive:
    """The default strategy."""

    def __init__(
        self, settings: SearchSettings, count: int, metrics: Sequence[Metric], *, zoom: bool = False
    ) -> None:
        self._settings = settings
        self._count = count
        self._metrics = tuple(metrics)
        # What is zoomed into is one change between two ends that differ: nothing is gained by a grid. That of hunt.toml
        # counts the points of the first stage, and says nothing of these.
        self._grid = count if zoom else chosen(count, settings.grid)
        self._rule_out = "--strategy sweep" if zoom else "grid = 1, or --strategy sweep"

    def decide(self, seen: Mapping[int, Seen], in_flight: Mapping[int, int], room: int) -> Decision:
        """What to run next."""
        plans = [self._plan(k, metric, seen, in_flight) for k, metric in enumerate(self._metrics)]
        allowed = allowance(self._settings.max_runs, seen, in_flight, room)
        wishes = [wish for plan in plans for wish in plan.wishes]
        if self._settings.max_runs:
            wishes = [wish for wish in wishes if wish.rank < SPECULATION]
        wanted = asks(wishes, allowed)
        rest = asks(wishes, len(wanted) + 4)[len(wanted) :]
        spans = tuple(span for plan in plans for span in plan.spans)
        over = not wishes and not in_flight
        return Decision(
            asks=wanted,
            likely_next=tuple(ask.index for ask in rest),
            expected_left=max((plan.left for plan in plans), default=0),
            spans=spans,
            flake_rate=max((p.flakes for p in plans if p.flakes is not None), default=None),
            missed=max((plan.missed for plan in plans), key=lambda m: m.longest_dip, default=None),
            notes=left_wide(spans) if over else self._notes(seen, bool(wanted or in_flight)),
        )

    def _notes(self, seen: Mapping[int, Seen], going: bool) -> tuple[str, ...]:  # noqa: FBT001
        limit = self._settings.max_runs
        if limit and not going and runs(seen) >= limit:
            return (
                f"stopped at max_runs = {limit}: more runs were wanted, and answers may be wide",
            )
        return ()

    def _plan(
        self, number: int, metric: Metric, seen: Mapping[int, Seen], in_flight: Mapping[int, int]
    ) -> Plan:
        read = readings(metric, seen)
        sure = believed(read.again, read.values, read.failed)
        failed = read.failed | sure
        dead, again = sorted(read.dead | sure), read.again - sure
        there = {*read.values, *in_flight}
        wishes = grid_wishes(self._count, self._grid, there, dead, again)
        grid_left = len(wishes)
        wishes += [Wish(1, at, "again: it failed") for at in sorted(again - in_flight.keys())]
        spans: tuple[Span, ...] = ()
        left, flakes = 0, None
        if len(read.values) > 1:
            board = self._board(metric, read, dead, in_flight)
            wishes += split_wishes(board, 1 + 2 * len(in_flight) + 2)
            spans = spans_of(metric, board.map, read.values, dead)
            left, flakes = expected_left(board), board.map.flakes
        if not number and failed:
            found = edges(read.values, failed, self._count)
            wishes += edge_wishes(found, dead, in_flight)
            spans = (*spans, *edge_spans(metric, found, read.values, dead))
        return Plan(
            wishes=tuple(wishes),
            spans=tuple(sorted(spans, key=lambda span: (span.good, span.bad))),
            left=grid_left + left,
            missed=missed(self._count, read.values, dead, self._rule_out),
            flakes=flakes,
        )

    def _board(
        self, metric: Metric, read: Readings, dead: Sequence[int], in_flight: Mapping[int, int]
    ) -> Board:
        return Board(
            map=change_map(metric, read.values, self._count, self._settings.smallest),
            runs={at: len(values) for at, values in read.values.items()},
            dead=dead,
            pending=in_flight,
            confidence=self._settings.confidence,
        )


def change_map(
    metric: Metric, values: Mapping[int, Sequence[float]], count: int, smallest: float
) -> Map:
    """Where a metric changed, as far as is known."""
    if metric.binary:
        return flake_map(values, count)
    # Where equal is better, there is no change too small to matter.
    return level_map(values, count, smallest=0.0 if metric.better == "equal" else smallest)
