"""From the options of a command line to a source.

Kinds of source register under the entry point `karat.sources`, the built-in ones like a third party's:
a callable that takes `SourceOptions`, the settings [refresh] and a function that tells the person something, and
returns a `Source`. `--source NAME` and `--source NAME://…` pick it by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, UsageError, suggest
from karat.settings import RefreshSettings
from karat.sources.source import Notice, Source
from karat.system import git

_HELP = "karat refresh --help"


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user said about where values come from."""

    source: str | None
    path: str | None = None
    repo: str | None = None
    run_id: str | None = None
    sha: str | None = None
    workflow: str | None = None
    project: str | None = None
    pipeline_id: str | None = None
    attempt: int | None = None

    @property
    def kind(self) -> str:
        """The name of the kind of source: the word itself, or a URL's scheme."""
        if self.source is None:
            said = "expected --source github, gitlab, folder or a bucket's URL, found none"
            raise UsageError(said, next_command=_HELP)
        return self.source.partition("://")[0]


Factory = Callable[[SourceOptions, RefreshSettings, Notice | None], Source]

_ONLY_WITH = {
    **dict.fromkeys(("repo", "run_id", "sha", "workflow"), ("github",)),
    "attempt": ("github", "gitlab"),
    **dict.fromkeys(("project", "pipeline_id"), ("gitlab",)),
    "path": ("folder",),
}


def check_options(options: SourceOptions) -> None:
    """Options that the chosen source would ignore are mistakes; a third party knows its own."""
    kind = options.kind
    for name, kinds in _ONLY_WITH.items() if kind in BUILT_IN else ():
        if getattr(options, name) is not None and kind not in kinds:
            option = "PATH" if name == "path" else f"--{name.replace('_', '-')}"
            said = f"{option} goes with --source {' or '.join(kinds)}, found --source {options.source}"
            raise UsageError(said, next_command=_HELP)


def open_source(options: SourceOptions, settings: RefreshSettings, notice: Notice | None = None) -> Source:
    kind = options.kind
    if kind in BUILT_IN:
        return BUILT_IN[kind](options, settings, notice)
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="karat.sources")}
    if kind not in points:
        known = sorted({*BUILT_IN, *points})
        said = f"expected a source, one of {', '.join(known)}, found {kind!r}{suggest(kind, known)}"
        raise UsageError(said, next_command=_HELP)
    try:
        loaded: Factory = points[kind].load()
    except Exception as error:  # a plug-in may fail in any way
        said = f"expected the source {kind!r} to load, but {type(error).__name__}: {error}"
        raise CannotVerify(said, next_command="pip check") from error
    return loaded(options, settings, notice)


def own_files(options: SourceOptions, cwd: Path) -> tuple[str, ...]:
    """A glob of the source's files, if they lie untracked in the work tree: results are no goldens there."""
    source = options.source or ""
    place = options.path if source == "folder" else source.partition("file://")[2]
    root = git.find_root(cwd)
    if not place or root is None:
        return ()
    folder = Path(os.path.normpath(cwd / place)).resolve()
    if not folder.is_dir() or root.resolve() not in folder.parents:
        return ()
    name = folder.relative_to(root.resolve()).as_posix()
    tracked = git.run_git(root, "--literal-pathspecs", "ls-files", "-z", "--", name)
    return () if tracked or any(c in name for c in "*?{") else (f"{name}/**",)


def github(options: SourceOptions, settings: RefreshSettings, notice: Notice | None) -> Source:
    """A workflow run, or all runs of a commit."""
    from karat.sources.github import GitHub

    repo = options.repo or settings.repo or os.environ.get("GITHUB_REPOSITORY")
    workflows = (options.workflow,) if options.workflow else settings.workflows
    return GitHub(repo or "", run_id=options.run_id, sha=options.sha, workflows=workflows, notice=notice)


def gitlab(options: SourceOptions, settings: RefreshSettings, notice: Notice | None) -> Source:
    """A pipeline and its child pipelines."""
    from karat.sources.gitlab import GitLab

    return GitLab(options.project or settings.project, options.pipeline_id, notice=notice)


def folder(options: SourceOptions, _settings: RefreshSettings, _notice: Notice | None) -> Source:
    """A folder of artifacts on this disk, such as `gh run download` leaves."""
    from karat.sources.folder import Folder

    if options.path is None:
        said = "expected a PATH with --source folder, found none"
        raise UsageError(said, next_command="karat refresh --source folder PATH --scope all")
    return Folder(Path(options.path))


def bucket(options: SourceOptions, _settings: RefreshSettings, notice: Notice | None) -> Source:
    """A bucket, or the part of one below a prefix; file:// is a folder."""
    from karat.sources.bucket import open_bucket

    return open_bucket(str(options.source), notice=notice)


BUILT_IN: Mapping[str, Factory] = {
    "github": github,
    "gitlab": gitlab,
    "folder": folder,
    **dict.fromkeys(("s3", "gs", "az", "file"), bucket),
}
