"""The words that grant something: arguments of gradient checks and of declarations of op tests."""

from __future__ import annotations

ANYWHERE = {
    "max_relative_error": ("tolerance", "tolerance"),
    "numeric_grad_delta": ("tolerance", "step"),
    "nondeterminism_bound": ("determinism", "bound"),
    "user_defined_grads": ("weak", "own-gradients"),
    "no_grad_set": ("gradient", "no-grad"),
}
"""Argument → rule and kind; the name tells enough, whatever is called."""
IN_CHECKS = {
    "rtol": ("tolerance", "tolerance"),
    "atol": ("tolerance", "tolerance"),
    "tolerances": ("tolerance", "tolerance"),
    "delta": ("tolerance", "step"),
    "nondet_tol": ("determinism", "bound"),
    "grads": ("weak", "own-gradients"),
    "no_grad": ("gradient", "no-grad"),
}
"""Arguments that mean this in gradient checks and declarations of op tests only."""
DECLARATIONS = frozenset({"OpSpec"})
_ORDER = (
    "no_grad_set",
    "numeric_grad_delta",
    "in_place",
    "max_relative_error",
    "user_defined_grads",
)
POSITIONS = {
    "check_grad": ("", "", *_ORDER),
    "check_grad_with_place": ("", "", "", *_ORDER),
}
"""The arguments of the original's checks, in their order; nothing for those that say what is checked."""
OPS = frozenset({"op", "op_type"})
