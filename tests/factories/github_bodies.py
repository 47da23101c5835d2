"""GitHub's JSON, field by field as its OpenAPI description wants it."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

from factories.forge_github import HOUR, GitHubArtifact, GitHubJob, GitHubRepository, GitHubRun

DAY = 24 * HOUR

_REPOSITORY_LINKS = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}
_USER_LINKS = {
    "events_url": "/events{/privacy}",
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "organizations_url": "/orgs",
    "received_events_url": "/received_events",
    "repos_url": "/repos",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
}


def when(seconds: float) -> str:
    """A time as GitHub writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def user(api: str, login: str) -> dict[str, Any]:
    home = f"{api}/users/{login}"
    return {
        "login": login,
        "id": int(hashlib.sha256(login.encode()).hexdigest()[:6], 16),
        "node_id": _node("User", login),
        "avatar_url": f"{api}/avatars/{login}",
        "gravatar_id": "",
        "url": home,
        "html_url": f"{api}/{login}",
        **{name: home + tail for name, tail in _USER_LINKS.items()},
        "type": "User",
        "user_view_type": "public",
        "site_admin": False,
    }


def repository(api: str, known: GitHubRepository) -> dict[str, Any]:
    owner, name = known.full_name.split("/")
    home = f"{api}/repos/{known.full_name}"
    return {
        "id": known.id,
        "node_id": _node("Repository", known.id),
        "name": name,
        "full_name": known.full_name,
        "private": known.private,
        "owner": user(api, owner),
        "html_url": f"{api}/{known.full_name}",
        "description": None,
        "fork": False,
        "url": home,
        **{link: home + tail for link, tail in _REPOSITORY_LINKS.items()},
    }


def run(api: str, known: GitHubRun, attempt: int) -> dict[str, Any]:
    """One attempt of a run; earlier ones had failed, or there would be no later."""
    home = f"{api}/repos/{known.repository.full_name}/actions/runs/{known.id}"
    newest = attempt == known.attempts
    place = repository(api, known.repository)
    return {
        "id": known.id,
        "name": known.workflow,
        "node_id": _node("WorkflowRun", known.id),
        "head_branch": known.branch,
        "head_sha": known.sha,
        "path": f".github/workflows/{known.workflow_file}",
        "display_title": "Bump the image",
        "run_number": known.number,
        "event": known.event,
        "status": known.status if newest else "completed",
        "conclusion": known.conclusion if newest else "failure",
        "workflow_id": known.workflow_id,
        "check_suite_id": known.id + 1,
        "check_suite_node_id": _node("CheckSuite", known.id + 1),
        "url": home,
        "html_url": f"{api}/{known.repository.full_name}/actions/runs/{known.id}",
        "pull_requests": [],
        "created_at": when(known.created),
        "updated_at": when(known.created + (attempt + 1) * HOUR),
        "actor": user(api, "octo"),
        "run_attempt": attempt,
        "referenced_workflows": [],
        "run_started_at": when(known.created + attempt * HOUR),
        "triggering_actor": user(api, "octo"),
        "jobs_url": f"{home}/jobs",
        "logs_url": f"{home}/logs",
        "check_suite_url": f"{place['url']}/check-suites/{known.id + 1}",
        "artifacts_url": f"{home}/artifacts",
        "cancel_url": f"{home}/cancel",
        "rerun_url": f"{home}/rerun",
        "previous_attempt_url": f"{home}/attempts/{attempt - 1}" if attempt > 1 else None,
        "workflow_url": f"{place['url']}/actions/workflows/{known.workflow_id}",
        "head_commit": _commit(known),
        "repository": place,
        "head_repository": place,
    }


def job(api: str, owner: GitHubRun, known: GitHubJob) -> dict[str, Any]:
    home = f"{api}/repos/{owner.repository.full_name}"
    hosted = known.runner is not None
    return {
        "id": known.id,
        "run_id": owner.id,
        "workflow_name": owner.workflow,
        "head_branch": owner.branch,
        "run_url": f"{home}/actions/runs/{owner.id}",
        "run_attempt": known.attempt,
        "node_id": _node("CheckRun", known.id),
        "head_sha": owner.sha,
        "url": f"{home}/actions/jobs/{known.id}",
        "html_url": f"{api}/{owner.repository.full_name}/actions/runs/{owner.id}/job/{known.id}",
        "status": known.status,
        "conclusion": known.conclusion,
        "created_at": when(known.started - 5),
        "started_at": when(known.started),
        "completed_at": None if known.completed is None else when(known.completed),
        "name": known.name,
        "steps": [_step(known)],
        "check_run_url": f"{home}/check-runs/{known.id}",
        "labels": list(known.labels),
        "runner_id": 7 if hosted else None,
        "runner_name": known.runner,
        "runner_group_id": 2 if known.group is not None else None,
        "runner_group_name": known.group,
    }


def artifact(api: str, known: GitHubArtifact) -> dict[str, Any]:
    owner = known.run
    home = f"{api}/repos/{owner.repository.full_name}/actions/artifacts/{known.id}"
    return {
        "id": known.id,
        "node_id": _node("Artifact", known.id),
        "name": known.name,
        "size_in_bytes": known.size,
        "url": home,
        "archive_download_url": f"{home}/zip",
        "expired": known.expired,
        "digest": known.digest,
        "created_at": when(known.created),
        "updated_at": when(known.created),
        "expires_at": when(known.created + 90 * DAY),
        "workflow_run": {
            "id": owner.id,
            "repository_id": owner.repository.id,
            "head_repository_id": owner.repository.id,
            "head_branch": owner.branch,
            "head_sha": owner.sha,
        },
    }


def commit(api: str, of: GitHubRun) -> dict[str, Any]:
    home = f"{api}/repos/{of.repository.full_name}"
    short = _commit(of)
    who = short["author"] | {"date": short["timestamp"]}
    return {
        "sha": of.sha,
        "node_id": _node("Commit", of.sha),
        "commit": {
            "url": f"{home}/git/commits/{of.sha}",
            "author": who,
            "committer": who,
            "message": short["message"],
            "comment_count": 0,
            "tree": {"sha": short["tree_id"], "url": f"{home}/git/trees/{short['tree_id']}"},
        },
        "url": f"{home}/commits/{of.sha}",
        "html_url": f"{api}/{of.repository.full_name}/commit/{of.sha}",
        "comments_url": f"{home}/commits/{of.sha}/comments",
        "author": user(api, "octo"),
        "committer": None,
        "parents": [],
    }


def _step(known: GitHubJob) -> dict[str, Any]:
    return {
        "name": "Run tests",
        "status": "completed" if known.conclusion else "in_progress",
        "conclusion": known.conclusion,
        "number": 1,
        "started_at": when(known.started),
        "completed_at": None if known.completed is None else when(known.completed),
    }


def _commit(known: GitHubRun) -> dict[str, Any]:
    someone = {"name": "Octo", "email": "octo@example.invalid"}
    return {
        "id": known.sha,
        "tree_id": hashlib.sha1(known.sha.encode(), usedforsecurity=False).hexdigest(),
        "message": "Bump the image",
        "timestamp": when(known.created - 60),
        "author": someone,
        "committer": someone,
    }


def _node(kind: str, of: int | str) -> str:
    return base64.b64encode(f"{kind}{of}".encode()).decode()
