"""The CI environment: whether karat runs in CI, and what CI says of the run; never a token.

Only the variables in this table are read, so that no secret of the environment gets into a manifest or a journal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec


class _Provider(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sign: str  # the variable that says that this is it
    run: str
    commit: str
    repository: str = ""
    attempt: str = ""
    job: str = ""
    job_id: str = ""
    url: str = ""
    image: str = ""
    own_names: bool = True  # whether nobody else sets variables of these names


_PROVIDERS = (
    _Provider(
        name="github", sign="GITHUB_ACTIONS", run="GITHUB_RUN_ID", attempt="GITHUB_RUN_ATTEMPT", job="GITHUB_JOB",
        repository="GITHUB_REPOSITORY", commit="GITHUB_SHA",
    ),
    _Provider(
        name="gitlab", sign="GITLAB_CI", run="CI_PIPELINE_ID", job="CI_JOB_NAME", job_id="CI_JOB_ID",
        repository="CI_PROJECT_PATH", url="CI_JOB_URL", commit="CI_COMMIT_SHA", image="CI_JOB_IMAGE",
    ),
    _Provider(
        name="buildkite", sign="BUILDKITE", run="BUILDKITE_BUILD_ID", attempt="BUILDKITE_RETRY_COUNT",
        job="BUILDKITE_STEP_KEY", url="BUILDKITE_BUILD_URL", commit="BUILDKITE_COMMIT",
    ),
    _Provider(
        name="circleci", sign="CIRCLECI", run="CIRCLE_WORKFLOW_ID", job="CIRCLE_JOB", url="CIRCLE_BUILD_URL",
        commit="CIRCLE_SHA1",
    ),
    _Provider(
        name="azure", sign="TF_BUILD", run="BUILD_BUILDID", attempt="SYSTEM_JOBATTEMPT", job="SYSTEM_JOBNAME",
        commit="BUILD_SOURCEVERSION", own_names=False,
    ),
    _Provider(
        name="jenkins", sign="JENKINS_URL", run="BUILD_TAG", job="JOB_NAME", url="BUILD_URL", commit="GIT_COMMIT",
        own_names=False,
    ),
)  # fmt: skip
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CI is set, and not to a word that says no."""
    return _is_on(environ.get("CI", ""))


def provider_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """`github`, `gitlab`, `buildkite`, `circleci`, `azure`, `jenkins`, or None."""
    return next((p.name for p in _PROVIDERS if _is_on(environ.get(p.sign, ""))), None)


def facts(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What CI says: provider, repository, run, attempt, job, job_id, url, commit, image; only what is set."""
    name = provider_of(environ)
    # A container may have been handed the run's number or commit, and not the variable that names the system.
    found = next((p for p in _PROVIDERS if p.name == name), None) or next(
        (p for p in _PROVIDERS if p.own_names and (environ.get(p.run) or environ.get(p.commit))), None
    )
    if found is None:
        return {}
    fields = ("repository", "run", "attempt", "job", "job_id", "commit", "image")
    said = {field: environ.get(getattr(found, field), "") for field in fields}
    url = environ.get(found.url, "")
    if found.name == "github" and said["repository"]:
        server = environ.get("GITHUB_SERVER_URL", "https://github.com")
        url = f"{server}/{said['repository']}/actions/runs/{said['run']}"
    said |= {"provider": found.name, "url": _address(url)}
    return {field: text for field, text in said.items() if text}


def run_of(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """provider, run, attempt, job and url: what there is; empty outside of a CI that karat knows."""
    said = facts(environ)
    return {k: said[k] for k in ("provider", "run", "attempt", "job", "url") if k in said}


def session_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """One word for all shards of a CI run's attempt; None outside of one."""
    said = facts(environ)
    if "run" not in said:
        return None
    words = (said["provider"], said["run"], said.get("attempt", ""))
    return "-".join(_UNSAFE.sub("_", word) for word in words if word)[:100]


def commit_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """The commit that CI says it tests."""
    return facts(environ).get("commit")


def image_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """The container or machine image: KARAT_IMAGE, or what CI says."""
    said = facts(environ)
    if own := environ.get("KARAT_IMAGE"):
        return own
    if said.get("provider") == "github" and environ.get("ImageOS"):
        return f"{environ['ImageOS']} {environ.get('ImageVersion', '')}".rstrip()
    return said.get("image")


def _is_on(text: str) -> bool:
    return text.lower() not in {"", "0", "false", "no"}


def _address(url: str) -> str:
    """An address without the user, password or signature that it may hold."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address, so nobody misses it
        return ""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl() if host else ""
