"""Listening to a hunt: who wants to know what happens, as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from karat.hunt.attempt import Attempt
from karat.hunt.point import Point
from karat.hunt.searching import Decision


class Listener(Protocol):
    """Hears what a hunt does. It must not raise, and need not hurry: nobody measures meanwhile in this process."""

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """A stage begins, or goes on."""

    def known(self, attempt: Attempt) -> None:
        """An attempt that the journal had already."""

    def room(self, slots: int) -> None:
        """So many points can be under test at a time, from now on."""

    def started(self, stage: str, point: Point, why: str) -> None:
        """A point is put under test."""

    def finished(self, attempt: Attempt) -> None:
        """An attempt is over, and in the journal."""

    def decided(self, stage: str, decision: Decision) -> None:
        """What is known now, and what comes next."""

    def said(self, message: str) -> None:
        """One sentence for a person."""

    def waiting(self) -> None:
        """Nothing happened for a moment: time to redraw a clock."""

    def closed(self) -> None:
        """The hunt is over, or was stopped."""


class Silence:
    """Nobody listens."""

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """Nothing."""

    def known(self, attempt: Attempt) -> None:
        """Nothing."""

    def room(self, slots: int) -> None:
        """Nothing."""

    def started(self, stage: str, point: Point, why: str) -> None:
        """Nothing."""

    def finished(self, attempt: Attempt) -> None:
        """Nothing."""

    def decided(self, stage: str, decision: Decision) -> None:
        """Nothing."""

    def said(self, message: str) -> None:
        """Nothing."""

    def waiting(self) -> None:
        """Nothing."""

    def closed(self) -> None:
        """Nothing."""
