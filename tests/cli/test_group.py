from __future__ import annotations

from pathlib import Path

import pytest

from factories.commands import karat


@pytest.mark.parametrize(
    ("words", "hint"),
    [(("hunt", "statu"), "'status'"), (("policy", "gat"), "'gate'"), (("policy", "covrage"), "'coverage'")],
)
def test_a_misspelt_part_is_guessed(words: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    done = karat(*words, cwd=tmp_path)
    assert done.code == 2
    assert f"karat {words[0]} has no command {words[1]!r}; did you mean {hint}?" in done.err
    assert done.err.endswith(f"next: karat {words[0]} --help\n")


def test_a_file_that_is_called_almost_like_a_part_is_a_hunt(tmp_path: Path) -> None:
    (tmp_path / "report.toml").write_text("stages = []", encoding="utf-8")
    assert "report.toml: expected probe to be set" in karat("hunt", "report.toml", cwd=tmp_path).err


@pytest.mark.slow
def test_without_a_part_hunt_is_run_and_policy_shows_its_help(tmp_path: Path) -> None:
    assert "expected a hunt in hunt.toml, found no such file" in karat("hunt", cwd=tmp_path).err
    shown = karat("policy", cwd=tmp_path)
    assert shown.code == 2
    assert "Usage: karat policy" in shown.out + shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("diff", "--json", "--html"), "expected a value behind --json, found --html"),
        (("diff", "--html", "--htlm"), "found --htlm"),
        (("policy", "gate", "x", "--json", "--complete"), "expected a value behind --json, found --complete"),
    ],
)
def test_an_option_is_no_file_name(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = karat(*words, cwd=tmp_path)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert said in done.err
    assert done.err.rstrip().endswith("--help")


def test_what_follows_two_dashes_is_not_karats(tmp_path: Path) -> None:
    done = karat("hunt", "--", "echo", "--json", "--html", cwd=tmp_path)
    assert "expected a value behind" not in done.err
