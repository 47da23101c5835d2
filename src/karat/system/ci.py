"""The CI environment: whether karat runs in CI, and what CI says of the run; never a token.

Only the variables in this table are read, so that no secret of the environment gets into a manifest or a journal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

# Each by the variable that says that this is it, and those that say the rest.
_PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "github": {
        "sign": "GITHUB_ACTIONS", "run": "GITHUB_RUN_ID", "attempt": "GITHUB_RUN_ATTEMPT", "job": "GITHUB_JOB",
        "repository": "GITHUB_REPOSITORY", "commit": "GITHUB_SHA",
    },
    "gitlab": {
        "sign": "GITLAB_CI", "run": "CI_PIPELINE_ID", "job": "CI_JOB_NAME", "job_id": "CI_JOB_ID",
        "repository": "CI_PROJECT_PATH", "url": "CI_JOB_URL", "commit": "CI_COMMIT_SHA", "image": "CI_JOB_IMAGE",
    },
    "buildkite": {
        "sign": "BUILDKITE", "run": "BUILDKITE_BUILD_ID", "attempt": "BUILDKITE_RETRY_COUNT",
        "job": "BUILDKITE_STEP_KEY", "url": "BUILDKITE_BUILD_URL", "commit": "BUILDKITE_COMMIT",
    },
    "circleci": {
        "sign": "CIRCLECI", "run": "CIRCLE_WORKFLOW_ID", "job": "CIRCLE_JOB", "url": "CIRCLE_BUILD_URL",
        "commit": "CIRCLE_SHA1",
    },
    "azure": {
        "sign": "TF_BUILD", "run": "BUILD_BUILDID", "attempt": "SYSTEM_JOBATTEMPT", "job": "SYSTEM_JOBNAME",
        "commit": "BUILD_SOURCEVERSION",
    },
    "jenkins": {"sign": "JENKINS_URL", "run": "BUILD_TAG", "job": "JOB_NAME", "url": "BUILD_URL", "commit": "GIT_COMMIT"},
}  # fmt: skip
_COMMON_NAMES = frozenset({"azure", "jenkins"})  # Others set variables of these names, too.
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CI is set, and not to a word that says no."""
    return _is_on(environ.get("CI", ""))


def provider_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """`github`, `gitlab`, `buildkite`, `circleci`, `azure`, `jenkins`, or None."""
    return next((name for name, own in _PROVIDERS.items() if _is_on(environ.get(own["sign"], ""))), None)


def facts(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What CI says: provider, repository, run, attempt, job, job_id, url, commit, image; only what is set."""
    # A container may have been handed the run's number or commit, and not the variable that names the system.
    handed = (n for n, own in _PROVIDERS.items() if environ.get(own["run"]) or environ.get(own["commit"]))
    name = provider_of(environ) or next((name for name in handed if name not in _COMMON_NAMES), None)
    if name is None:
        return {}
    said = {field: environ.get(variable, "") for field, variable in _PROVIDERS[name].items() if field != "sign"}
    if name == "github" and said["repository"]:
        server = environ.get("GITHUB_SERVER_URL", "https://github.com")
        said["url"] = f"{server}/{said['repository']}/actions/runs/{said['run']}"
    said |= {"provider": name, "url": _address(said.get("url", ""))}
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
