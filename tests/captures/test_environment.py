from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import numpy as np
import pytest

from conftest import framework
from factories.repositories import Repository
from karat.captures import environment as module
from karat.captures.environment import created, devices, environment, seeds
from karat.findings import UsageError


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    module._machine.cache_clear()
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "KARAT_IMAGE", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)


def test_machine_and_versions_are_told(tmp_path: Path) -> None:
    found = environment(tmp_path, [np.ones(1)])
    assert found.machine == platform.machine()
    assert found.python == platform.python_version()
    assert found.device == "cpu"
    assert found.packages["numpy"] == np.__version__
    assert next(iter(found.packages)) == "karat"
    assert found.ci == {}
    assert (found.commit, found.dirty) == (None, None)


def test_the_commit_and_whether_the_tree_is_clean(repository: Repository) -> None:
    repository.write("a.txt", "1")
    commit = repository.commit("first")
    repository.write("captures/manifest.json", "{}")  # what git does not know changes no number
    assert environment(repository.root).commit == commit
    assert environment(repository.root).dirty is False
    repository.write("a.txt", "2")
    module._machine.cache_clear()
    assert environment(repository.root).dirty is True


def test_without_a_repository_ci_knows_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_RUN_ID", "7")
    monkeypatch.setenv("GITHUB_SHA", "ab" * 20)
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_PlantedInTheEnvironment")
    found = environment(tmp_path)
    assert found.commit == "ab" * 20
    assert found.ci["run"] == "7"
    assert "Planted" not in repr(found)


def test_a_capture_may_be_dated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert created() == "1970-01-01T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="expected seconds since 1970, found 'yesterday'"):
        created()


@dataclasses.dataclass
class Pair:
    left: object
    right: object


def test_devices_are_found_in_nested_values() -> None:
    assert devices([{"a": [Pair(np.ones(1), None)]}, "text", 3]) == ("cpu",)
    assert devices(["text", None, 3]) == ()


def test_devices_of_what_holds_itself_are_found_without_end() -> None:
    endless: list[object] = [np.ones(1)]
    endless += [endless, endless]
    shared: object = np.ones(1)
    for _ in range(200):
        shared = [shared, shared]
    assert devices([endless, shared]) == ("cpu",)


def test_torch_says_device_and_seed() -> None:
    torch = framework("torch")
    torch.manual_seed(11)
    assert seeds({"numpy": 3})["torch"] == 11
    assert seeds({"torch": 5})["torch"] == 5
    assert devices([torch.ones(1), torch.ones(1, device="meta")]) == ("meta", "cpu")


def test_hash_seeds_are_told_where_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert seeds()["PYTHONHASHSEED"] == "0"
    monkeypatch.delenv("PYTHONHASHSEED")
    assert "PYTHONHASHSEED" not in seeds()
