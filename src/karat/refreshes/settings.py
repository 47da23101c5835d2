"""What to refresh: the table [refresh] of karat.toml, and the options of one refresh.

Patterns are text with `{name}` placeholders. A placeholder never takes a slash; `run_id`, `job_id`,
`attempt`, `shard` and `num_shards` take digits only. Values read off names are compared without
regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.goldens.paths import DEFAULT_GLOBS
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.sources.source import Progress

_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a table is put together from its shards: the table [refresh.tables]."""

    key: tuple[str, ...] = ()  # The columns that identify a row; by their names if empty.
    columns: tuple[str, ...] = ()  # The columns to keep, in order; all of them if empty.
    fill: Mapping[str, str] = msgspec.field(default_factory=dict)  # Column → what an empty cell stands for.
    integers: tuple[str, ...] = ()
    """Columns whose `3.0` means 3: writers that mix numbers and gaps make floats of counts."""
    padding: int = 0  # Blank lines between the rows of a new table; an existing table keeps its own.

    def __post_init__(self) -> None:
        """Refuse what no table can have."""
        if self.padding < 0:
            raise ValueError(f"expected padding to be 0 or more, found {self.padding}")


class RefreshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [refresh]."""

    repo: str | None = None  # OWNER/NAME on GitHub, so that it need not be typed.
    project: str | None = None  # Project id or path on GitLab.
    workflows: tuple[str, ...] = ()
    """GitHub: of a commit's runs, only those of these workflows, unless --workflow names another."""
    jobs: tuple[str, ...] = ()  # Patterns that read an identity off a job's name.
    skip: tuple[str, ...] = ()
    """Globs of the names of jobs and artifacts that make no goldens, although the patterns fit them."""
    artifacts: tuple[str, ...] = ()  # Patterns that read an identity off an artifact's name.
    artifact_url: str | None = None
    """Where artifacts live if the forge does not keep them: a URL with placeholders, one per job."""
    members: tuple[str, ...] = ()  # Patterns for the files inside an artifact that are goldens.
    target: str | None = None  # The path of the golden, filled in from the identity.
    targets: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Glob of platforms → the path of their goldens, where it is not `target`."""
    known_only: tuple[str, ...] = ()  # Globs of files that are taken only where such a golden already exists.
    platforms: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Glob over a job's labels, runner and name → the platform it means."""
    values: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Placeholder → globs of the values that are wanted."""
    rename: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Placeholder → value as the CI spells it → value as the goldens do."""
    manifest: str = "karat-manifest.json"
    """The file inside an artifact that says what no name tells; where both do, they must agree."""
    tables: TableSettings | None = None  # Set: members are shards of tables, and `target` names the whole table.

    def __post_init__(self) -> None:
        """Refuse what could never match: it would be passed over in silence."""
        patterns: dict[str, Sequence[str]] = {
            "jobs": self.jobs,
            "artifacts": self.artifacts,
            "members": self.members,
            "target": (*filter(None, [self.target]), *self.targets.values()),
            "artifact_url": tuple(filter(None, [self.artifact_url])),
        }
        for key, texts in patterns.items():
            for text in texts:
                rest = _PLACEHOLDER.sub("", text)
                if "{" in rest or "}" in rest:
                    raise ValueError(f"expected placeholders such as {{case}} in {key}, found {text!r}")
        for target in patterns["target"]:
            parts = target.split("/")
            if not parts[0] or ".." in parts or ".git" in parts:
                raise ValueError(f"expected target to be a path in the repository, found {target!r}")
        url = self.artifact_url
        if url is not None and not url.startswith(("https://", "http://")):
            raise ValueError(f"expected artifact_url to begin with https://, found {url!r}")
        if not self.manifest or "/" in self.manifest:
            raise ValueError(f"expected manifest to be a file's name, found {self.manifest!r}")

    def target_of(self, platform: str) -> str | None:
        """The pattern of the paths of a platform's goldens."""
        return next((path for glob, path in self.targets.items() if fnmatchcase(platform, glob)), self.target)

    def skips(self, name: str) -> bool:
        """Whether a job or an artifact makes no goldens."""
        return any(fnmatchcase(name, glob) for glob in self.skip)


class RefreshOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to refresh, and how."""

    scope: str  # `only-failing` or `all`; there is no default.
    settings: RefreshSettings = RefreshSettings()
    globs: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    cases: Sequence[str] = ()
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    status: Sequence[str] = STATUS_ORDER
    only: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    attempt: int | None = None
    accept_incomplete: bool = False
    prune: bool = False
    keep_going: bool = False
    dry_run: bool = False
    date: str = ""  # UTC, ISO 8601; goes into the lock.
    command: Command = Command("karat", "refresh")  # As typed, for the record and for what to run next.
    progress: Progress | None = None
    notice: Callable[[str], None] | None = None

    @property
    def only_failing(self) -> bool:
        """Whether only goldens of jobs that did not succeed are wanted."""
        return self.scope == "only-failing"
