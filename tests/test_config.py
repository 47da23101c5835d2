from __future__ import annotations

from pathlib import Path

import pytest

from karat.config import PRESETS, find, load
from karat.findings import Severity, UsageError
from karat.goldens.paths import DEFAULT_GLOBS


def write(folder: Path, text: str, name: str = "karat.toml") -> Path:
    (folder / ".git").mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return folder


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    config = load(tmp_path)
    assert config.paths == DEFAULT_GLOBS
    assert (config.file, config.preset) == (None, None)


def test_every_threshold_can_be_set(tmp_path: Path) -> None:
    write(
        tmp_path,
        '[[rules]]\nmetric = "lm loss"\nnoise = 1e-6\ndrift_max = 0.5\nworst = "warn"\nexact = true\nbetter = "lower"\n',
    )
    rule = load(tmp_path).rule_book().rule_for("lm loss")
    assert (rule.noise, rule.drift_max, rule.worst, rule.exact, rule.better) == (
        1e-6,
        0.5,
        Severity.WARN,
        True,
        "lower",
    )
    assert rule.origin == "karat.toml"


def test_pyproject_is_read_too_and_karat_toml_wins(tmp_path: Path) -> None:
    write(tmp_path, '[tool.karat.goldens]\npaths = ["a/*.json"]\n', "pyproject.toml")
    assert load(tmp_path).paths == ("a/*.json",)
    write(tmp_path, '[goldens]\npaths = ["b/*.json"]\n')
    assert load(tmp_path).paths == ("b/*.json",)


def test_the_search_goes_up_and_stops_at_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "")
    inner = tmp_path / "x" / "y"
    inner.mkdir(parents=True)
    assert find(inner) == tmp_path / "karat.toml"
    (tmp_path / "x" / ".git").mkdir()
    assert find(inner) is None


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_and_say_where_values_came_from(tmp_path: Path, preset: str) -> None:
    write(tmp_path, f'preset = "{preset}"\n[goldens]\nexclude = ["old/**"]\n')
    config = load(tmp_path)
    assert config.paths != DEFAULT_GLOBS
    assert config.origins["goldens.paths"] == f"preset {preset}"
    assert config.origins["goldens.exclude"] == "karat.toml"


def test_a_projects_rule_stands_before_the_presets(tmp_path: Path) -> None:
    write(tmp_path, 'preset = "megatron-lm"\n[[rules]]\nmetric = "lm loss"\nrtol = 0.5\n')
    assert load(tmp_path).rule_book().rule_for("lm loss").rtol == 0.5
    assert load(tmp_path).rule_book().rule_for("mtp_1 loss").rtol == 0.05


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("presets = 1", "unknown key 'presets'; did you mean 'preset'"),
        ('preset = "megatron"', "no preset is called 'megatron'; did you mean 'megatron-lm'"),
        ("[goldens]\npath = []", "unknown key 'path'; did you mean 'paths'"),
        ("[goldens]\npaths = 3", "paths must be a list of texts, found 3"),
        ("goldens = 3", "must be a table"),
        ("rules = 3", "must be a list of tables"),
        ("rules = [3]", "expected a table, found 3"),
        ("[[rules]]\nnoise = 1", 'expected metric = "…"'),
        ('[[rules]]\nmetric = "x"\nnoize = 1', "unknown key 'noize'; did you mean 'noise'"),
        ('[[rules]]\nmetric = "x"\nnoise = "1"', "noise must be a number"),
        ('[[rules]]\nmetric = "x"\nnoise = nan', "noise must be a number"),
        ('[[rules]]\nmetric = "x"\nnoise = -1', "noise must be a number"),
        ('[[rules]]\nmetric = "x"\nexact = 1', "exact must be true or false"),
        ('[[rules]]\nmetric = "x"\nworst = "bad"', "worst must be fail or warn or info"),
        ("x = = 1", "expected TOML"),
        ('fail_on = ["bad"]', "karat.toml fail_on: expected fail, warn"),
    ],
)
def test_mistakes_are_errors_that_say_what_to_do(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert complaint in str(caught.value)
    assert caught.value.next_command


@pytest.mark.parametrize("text", ["tool = 5", 'tool = "karat"', "[tool]\nother = 5"])
def test_a_pyproject_without_karat_is_none_of_its_business(tmp_path: Path, text: str) -> None:
    write(tmp_path, text, "pyproject.toml")
    assert load(tmp_path).file is None


def test_a_tool_karat_that_is_no_table_is_said(tmp_path: Path) -> None:
    write(tmp_path, "[tool]\nkarat = 5", "pyproject.toml")
    with pytest.raises(UsageError, match="to be a table, found 5"):
        load(tmp_path)
