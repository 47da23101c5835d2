"""Attribution: which repository made a change, by swapping: the old point with one part of the new, and the other way round.

Pure: points go to `measure`, which runs each point afresh for every time that it is named, and what comes back goes to
`judge`. A pair that does not build, or that stays unclear after several runs, is said to be so; nothing is guessed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

from karat.hunt.judging import Judgement
from karat.hunt.point import Point
from karat.hunt.report import Verdict
from karat.hunt.searching import Metric, Seen
from karat.hunt.swaps import Change, Side, Swaps
from karat.hunt.timeline import Timeline

_ADDS_UP = 0.25
"""Shares of parts that act on their own add up to the whole, give or take this."""
_NEARLY_ALL = 0.75
_ERRORS = 2
"""Standard errors by which shares must be off that to be said not to."""
_SOME = 0.1
"""A share that is told, though its part by itself makes no difference that is worth finding."""


def attribute(
    timeline: Timeline,
    old: Point,
    new: Point,
    metric: Metric,
    measure: Callable[[Sequence[Point]], Sequence[Seen]],
    judge: Callable[[Seen, Seen], Judgement],
) -> Verdict:
    """Which part made the change between two points; only parts that moved are swapped."""
    moved = tuple(name for name, value in new.parts.items() if old.parts.get(name, value) != value)
    if not moved or timeline.mixed(old, new, frozenset(moved[:1])) is None:
        return Verdict()
    if len(moved) == 1:
        said = f"only {moved[0]} moved"
        return Verdict(part=moved[0], parts=moved, message=said, confidence=1.0)
    swaps = Swaps(Change(timeline, old, new, moved), metric, measure, judge)
    singles = [frozenset({name}) for name in moved]
    # Of two parts, new A with old B is old B with new A.
    without = [frozenset(moved) - one for one in singles]
    swaps.ask([*singles, *(rest for rest in without if rest not in singles)])
    if swaps.whole is not Side.NEW:
        return _not_seen_again(swaps)
    return _decided(swaps, moved)


def _not_seen_again(swaps: Swaps) -> Verdict:
    said = {
        Side.OLD: "the two points do not differ when they are run again",
        Side.BROKEN: "the two points could not be run again",
    }.get(swaps.whole, "whether the two points differ could not be told from running them again")
    return Verdict(message=said, tried=swaps.sentences())


def _decided(swaps: Swaps, moved: tuple[str, ...]) -> Verdict:
    alone = {name: swaps.side({name}) for name in moved}
    enough = tuple(name for name in moved if alone[name] is Side.NEW)
    partly = tuple(name for name in moved if alone[name] is Side.BETWEEN)
    unknown = tuple(name for name in moved if alone[name] not in {Side.NEW, Side.OLD, Side.BETWEEN})
    if len(enough) > 1:
        return _verdict(swaps, parts=enough, message=f"{_all(enough, 'and')} make it, each alone")
    if enough:
        return _one(swaps, enough[0], moved)
    if partly:
        return _shares(swaps, partly, unknown)
    if unknown:
        return _by_leaving_out(swaps, moved, unknown)
    return _together(swaps, moved)


def _one(swaps: Swaps, name: str, moved: tuple[str, ...]) -> Verdict:
    """One part alone makes it."""
    rest = frozenset(moved) - {name}
    said = f"{name} alone makes it"
    if swaps.side(rest) is Side.NEW and len(rest) > 1:
        return _verdict(
            swaps, parts=(name,), message=f"{said}, and so do {_all(sorted(rest), 'and')} together"
        )
    if swaps.side(rest) is not Side.OLD:
        said += f"; what the rest does without it is not known ({swaps.why(rest)})"
    return _verdict(swaps, part=name, parts=(name,), message=said)


def _shares(swaps: Swaps, partly: tuple[str, ...], unknown: tuple[str, ...]) -> Verdict:
    """Parts that make some of it each."""
    if unknown:
        shares = {name: swaps.share({name}) for name in partly}
        why = "; ".join(f"{name}: {swaps.why({name})}" for name in unknown)
        said = f"part of it is made alone by {_listed(shares)}; the rest is not known ({why})"
        return _verdict(swaps, parts=partly, shares=shares, message=said, confidence=0.0)
    return _added_up(swaps, partly)


def _added_up(swaps: Swaps, partly: tuple[str, ...]) -> Verdict:
    """Whether parts act on their own: then what each makes, however little, adds up to the whole."""
    every = {name: swaps.share({name}) for name in swaps.moved}
    shares = {n: share for n, share in every.items() if n in partly or share >= _SOME}
    parts, listed = tuple(shares), _listed(shares)
    off, blur = abs(sum(every.values()) - 1), _ERRORS * swaps.blur * sqrt(len(every))
    if off - blur > _ADDS_UP:
        said = f"it takes them together: alone they make {listed}"
        return _verdict(swaps, parts=parts, shares=shares, message=said, interaction=True)
    if off > _ADDS_UP:
        said = f"alone they make {listed}; whether the rest takes them together could not be told"
        return _verdict(swaps, parts=parts, shares=shares, message=said, confidence=0.0)
    part = parts[0] if len(parts) == 1 and shares[parts[0]] >= _NEARLY_ALL else ""
    return _verdict(swaps, part=part, parts=parts, shares=shares, message=f"made by {listed}")


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _by_leaving_out(swaps: Swaps, moved: tuple[str, ...], unknown: tuple[str, ...]) -> Verdict:
    """Where a part cannot be tried alone: what happens without it."""
    without = {name: swaps.side(frozenset(moved) - {name}) for name in moved}
    needed = tuple(name for name in moved if without[name] is Side.OLD)
    others = [name for name in moved if name not in needed]
    why = "; ".join(f"new {name} alone: {swaps.why({name})}" for name in unknown)
    if len(needed) == 1 and len(moved) > 2 and all(without[n] is Side.NEW for n in others):
        said = f"without {needed[0]} it is not there, without any other it is ({why})"
        return _verdict(swaps, part=needed[0], parts=needed, message=said)
    if needed:
        said = f"it takes {_all(needed, 'and')}; whether that is enough is not known ({why})"
        return _verdict(swaps, parts=needed, message=said, confidence=0.0)
    said = f"whose it is could not be told ({why})"
    return _verdict(swaps, parts=unknown, message=said, confidence=0.0)


def _together(swaps: Swaps, moved: tuple[str, ...]) -> Verdict:
    """None alone makes any of it: the fewest that make it together."""
    found = frozenset(moved)
    if len(moved) > 2:
        needed = frozenset(n for n in moved if swaps.side(frozenset(moved) - {n}) is not Side.NEW)
        swaps.ask([needed] if 1 < len(needed) < len(moved) else [])
        known = len(needed) > 1 and swaps.side(needed) is Side.NEW
        found = needed if known else _fewest(swaps, moved)
    parts = tuple(name for name in moved if name in found)
    said = f"it takes {_all(parts, 'and')} together: none alone makes it"
    return _verdict(swaps, parts=parts, message=said, interaction=True)


def _fewest(swaps: Swaps, moved: tuple[str, ...]) -> frozenset[str]:
    """A smallest set that makes it, by leaving out halves, then quarters, and so on."""
    current, pieces = list(moved), 2
    while pieces <= len(current):
        size = -(-len(current) // pieces)
        groups = [current[i : i + size] for i in range(0, len(current), size)]
        rests = [frozenset(current) - set(group) for group in groups]
        swaps.ask([rest for rest in rests if rest])
        left = next((rest for rest in rests if rest and swaps.side(rest) is Side.NEW), None)
        if left is not None:
            current, pieces = [name for name in current if name in left], max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(2 * pieces, len(current))
    return frozenset(current)


def _verdict(  # noqa: PLR0913 - the fields of a verdict
    swaps: Swaps,
    *,
    parts: tuple[str, ...],
    message: str,
    part: str = "",
    shares: dict[str, float] | None = None,
    interaction: bool = False,
    confidence: float | None = None,
) -> Verdict:
    return Verdict(
        part=part,
        parts=parts,
        shares=shares or {},
        interaction=interaction,
        message=message,
        tried=swaps.sentences(),
        confidence=swaps.confidence() if confidence is None else confidence,
    )


def _all(names: Sequence[str], word: str) -> str:
    """`a, b and c`."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))
