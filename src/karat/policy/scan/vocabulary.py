"""The words of op tests: base classes, checks, flags and tolerances, and the arguments that grant something.

Those of karat, and those of the tree that the rule comes from.
"""

from __future__ import annotations

import re

_KINDS = ("", "Eager", "XPU", "OneDNN", "MKLDNN", "NPU", "MLU", "AutoParallel", "CustomDevice")
ROOTS = frozenset({"OpTestDevice", *(f"{kind}OpTest" for kind in _KINDS)})
"""Classes that make whoever inherits from them an op test, wherever they are defined."""

PLAIN = re.compile(r"(?:IsolatedAsyncio)?TestCase|object|Generic|Protocol|ABC|Enum|Exception|NamedTuple|TypedDict")
"""Bases that hold no gradient check and make nobody an op test."""

WRAPPERS = frozenset({"XPUOpTestWrapper"})  # Classes whose inner classes are handed to the runner.

ROOT_SUFFIX = "OpTest"  # A base of another tree whose name ends so is assumed to be an op test, and that is reported.

CHECK = re.compile(r"check_(?:outputs?_and_)?(?:double_|triple_)?grads?(?:_\w+)?")
"""Methods of op tests that compare gradients."""
NO_CHECK = re.compile(r"_?check_grad_helper|check_grad_ci\w*")  # Named like a check, and only bookkeeping.
FREE_CHECKS = frozenset(
    {"gradcheck", "gradgradcheck", "grad_check", "double_grad_check", "triple_grad_check", "check_grads"}
)
"""Functions that compare gradients by themselves."""
NAMED_FOR_CHECK = re.compile(r"test_(?:\w*_)?check_\w*grad\w*|test_(?:\w+_)?grad(?:ient)?(?:_check)?(?:_\w+)?")
"""Tests whose name promises a gradient check."""

FLAGS = re.compile(r"no_need_check_grad|exist_(?:\w+_)?check_grad")
"""Attributes that only a comparison, or the skip decorator, may set."""
UNCOLLECTED = re.compile(r"__test__|__unittest_skip__|collect_ignore(?:_glob)?")
"""Names that keep tests from being collected."""
HIDING_HOOKS = frozenset({"pytest_ignore_collect", "pytest_pycollect_makeitem", "pytest_collect_file", "load_tests"})
"""Functions that decide which tests there are."""
SKIP_RULE = "skip_check_grad_ci"
HOOKS = frozenset({"setUp", "tearDown"})  # Methods that run with every test, and are none.
EXPECTS_FAILURE = frozenset({"expectedFailure", "xfail"})
"""Decorators under which a test that fails is as good as one that passes."""

TOLERANCES = {"max_relative_error": 0.005, "numeric_grad_delta": 0.005, "atol": 1e-5, "rtol": 1e-5}
"""The original's default of each keyword that widens a check."""
TOLERANCES_OF_DTYPE = {
    "float64": {"max_relative_error": 1e-7, "numeric_grad_delta": 1e-5},
    "float16": {"max_relative_error": 1e-3},
    "bfloat16": {"max_relative_error": 1e-2},
}
"""What the original takes instead, where it knows the dtype."""
WEAK = ("user_defined_grads", "grads")  # Keywords that hand a check its author's own gradients.

MARK = re.compile(rb"OpTest|check_(?:outputs?_and_)?(?:double_|triple_)?grad")
"""A file without any of these can only hold op tests through what it imports."""


_DTYPE = re.compile(r"b?float16|float(?:32|64)|complex(?:64|128)|u?int(?:8|16)|int(?:32|64)|bool")


def dtype_named(name: str) -> str:
    """A dtype by one name alone, of numpy's; the original keeps bfloat16 in unsigned integers. Nothing for other words."""
    one = {"uint16": "bfloat16", "bool_": "bool", "bool8": "bool"}.get(name, name)
    return one if _DTYPE.fullmatch(one) else ""


def is_check(name: str) -> bool:
    return bool(CHECK.fullmatch(name)) and not NO_CHECK.fullmatch(name)


def is_test(name: str) -> bool:
    """Whether a method of this name is run by unittest and pytest."""
    return name.startswith("test") or name == "runTest"


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
    "nondet_tol": ("determinism", "bound"),
    "grads": ("weak", "own-gradients"),
    "no_grad": ("gradient", "no-grad"),
    "properties": ("weak", "laws"),
    "level": ("weak", "laws"),
    "reference": ("weak", "reference"),
}
"""Arguments that mean this in gradient checks and declarations of op tests only."""
DECLARATIONS = frozenset({"OpSpec"})
_ORDER = ("no_grad_set", "numeric_grad_delta", "in_place", "max_relative_error", "user_defined_grads")
POSITIONS = {"check_grad": ("", "", *_ORDER), "check_grad_with_place": ("", "", "", *_ORDER)}
"""The arguments of the original's checks, in their order; nothing for those that say what is checked."""
OPS = frozenset({"op", "op_type"})
