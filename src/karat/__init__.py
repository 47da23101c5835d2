"""karat keeps the golden values of machine-learning frameworks honest.

    >>> from karat.diff import diff
    >>> result = diff("before/", "after/")  # doctest: +SKIP
    >>> [change.path for change in result.changes if change.verdict == "incomplete"]  # doctest: +SKIP

Names are imported when they are used, so that `import karat` costs nothing. Rooms (`karat.diff`,
`karat.compare`) are modules; their main function has the room's name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from karat.compare.change import Change, Diff, MetricChange, Verdict
    from karat.compare.rules import RuleBook
    from karat.diff import Options
    from karat.findings import CannotVerify, ExitCode, Finding, KaratError, Severity, UsageError
    from karat.goldens.formats import read, write
    from karat.goldens.shapes import Document, Metric, Reading, Series, Table

_HOMES = {
    "CannotVerify": "findings",
    "Change": "compare.change",
    "Diff": "compare.change",
    "Document": "goldens.shapes",
    "ExitCode": "findings",
    "Finding": "findings",
    "KaratError": "findings",
    "Metric": "goldens.shapes",
    "MetricChange": "compare.change",
    "Options": "diff",
    "Reading": "goldens.shapes",
    "RuleBook": "compare.rules",
    "Series": "goldens.shapes",
    "Severity": "findings",
    "Table": "goldens.shapes",
    "UsageError": "findings",
    "Verdict": "compare.change",
    "read": "goldens.formats",
    "write": "goldens.formats",
}

__all__ = [  # noqa: RUF022 - sorted by kind, then name
    "__version__",
    "CannotVerify",
    "Change",
    "Diff",
    "Document",
    "ExitCode",
    "Finding",
    "KaratError",
    "Metric",
    "MetricChange",
    "Options",
    "Reading",
    "RuleBook",
    "Series",
    "Severity",
    "Table",
    "UsageError",
    "Verdict",
    "read",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"karat.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'karat' has no attribute {name!r}")
