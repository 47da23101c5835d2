"""karat keeps the golden values of machine-learning frameworks honest.

    >>> import karat
    >>> result = karat.diff("before/", "after/")  # doctest: +SKIP
    >>> [change.path for change in result.changes if change.verdict == "incomplete"]  # doctest: +SKIP
    >>> result.to_pandas()  # doctest: +SKIP

The functions do what the commands of the same name do. Names are imported when they are used, so that `import karat`
costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The editor and the type checker see these; `_HOMES` says the same to Python.
if TYPE_CHECKING:
    from karat.api import changes, check, diff, hunt, refresh, replay
    from karat.bundles.cases import Case, cases
    from karat.bundles.places import open_place as open_bundle
    from karat.captures.check import CaptureFailed, CaptureWarning, Mismatch
    from karat.captures.functions import capture, check_and_capture
    from karat.compare.change import Change, MetricChange, Verdict
    from karat.compare.rules import RuleBook
    from karat.diffs.result import Diff
    from karat.findings import CannotVerify, ExitCode, Finding, KaratError, Severity, UsageError
    from karat.goldens.formats import read, write
    from karat.goldens.shapes import Document, Metric, Reading, Series, Table
    from karat.gradients.gradcheck import gradcheck
    from karat.gradients.report import GradReport, GradVerdict
    from karat.optests.op_spec import OpSample, OpSpec, op_tests
    from karat.optests.op_test import OpTest, skip_check_grad_ci
    from karat.tensors.comparison import Comparison


_HOMES = {
    name: module
    for module, names in {
        "api": "changes check diff hunt refresh replay",
        "gradients.gradcheck": "gradcheck",
        "captures.functions": "capture check_and_capture",
        "bundles.cases": "cases Case",
        "bundles.places:open_place": "open_bundle",
        "goldens.formats": "read write",
        "optests.op_spec": "OpSample OpSpec op_tests",
        "optests.op_test": "skip_check_grad_ci OpTest",
        "findings": "CannotVerify ExitCode Finding KaratError Severity UsageError",
        "captures.check": "CaptureFailed CaptureWarning Mismatch",
        "compare.change": "Change MetricChange Verdict",
        "tensors.comparison": "Comparison",
        "diffs.result": "Diff",
        "goldens.shapes": "Document Metric Reading Series Table",
        "gradients.report": "GradReport GradVerdict",
        "compare.rules": "RuleBook",
    }.items()
    for name in names.split()
}
"""Name → module, and the name it has there if that is another."""

# fmt: off
__all__ = [  # noqa: RUF022 - functions first
    "__version__", "changes", "check", "diff", "gradcheck", "hunt", "refresh", "replay", "capture",
    "check_and_capture", "cases", "open_bundle", "read", "write", "op_tests", "skip_check_grad_ci",
    "CannotVerify", "CaptureFailed", "CaptureWarning", "Case", "Change", "Comparison", "Diff", "Document",
    "ExitCode", "Finding", "GradReport", "GradVerdict", "KaratError", "Metric", "MetricChange", "Mismatch",
    "OpSample", "OpSpec", "OpTest", "Reading", "RuleBook", "Series", "Severity", "Table", "UsageError",
    "Verdict",
]
# fmt: on


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module, _, there = _HOMES[name].partition(":")
        return getattr(import_module(f"karat.{module}"), there or name)
    raise AttributeError(f"module 'karat' has no attribute {name!r}")
