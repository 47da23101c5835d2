"""What karat.toml says about reading a run's own files: the table [record]."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping

import msgspec

_INT64 = 2**63
STEP = "step"  # The name of the pattern that finds the step in a log.


class RecordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [record]."""

    tags: tuple[str, ...] = ("*",)  # Globs of the names to take from a run: TensorBoard tags, columns, fields.
    rename: Mapping[str, str] = msgspec.field(default_factory=dict)  # Name in the run → metric in the golden.
    log: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Metric → regular expression with one group, for logs; `step` finds the step."""
    precision: int | None = None  # Decimals to round to; None keeps every digit.
    start: int | None = None
    interval: int | None = None
    """Keep the start and the multiples of the interval; a step without a sample becomes NaN."""
    steps: int | None = None  # The last step that a whole run reaches.
    format: str | None = None  # The format of a golden that is not there yet.

    def __post_init__(self) -> None:
        if not self.tags:
            raise ValueError("tags must have at least one glob, found none")
        if self.start is not None and not -_INT64 <= self.start < _INT64:
            raise ValueError(f"start must be a number of 64 bits, found {self.start}")
        if self.precision is not None and not 0 <= self.precision <= 17:
            raise ValueError(f"precision must be from 0 to 17, found {self.precision}")
        if self.interval is not None and self.interval < 1:
            raise ValueError(f"interval must be at least 1, found {self.interval}")
        if self.steps is not None and self.steps < 0:
            raise ValueError(f"steps must be at least 0, found {self.steps}")
        if self.log:
            if STEP not in self.log:
                raise ValueError(f'log needs a pattern named "{STEP}", found {", ".join(sorted(self.log))}')
            if len(self.log) == 1:
                raise ValueError(f'log needs a pattern for a metric beside "{STEP}", found none')
            for name, pattern in self.log.items():
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # of what may come to mean something else
                        groups = re.compile(pattern).groups
                except (re.error, OverflowError, RecursionError) as error:
                    raise ValueError(
                        f'log: expected a regular expression for "{name}", found {pattern!r}: {error}'
                    ) from error
                if groups != 1:
                    raise ValueError(f'log: expected one group (…) in the pattern of "{name}", found {groups}')
