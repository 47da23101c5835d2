from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from karat.findings import UsageError
from karat.hunts.hunt_toml import Overrides, apply_overrides
from karat.hunts.settings import (
    ContainerSettings,
    HuntSettings,
    MetricSettings,
    ProbeSettings,
    RepositorySettings,
    SearchSettings,
    changed_settings,
    environment_values,
    redact,
    settings_json,
)

SETTINGS = HuntSettings(
    stages=("containers by day", "commits"),
    probe=ProbeSettings(
        command="python probe.py",
        env={"API_TOKEN": "hush-hush-123", "MODE": "x"},
        metrics=(MetricSettings(name="speed", seconds=True), MetricSettings(name="loss", json="x")),
    ),
    containers=ContainerSettings(image="r/x:{date:%Y}", env={"INNER": "hidden-in-a-box"}),
    repositories=(RepositorySettings(name="xla", url="https://me:hunter22@host/xla.git"),),
)


def test_names_are_kept_and_values_are_not() -> None:
    text = settings_json(SETTINGS)
    for secret in ("hush-hush", "hidden-in", "hunter22", "me:"):
        assert secret not in text
    for name in ("API_TOKEN", "MODE", "INNER", "https://host/xla.git"):
        assert name in text
    back = msgspec.json.decode(text, type=HuntSettings)
    assert back.probe.command == "python probe.py"


def test_commands_are_kept_without_values() -> None:
    environment = environment_values(SETTINGS)
    assert redact("API_TOKEN=hush-hush-123", environment) == "API_TOKEN=$API_TOKEN"
    assert redact("--header=Bearer hush-hush-123", environment) == "--header=Bearer $API_TOKEN"
    assert redact("MODE=x", environment) == "MODE=$MODE"
    assert redact("fix", environment) == "fix", "a short value is also a letter of words"
    assert redact("git+https://me:hunter22@host/a", environment) == "git+https://host/a"


def test_what_may_change_between_two_sessions() -> None:
    search = structs.replace(SETTINGS, search=SearchSettings(strategy="sweep", max_runs=3))
    assert changed_settings(settings_json(SETTINGS), settings_json(search)) == ()
    probe = structs.replace(SETTINGS.probe, timeout="1 s", env={"API_TOKEN": "another"})
    other = structs.replace(SETTINGS, probe=probe, stages=("commits",))
    assert changed_settings(settings_json(SETTINGS), settings_json(other)) == (
        "probe.env.MODE",
        "probe.timeout",
        "stages",
    )


def test_the_command_line_is_over_the_file_and_a_resume_over_the_beginning() -> None:
    began = Overrides(strategy="sweep", max_runs=5, metrics=("loss",), stage="commits")
    now = Overrides(max_runs=9, jobs=2).over(began)
    assert now == Overrides(strategy="sweep", max_runs=9, jobs=2, metrics=("loss",), stage="commits")
    settings = apply_overrides(SETTINGS, now)
    assert (settings.search.strategy, settings.search.max_runs) == ("sweep", 9)
    assert settings.engine.slots == 2
    assert [m.name for m in settings.probe.metrics] == ["loss"]
    assert settings.stages == ("commits",)
    assert apply_overrides(SETTINGS, Overrides()) == SETTINGS
    for stage in ("containers", "0", "containers by day"):
        assert apply_overrides(SETTINGS, Overrides(stage=stage)).stages == SETTINGS.stages
    with pytest.raises(UsageError, match="did you mean 'commits'"):
        apply_overrides(SETTINGS, Overrides(stage="commit"))


@pytest.mark.parametrize(("confidence", "limit"), [(0.5, r"> 0\.5"), (1.0, "< 1")])
def test_options_are_held_to_what_the_file_is(confidence: float, limit: str) -> None:
    with pytest.raises(UsageError, match=rf"search\.confidence must be a number {limit}") as caught:
        apply_overrides(SETTINGS, Overrides(confidence=confidence))
    assert caught.value.next_command == "karat hunt run --help"
