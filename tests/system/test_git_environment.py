from __future__ import annotations

import subprocess

from karat.system.git import without_foreign


def test_every_variable_of_a_repository_goes_and_settings_stay() -> None:
    listed = subprocess.run(["git", "rev-parse", "--local-env-vars"], check=True, capture_output=True, text=True)
    names = dict.fromkeys([*listed.stdout.split(), "GIT_SSH_COMMAND", "GIT_ASKPASS", "HOME"], "x")
    assert sorted(without_foreign(names)) == [
        "GIT_ASKPASS",
        "GIT_CONFIG",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_SSH_COMMAND",
        "HOME",
    ]
