"""The check-up: what karat needs of this machine and this folder, what is missing, and how to get it.

In: a folder and the environment. Out: one `Check` after another. Servers are asked only where a repository or project
is named and a token is there; no token is ever part of what is said.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

import msgspec

from karat.config import Config, load
from karat.findings import CannotVerify, ExitCode, KaratError, UsageError
from karat.net.client import Client, Refused, Retry, Token
from karat.net.forges import github_host, github_root, github_token, gitlab_root, gitlab_token
from karat.report.words import count
from karat.system import git
from karat.system.command import Command

_OURS = {"test", "browser", "dev"}  # Extras of those who work on karat.
_SECONDS = 10.0
_WHAT_FOR = {
    "bucket": "refresh from and push to s3://, gs:// and az://",
    "capture": "capture bundles",
    "hunt": "hunt over package releases",
    "lifecycle": "set a bucket's lifecycle rule",
    "ray": "hunt on a Ray cluster",
    "zstd": "pack with zstd",
}


State: TypeAlias = Literal["ok", "missing", "warn", "fail", "unverified"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: State
    """`missing` is needed only by whoever uses it; `warn` makes answers weaker; `fail` is to be mended."""
    says: str
    fix: str = ""
    """The command that mends it."""


class Checkup(msgspec.Struct, frozen=True):
    """Everything that was looked at."""

    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> ExitCode:
        """1 if something is to be mended, 3 if that could not be seen."""
        states = {check.state for check in self.checks}
        return ExitCode.FAIL if "fail" in states else ExitCode("unverified" in states and ExitCode.CANNOT_VERIFY)


def examine(folder: Path, env: Mapping[str, str], *, offline: bool = False) -> Checkup:
    """All checks; with `offline`, no server is asked."""
    config = Config()
    try:
        config = load(folder)
        configured = Check("configuration", "ok", str(config.file))
        if config.file is None:
            lacks = "no karat.toml: goldens are found by their names"
            configured = Check("configuration", "missing", lacks, "karat init")
    except UsageError as error:
        configured = Check("configuration", "fail", str(error), error.next_command)
    address = env.get("RAY_ADDRESS", "")
    checks = [
        *_git(folder),
        configured,
        *_tokens(config, env, offline=offline),
        *_extras(),
        _part("containers", _container_engine),
        _part("ray", lambda: _ray(address, offline=offline), wanted=bool(address)),
        _part("slurm", _slurm),
    ]
    return Checkup(tuple(checks))


def _git(folder: Path) -> Iterator[Check]:
    if shutil.which("git") is None:
        yield Check("git", "warn", "not found; without it karat compares folders and files only", "apt install git")
        return
    try:
        yield Check("git", "ok", git.run_git(folder, "--version").decode().strip().removeprefix("git "))
        if (root := git.find_root(folder)) is None:
            yield Check(
                "repository", "warn", f"none around {folder}; the old side of a diff is read from git", "git init"
            )
        elif not git.has_commit(root):
            yield Check("repository", "warn", f"{root} has no commit yet, so there is no old side", "git commit")
        elif (git.common_folder(root) / "shallow").exists():
            said = f"{root} is a shallow clone: history, hunts and approvals see only a part (in CI: fetch-depth: 0)"
            yield Check("repository", "warn", said, "git fetch --unshallow")
        else:
            yield Check("repository", "ok", str(root))
    except CannotVerify as error:
        yield Check("repository", "fail", str(error), error.next_command)


def _tokens(config: Config, env: Mapping[str, str], *, offline: bool) -> Iterator[Check]:
    """GitHub's and GitLab's, each asked for where the configuration, CI or the remote origin names it."""
    try:
        host, path = git.origin(config.root) or ("", "")
        root, lab = github_root(env), gitlab_root(env)
        hub, own = github_host(root), lab.partition("://")[2].partition("/")[0]
        repo = config.refresh.repo or env.get("GITHUB_REPOSITORY") or (path if host == hub else "")
        project = config.refresh.project or env.get("CI_PROJECT_PATH") or (path if host == own else "")
        asked = f"{lab}/projects/{quote(project, safe='')}/pipelines"
        yield _token("GitHub token", github_token(env, hub), repo, f"{root}/repos/{repo}/actions/runs", offline=offline)
        yield _token("GitLab token", gitlab_token(env), project, asked, offline=offline)
    except UsageError as error:
        yield Check("tokens", "fail", str(error), error.next_command)


def _token(name: str, token: Token | None, repo: str, url: str, *, offline: bool) -> Check:
    fix = "gh auth login" if name.startswith("GitHub") else "export GITLAB_TOKEN=YOUR_TOKEN"
    if token is None:
        return Check(name, "warn" if repo else "missing", f"none; needed to refresh from {repo or name[:6]}", fix)
    if not repo or offline:
        return Check(name, "ok", f"found in {token.found_in}; not tried")
    retry = Retry(attempts=2, connect_attempts=1, connect_timeout=_SECONDS, read_timeout=_SECONDS)
    client = Client(url, token, retry=retry)
    try:
        client.get("", msgspec.Raw, per_page=1)
    except Refused as error:
        return Check(name, "fail", str(error), fix)
    except CannotVerify as error:
        return Check(name, "unverified", str(error), "karat doctor --offline")
    finally:
        client.close()
    return Check(name, "ok", f"found in {token.found_in}, accepted for {repo}")


def _extras() -> Iterator[Check]:
    wanted: dict[str, list[str]] = {}
    for line in metadata.requires("karat") or ():
        requirement, _, marker = line.partition(";")
        if (named := re.search(r"extra == ['\"]([\w-]+)", marker)) and named[1] not in _OURS:
            wanted.setdefault(named[1], []).append(re.split(r"[^\w.-]", requirement.strip())[0])
    for extra, names in sorted(wanted.items()):
        versions: dict[str, str] = {}
        for name in names:
            with suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(name)
        if lacks := ", ".join(name for name in names if name not in versions):
            used = _WHAT_FOR.get(extra, "")
            yield Check(
                f"extra {extra}", "missing", f"to {used}: lacks {lacks}", Command("pip", "install", f"karat[{extra}]")
            )
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _part(name: str, asked: Callable[[], str], *, wanted: bool = False) -> Check:
    """A part that answers, or not: it is missing, unless somebody has said that it is there."""
    try:
        return Check(name, "ok", asked())
    except KaratError as error:
        wrong: State = "fail" if isinstance(error, UsageError) else "unverified"
        return Check(name, wrong if wanted else "missing", str(error), error.next_command)


def _container_engine() -> str:
    from karat.hunts.timelines.container_engine import find_engine

    engine = find_engine()
    return f"{engine.name} {engine.version}"


def _ray(address: str, *, offline: bool) -> str:
    from karat.engines.ray_engine import reach

    name = "export RAY_ADDRESS=HOST:6379"
    if not address:
        raise CannotVerify("RAY_ADDRESS names no cluster", next_command=name)
    if not offline and address != "auto":
        reach(address, name)
    return f"RAY_ADDRESS is {address}" + ("; not tried" if offline else "")


def _slurm() -> str:
    from karat.engines.slurm_engine import Slurm

    slurm = Slurm((), lambda _: None)
    slurm.patience = 0.0
    return f"{count(len(slurm.nodes()), 'node')} that take jobs"
