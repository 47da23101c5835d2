"""Laws that every backward obeys, tried one by one.

A law that does not apply (no forward mode, one output only, no strides) is not among the results. A law of
approximate equality has its bound from round-off (`trial`), never a constant somebody liked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from karat.findings import suggest
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.laws import backward
from karat.gradients.laws.trial import Law, Trial
from karat.gradients.problem import Unsupported, error_line, misuse
from karat.gradients.report import GradVerdict, Property

LAWS: dict[str, Law] = {
    # A gradient has the shape, the dtype and the device of its input.
    "gradient-form": lambda trial: backward.watched(trial)["gradient-form"],
    "finite": backward.finite,
    "deterministic-forward": partial(backward.deterministic, backward=False),
    "deterministic-backward": partial(backward.deterministic, backward=True),
    "inputs-unmodified": backward.inputs_unmodified,
    # Others may still need them.
    "cotangents-unmodified": lambda trial: backward.watched(trial)["cotangents-unmodified"],
    "zero-cotangent": backward.zero_cotangent,
    "linearity": backward.linearity,
    "absent-cotangent": backward.absent_cotangent,
    "non-contiguous-cotangent": partial(backward.laid_out_cotangent, expanded=False),
    "expanded-cotangent": partial(backward.laid_out_cotangent, expanded=True),
    "non-contiguous": backward.non_contiguous,
    "subset": backward.subset,
    "interleaving": backward.interleaving,
    "accumulation": backward.accumulation,
    "forward-reverse": backward.forward_reverse,
}
FORMS: dict[str, Law] = {"opcheck": backward.opcheck, "batched": backward.batched}
ON_REQUEST = {"batched"}  # tried where named, and at the deep level
NAMES = (*LAWS, *FORMS, "in-place", "twin")


@np.errstate(all="ignore")
def check_properties(  # noqa: PLR0913 - the design's signature; all but two are optional
    problem: FrameworkProblem,
    *,
    rng: np.random.Generator,
    nondeterminism_bound: float = 0.0,
    in_place: Callable[..., Any] | None = None,
    others: Mapping[str, Callable[..., Any]] | None = None,
    which: Collection[str] | None = None,
    strict: bool = False,
) -> tuple[Property, ...]:
    """Every law that applies, tried at the problem's point.

    `nondeterminism_bound` is relative to a gradient's largest element; what sums in another order explain is allowed
    as well, unless `strict`. `others` are twins of the function, by name. `which` names laws (`NAMES`).
    """
    wanted = wanted_laws(which)
    if not (wanted and problem.outputs and any(one.size for one in problem.point)):
        return ()
    try:
        trial = Trial(problem, rng, allowed=nondeterminism_bound, strict=strict)
    except Unsupported:
        return ()
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        return (_raised("gradient-form", error, problem),)
    laws = {name: law for name, law in (LAWS | FORMS).items() if name in wanted}
    if in_place is not None and "in-place" in wanted:
        laws["in-place"] = lambda on: backward.in_place(on, in_place)
    for label, other in (others or {}).items() if "twin" in wanted else ():
        laws[f"twin {label}"] = partial(backward.twin, name=label, other=other)
    found: list[Property | None] = []
    for name, law in laws.items():
        try:
            found.append(law(trial))
        except Unsupported:
            continue
        except Exception as error:  # noqa: BLE001 - a backward may raise anything, and one that ran before must run again
            found.append(_raised(name, error, problem))
    return tuple(one for one in found if one is not None)


def _raised(name: str, error: Exception, problem: FrameworkProblem) -> Property:
    """It does not raise where the law is not tried."""
    detail = f"it raised {error_line(error)}"
    return Property(name=name, verdict=GradVerdict.FAIL, detail=detail, dtype=problem.computes)


def wanted_laws(which: Collection[str] | None) -> set[str]:
    if which is None:
        return set(NAMES) - ON_REQUEST
    # In Python's spelling, too: in_place.
    given = [which] if isinstance(which, str) else which
    names = [str(name).replace("_", "-") for name in given]
    for name in names:
        if name not in NAMES:
            said = f"properties: expected one of {', '.join(NAMES)}, found {name!r}{suggest(name, NAMES)}"
            raise misuse(said, "properties=None for all of them")
    return set(names)
