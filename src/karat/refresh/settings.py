"""What karat.toml says about refreshing: the table [refresh].

Patterns are text with `{name}` placeholders. A placeholder never takes a slash; `run_id`, `job_id`,
`attempt`, `shard` and `num_shards` take digits only. Values read off names are compared without
regard to case.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class TableSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a table is put together from its shards: the table [refresh.tables]."""

    key: tuple[str, ...] = ()
    """The columns that identify a row; by their names if empty."""
    columns: tuple[str, ...] = ()
    """The columns to keep, in order; all of them if empty."""
    fill: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column → what an empty cell stands for."""
    integers: tuple[str, ...] = ()
    """Columns whose `3.0` means 3: writers that mix numbers and gaps make floats of counts."""
    padding: int = 0
    """Blank lines between the rows of a new table; a table that stands keeps its own."""


class RefreshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [refresh]."""

    repo: str | None = None
    """OWNER/NAME on GitHub, so that it need not be typed."""
    project: str | None = None
    """Project id or path on GitLab."""
    jobs: tuple[str, ...] = ()
    """Patterns that read an identity off a job's name."""
    artifacts: tuple[str, ...] = ()
    """Patterns that read an identity off an artifact's name."""
    artifact_url: str | None = None
    """Where artifacts live if the forge does not keep them: a URL with placeholders, one per job."""
    members: tuple[str, ...] = ()
    """Patterns for the files inside an artifact that are goldens."""
    target: str | None = None
    """The path of the golden, filled in from the identity."""
    known_only: tuple[str, ...] = ()
    """Globs of files that are taken only where such a golden already stands."""
    platforms: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Glob over a job's labels, runner and name → the platform it means."""
    values: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Placeholder → globs of the values that are wanted."""
    rename: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Placeholder → value as the CI spells it → value as the goldens do."""
    manifest: str = "karat-manifest.json"
    """The file inside an artifact that says what the artifact is; it wins over any name."""
    tables: TableSettings | None = None
    """Set: members are shards of tables, and `target` names the whole table."""
