"""What a CI system says about the run it is in: a few named variables, never the whole environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec


class _Provider(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sign: str
    """The variable whose presence gives it away."""
    run: str
    attempt: str | None = None
    job: str | None = None
    url: str | None = None
    commit: str | None = None
    image: str | None = None


_PROVIDERS = (
    _Provider(
        name="github",
        sign="GITHUB_ACTIONS",
        run="GITHUB_RUN_ID",
        attempt="GITHUB_RUN_ATTEMPT",
        job="GITHUB_JOB",
        commit="GITHUB_SHA",
    ),
    _Provider(
        name="gitlab",
        sign="GITLAB_CI",
        run="CI_PIPELINE_ID",
        job="CI_JOB_NAME",
        url="CI_JOB_URL",
        commit="CI_COMMIT_SHA",
        image="CI_JOB_IMAGE",
    ),
    _Provider(
        name="buildkite",
        sign="BUILDKITE",
        run="BUILDKITE_BUILD_ID",
        attempt="BUILDKITE_RETRY_COUNT",
        job="BUILDKITE_STEP_KEY",
        url="BUILDKITE_BUILD_URL",
        commit="BUILDKITE_COMMIT",
    ),
    _Provider(
        name="circleci",
        sign="CIRCLECI",
        run="CIRCLE_WORKFLOW_ID",
        job="CIRCLE_JOB",
        url="CIRCLE_BUILD_URL",
        commit="CIRCLE_SHA1",
    ),
    _Provider(
        name="azure",
        sign="TF_BUILD",
        run="BUILD_BUILDID",
        attempt="SYSTEM_JOBATTEMPT",
        job="SYSTEM_JOBNAME",
        commit="BUILD_SOURCEVERSION",
    ),
    _Provider(
        name="jenkins",
        sign="JENKINS_URL",
        run="BUILD_TAG",
        job="JOB_NAME",
        url="BUILD_URL",
        commit="GIT_COMMIT",
    ),
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CI is set, and not to a word that says no."""
    return environ.get("CI", "").lower() not in {"", "0", "false", "no"}


def run_of(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """provider, run, attempt, job and url: what there is; empty outside of a CI that karat knows."""
    found = _provider(environ)
    if found is None:
        return {}
    told = {
        "provider": found.name,
        "run": environ.get(found.run, ""),
        "attempt": environ.get(found.attempt or "", ""),
        "job": environ.get(found.job or "", ""),
        "url": _address(found, environ),
    }
    return {key: value for key, value in told.items() if value}


def session_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """One word for all shards of a CI run's attempt; None outside of one."""
    run = run_of(environ)
    if "run" not in run:
        return None
    words = (run["provider"], run["run"], run.get("attempt", ""))
    return "-".join(_UNSAFE.sub("_", word) for word in words if word)[:100]


def commit_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """The commit that CI says it tests."""
    found = _provider(environ)
    return environ.get(found.commit or "") or None if found else None


def image_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """The container or machine image: KARAT_IMAGE, or what CI tells."""
    told = environ.get("KARAT_IMAGE")
    found = _provider(environ)
    if told or found is None:
        return told or None
    if found.name == "github" and environ.get("ImageOS"):
        return f"{environ['ImageOS']} {environ.get('ImageVersion', '')}".rstrip()
    return environ.get(found.image or "") or None


def _provider(environ: Mapping[str, str]) -> _Provider | None:
    return next((p for p in _PROVIDERS if environ.get(p.sign)), None)


def _address(found: _Provider, environ: Mapping[str, str]) -> str:
    url = environ.get(found.url or "", "")
    if found.name == "github" and environ.get("GITHUB_REPOSITORY"):
        server = environ.get("GITHUB_SERVER_URL", "https://github.com")
        run = environ.get(found.run, "")
        url = f"{server}/{environ['GITHUB_REPOSITORY']}/actions/runs/{run}"
    return _without_secrets(url)


def _without_secrets(url: str) -> str:
    # A user's name and password, or a signature, have no business in a manifest.
    try:
        parts = urlsplit(url)
    except ValueError:  # no address, so nobody misses it
        return ""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl() if host else ""
