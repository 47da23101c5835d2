"""Requests: what tests of the original ask for that is not carried out here. It is said, and never counted."""

from __future__ import annotations

import logging
import re
import unittest
from collections.abc import Callable, Mapping
from typing import Any

from karat.findings import UsageError, suggest
from karat.optests.subjects import Subject
from karat.optests.values import is_low, members

_log = logging.getLogger("karat.optests")

# Other ways of running an op than calling python_api.
OTHER_MODES = (
    "check_prim", "check_prim_pir", "check_cinn", "check_pir", "check_pir_onednn", "check_new_ir",
    "check_auto_parallel", "check_symbol_infer", "only_check_prim", "check_eager", "check_inplace",
)  # fmt: skip
# What other arguments of the original mean nothing here: its own tolerances, its own numeric side.
UNUSED = ("atol", "rtol", "inplace_atol", "numeric_place", "custom_place", "check_sparse", "no_check_set", "use_cinn")  # fmt: skip
# What karat's own check takes beyond the original's arguments, handed on to `gradcheck`.
KARATS = ("order", "dtypes", "modes", "reference", "properties", "nondeterminism_bound", "seed")
_NO_KERNEL = re.compile(
    r"not registered|not implemented|unimplemented|not support|unsupported|no kernel|not found", re.IGNORECASE
)  # fmt: skip
_said: set[str] = set()


def noted(
    test: Any, asked: Mapping[str, Any], karats: tuple[str, ...] = (), *, check_dygraph: bool
) -> None:
    """Says once per process what is not carried out; SkipTest where the test wants nothing else."""
    known = (*OTHER_MODES, *UNUSED, *karats)
    for name in asked:
        if name not in known:
            raise UsageError(
                f"{type(test).__name__}: expected an argument of the original's check, found {name!r}"
                f"{suggest(name, known)}",
                next_command="python -c 'import karat; help(karat.OpTest.check_grad)'",
            )
    wanted = sorted(name for name in OTHER_MODES if asked.get(name) and name not in _said)
    if wanted:
        _said.update(wanted)
        _log.warning(
            "%s asks for %s: not carried out (karat calls python_api eagerly), and not counted as evidence",
            type(test).__name__,
            ", ".join(wanted),
        )
    if not check_dygraph:
        raise unittest.SkipTest(
            f"{type(test).__name__}: nothing was compared: check_dygraph=False asks for the static graph alone, "
            "and karat calls python_api eagerly"
        )


def of_karat(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are handed on to gradcheck."""
    return {name: value for name, value in asked.items() if name in KARATS}


def why_not_computed(subject: Subject, run: Callable[[Subject], object]) -> str | None:
    """Why the op cannot be run in the test's low precision at this place: there is no kernel; None if it can."""
    low = sorted({one.dtype for one in members(subject.written.inputs) if is_low(one.dtype)})
    if not low:
        return None
    try:
        run(subject)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        first = next((line for line in str(error).splitlines() if _NO_KERNEL.search(line)), "")
        if first:  # else it is an error that the check itself will meet, and tell better
            return f"{subject.written.framework} computes no {', '.join(low)} of it on {subject.device}: {first.strip()[:200]}"
    return None
