"""karat keeps the golden values of machine-learning frameworks honest.

    >>> from karat.diff import diff
    >>> result = diff("before/", "after/")  # doctest: +SKIP
    >>> [change.path for change in result.changes if change.verdict == "incomplete"]  # doctest: +SKIP

    >>> import karat
    >>> karat.check_and_capture("scale", actual=2 * x, expected=y, inputs=(x,))  # doctest: +SKIP

Names are imported when they are used, so that `import karat` costs nothing. Rooms (`karat.diff`,
`karat.compare`) are modules; their main function has the room's name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from karat.bundles.cases import Case, cases
    from karat.bundles.places import open_place as open_bundle
    from karat.captures.check import CaptureFailed, CaptureWarning, Mismatch
    from karat.captures.functions import capture, check_and_capture
    from karat.compare.change import Change, Diff, MetricChange, Verdict
    from karat.compare.rules import RuleBook
    from karat.diffs.diff import Options
    from karat.findings import CannotVerify, ExitCode, Finding, KaratError, Severity, UsageError
    from karat.goldens.formats import read, write
    from karat.goldens.shapes import Document, Metric, Reading, Series, Table
    from karat.gradients.gradcheck import gradcheck
    from karat.gradients.report import GradReport, GradVerdict
    from karat.optests.op_spec import OpSpec, Sample, op_tests
    from karat.optests.op_test import OpTest, skip_check_grad_ci
    from karat.tensors.comparison import Comparison, Report

__version__ = "0.1.0"


_HOMES = {
    "CannotVerify": "findings",
    "CaptureFailed": "captures.check",
    "CaptureWarning": "captures.check",
    "Case": "bundles.cases",
    "Change": "compare.change",
    "Comparison": "tensors.comparison",
    "Diff": "compare.change",
    "Document": "goldens.shapes",
    "ExitCode": "findings",
    "Finding": "findings",
    "GradReport": "gradients.report",
    "GradVerdict": "gradients.report",
    "KaratError": "findings",
    "Metric": "goldens.shapes",
    "MetricChange": "compare.change",
    "Mismatch": "captures.check",
    "OpSpec": "optests.op_spec",
    "OpTest": "optests.op_test",
    "Options": "diffs.diff",
    "Reading": "goldens.shapes",
    "Report": "tensors.comparison",
    "RuleBook": "compare.rules",
    "Sample": "optests.op_spec",
    "Series": "goldens.shapes",
    "Severity": "findings",
    "Table": "goldens.shapes",
    "UsageError": "findings",
    "Verdict": "compare.change",
    "capture": "captures.functions",
    "cases": "bundles.cases",
    "check_and_capture": "captures.functions",
    "gradcheck": "gradients.gradcheck",
    "op_tests": "optests.op_spec",
    "open_bundle": "bundles.places:open_place",
    "read": "goldens.formats",
    "skip_check_grad_ci": "optests.op_test",
    "write": "goldens.formats",
}
"""Name → module, and the name it has there if that is another."""

__all__ = [  # noqa: RUF022 - sorted by kind, then name
    "__version__",
    "CannotVerify",
    "CaptureFailed",
    "CaptureWarning",
    "Case",
    "Change",
    "Comparison",
    "Diff",
    "Document",
    "ExitCode",
    "Finding",
    "GradReport",
    "GradVerdict",
    "KaratError",
    "Metric",
    "MetricChange",
    "Mismatch",
    "OpSpec",
    "OpTest",
    "Options",
    "Reading",
    "Report",
    "RuleBook",
    "Sample",
    "Series",
    "Severity",
    "Table",
    "UsageError",
    "Verdict",
    "capture",
    "cases",
    "check_and_capture",
    "gradcheck",
    "op_tests",
    "open_bundle",
    "read",
    "skip_check_grad_ci",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module, _, there = _HOMES[name].partition(":")
        return getattr(import_module(f"karat.{module}"), there or name)
    raise AttributeError(f"module 'karat' has no attribute {name!r}")
