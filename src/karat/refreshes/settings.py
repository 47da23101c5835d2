"""What karat.toml says about refreshing: the table [refresh].

Patterns are text with `{name}` placeholders. A placeholder never takes a slash; `run_id`, `job_id`,
`attempt`, `shard` and `num_shards` take digits only. Values read off names are compared without
regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
_BRACE = re.compile(r"[{}]")
_WEB = ("https://", "http://")


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    def __post_init__(self) -> None:
        """Refuse what no table can have."""
        if self.padding < 0:
            raise ValueError(f"expected padding to be 0 or more, found {self.padding}")


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

    def __post_init__(self) -> None:
        """Refuse what could never match: it would be passed over in silence."""
        written = {"jobs": self.jobs, "artifacts": self.artifacts, "members": self.members}
        alone = {"target": self.target, "artifact_url": self.artifact_url}
        patterns = {**written, **{key: (text,) for key, text in alone.items() if text is not None}}
        for key, texts in patterns.items():
            for text in texts:
                if _BRACE.search(_PLACEHOLDER.sub("", text)):
                    raise ValueError(
                        f"expected placeholders such as {{case}} in {key}, found {text!r}"
                    )
        if self.target is not None and not _is_inside(self.target):
            raise ValueError(
                f"expected target to be a path in the repository, found {self.target!r}"
            )
        if self.artifact_url is not None and not self.artifact_url.startswith(_WEB):
            raise ValueError(
                f"expected artifact_url to begin with https://, found {self.artifact_url!r}"
            )
        if not self.manifest or "/" in self.manifest:
            raise ValueError(f"expected manifest to be a file's name, found {self.manifest!r}")


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    return not path.startswith("/") and ".." not in parts and ".git" not in parts
