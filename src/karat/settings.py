"""The tables of karat.toml, a struct each; `karat.config` reads them. Unknown keys are errors, with a suggestion.

Patterns of [refresh] are text with `{name}` placeholders. A placeholder never takes a slash; `run_id`, `job_id`, `attempt`,
`shard` and `num_shards` take digits only. Values read off names are compared without regard to case.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Self

import msgspec

from karat.findings import suggest

STEP = "step"  # The name of the pattern that finds the step in a log.
RULES = ("gradient", "float64", "tolerance", "determinism", "weak", "baseline", "policy")
"""What a waiver is from; each has its approvers."""
DEFAULT_RULE = "default"  # Whose approvers decide on the rules that have none of their own.
Improved = Literal["fail", "warn"]
Unknown = Literal["fail", "warn", "ignore"]
_INT64 = 2**63
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

    def target_of(self, platform: str) -> str | None:
        """The pattern of the paths of a platform's goldens."""
        return next((path for glob, path in self.targets.items() if fnmatchcase(platform, glob)), self.target)

    def skips(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.skip)


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [check]."""

    actual: tuple[str, ...] = ()  # Patterns that read an identity off the path of a result, before `goldens.cases` do.
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column of a result's table → the golden's column it is compared with."""
    requests: str = ""
    """A glob of a document's keys that are requests: a result may have fewer, but none that its golden lacks."""
    improved: Improved = "warn"
    unknown: Unknown = "warn"  # What a result means that is better than its golden, or that its golden does not know.
    unknown_rows: Unknown | None = None  # The same for rows of a table, if it is not as `unknown` says.


class CheckExemption(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of [[exempt]]: a deviation that is known, owned, explained, and will end."""

    kind: Literal["flaky", "expected-failure"]
    owner: str
    reason: str
    link: str
    expires: date  # The last day on which it holds.
    path: str = "*"  # Golden paths: a glob, a folder, or the end of a path.
    metric: str = "*"
    row: str | None = None  # Rows of a table, places of a document; None: the whole metric.
    covers: Literal["values", "missing"] = "values"  # `missing`: what is absent or not finite is covered, too.

    def __post_init__(self) -> None:
        for name in ("owner", "reason", "link"):
            if not getattr(self, name).strip():
                raise ValueError(f"expected {name} to say something, found an empty text")


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


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [audit]."""

    tests: tuple[str, ...] = ()
    """Paths of tests, with placeholders of `goldens.cases`: a golden is a test's where all that both name is the same."""
    named_in: tuple[str, ...] = ()  # Globs of the files in which tests name their goldens.
    names: tuple[str, ...] = ()  # Paths of goldens, with {name} for what a file of `named_in` must hold.
    stale_months: int = 12  # Months without a refresh after which a golden is stale; 0: never.


class BundleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [bundles]."""

    capture: tuple[str, ...] = ("*",)  # Globs of the suites to capture, once capturing is on.
    raw: bool = False  # Also write headerless .bin files for readers without karat.
    flow: str | None = None  # The flow of tests that do not name theirs.
    flow_fixture: str = "flow"  # The parameter or fixture that names a test's flow.

    def __post_init__(self) -> None:
        if not self.capture:
            raise ValueError("capture must have at least one glob, found none")

    def chooses(self, suite: str) -> bool:
        from karat.goldens.paths import glob_matcher

        return any(glob_matcher(glob).fullmatch(suite) for glob in self.capture)


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [snapshots] of karat.toml."""

    folder: str | None = None
    """A folder, seen from where karat.toml is, for all snapshots; None: a folder `goldens` beside each test."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [store]."""

    url: str | None = None  # A folder, or s3://, gs://, az://; KARAT_STORE overrules it, --store both.
    retention: int = 90  # Days that a reference is kept, unless it is pinned.
    locks: tuple[str, ...] = ()  # Lock files, or globs of them, whose digests `karat gc` must keep.

    signers: str = ".karat/allowed_signers"
    """Whose SSH keys may sign references: ssh-keygen's ALLOWED SIGNERS, seen from where karat.toml is."""

    def seen_from(self, root: Path) -> Self:
        """The same with relative paths taken from where karat.toml is, not from where one stands."""
        url = self.url
        if url is not None and "://" not in url and not url.startswith(("/", "~")):
            url = str(root / url)
        return msgspec.structs.replace(self, url=url, signers=str(root / Path(self.signers).expanduser()))

    def __post_init__(self) -> None:
        if not 1 <= self.retention <= 36500:
            raise ValueError(f"retention must be from 1 to 36500 days, found {self.retention}")


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [policy]."""

    exemptions: str = "exemptions.toml"  # The file of exemptions, seen from where karat.toml is.
    evidence: str = ".karat/evidence"
    """Where `karat policy gate` and `coverage` look for journals if no folder is named, seen from where karat.toml is."""
    baseline: str = "policy-baseline.json"
    """The baseline: ops that are known to lack evidence. It only ever gets shorter."""
    namespaces: tuple[str, ...] = ()  # Python modules whose public callables are operators: `mylib.ops`.
    exclude: tuple[str, ...] = ()  # Globs of qualified names in those namespaces that are not operators.
    complete: bool = False  # Whether the journals that are gated are always those of the whole suite.
    devices: tuple[str, ...] = ()  # Devices on which evidence must exist; none: any device will do.
    approvers: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Rule → who may approve an exemption from it: `@user`, `@org/team`, an e-mail, or `CODEOWNERS`; `default` for the rest."""
    tests: tuple[str, ...] = ()  # Globs of test files that approvals look into; none: every Python file that changed.
    forge: Literal["github", "gitlab"] | None = None
    """Where reviews are asked for; by default what the CI's variables or the remote say."""
    signers: str = ".karat/allowed_signers"
    """Whose SSH keys may sign a list of approvals: ssh-keygen's ALLOWED SIGNERS, seen from the root of the repository."""

    def __post_init__(self) -> None:
        # Approvers of a rule that there is not would approve nothing, in silence.
        known = (*RULES, DEFAULT_RULE)
        for rule in self.approvers:
            if rule not in known:
                raise ValueError(f"approvers: unknown key {rule!r}{suggest(rule, known)} (known: {', '.join(known)})")


class SuiteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [suite]: where a suite's tree says how it gates."""

    metrics: str | None = None  # The file beside a golden whose list METRICS names the metrics that are gated.
    default_metrics: tuple[str, ...] = ()  # The metrics that are gated where the file has no such list.
    deterministic: tuple[str, ...] = ()  # The metrics that are exact unless the file sets one of `approximate` to 1.
    approximate: tuple[str, ...] = ()
    thresholds: str | None = None  # The Python file whose dictionary CHECK_THRESHOLDS has a metric's tolerances.
    flaky: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column of a table → the Python file whose set `flaky_models` names the rows that never fail."""
