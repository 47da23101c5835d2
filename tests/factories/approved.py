"""A range with a policy, and the request in which its changes are approved."""

from __future__ import annotations

from typing import Any

from factories.clocks import Clock
from factories.forge import Forge
from factories.forge_github import GitHubPull
from factories.policy_ranges import PolicyRange
from karat.policy.approvals.check import Approvals, approvals
from karat.policy.approvals.request import Options

REPO = "octo/goldens"
FILE = "tests/test_ops.py"


class World:
    """A range, its pull request, and the question."""

    def __init__(self, tree: PolicyRange, forge: Forge) -> None:
        self.tree, self.forge = tree, forge
        self.head = tree.skip()
        self.pull: GitHubPull = forge.github.pull(REPO, 7, author="alice", head=self.head)
        forge.github.teams["octo/numerics"] = ["dora", "erin"]
        self.retry = Clock().retry(attempts=2)

    def ask(self, **more: Any) -> Approvals:
        env = {
            "GITHUB_API_URL": self.forge.github_url,
            "GITHUB_TOKEN": self.forge.github.token,
            "CI_API_V4_URL": self.forge.gitlab_url,
            "GITLAB_TOKEN": self.forge.gitlab.token,
        }
        options: dict[str, Any] = {"base": "main", "pull": 7, "repo": REPO, "env": env}
        return approvals(self.tree.root, Options(**{**options, "retry": self.retry, **more}))

    def push(self) -> None:
        self.head = self.pull.head = self.tree.commit("another push")
