"""Variables of another repository: what git tells its hooks and aliases. A hunt that one of them started is not about that."""

from __future__ import annotations

from collections.abc import Mapping

# Those of `git rev-parse --local-env-vars` that name a repository or a part of one; settings and credentials are left alone.
_FOREIGN = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
    "GIT_REPLACE_REF_BASE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_QUARANTINE_PATH", "GIT_DEFAULT_HASH",
})  # fmt: skip


def without_foreign(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which git finds the repository of the folder it runs in."""
    return {name: value for name, value in environment.items() if name not in _FOREIGN}
