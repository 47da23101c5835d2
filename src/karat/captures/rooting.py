"""Pytest's root folder, which every test is named from, and which the capture directory must not decide."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from karat.captures.directory import OPTION
from karat.findings import UsageError


def require_own_root(config: pytest.Config) -> None:
    """Complains if pytest took the capture directory for a place of tests.

    It looks for its root folder before any plugin tells it which options take a value. Without a
    configuration file, DIR of `--karat-capture DIR` then counts as a place of tests as soon as it is there: every
    test has another name than in the first session.
    """
    if OPTION not in config.invocation_params.args:
        return
    own = _root_without(config)
    if own is not None and own != config.rootpath:
        place = shlex.quote(str(config.getoption("karat_capture")))
        raise UsageError(
            f"{OPTION}: expected {own} as pytest's root folder, found {config.rootpath}: pytest took the "
            "capture directory for a place of tests, and would give every test another name",
            next_command=f"pytest {OPTION}={place}",
        )


def _root_without(config: pytest.Config) -> Path | None:
    """The root folder as the real places of tests decide; None if this pytest cannot be asked."""
    try:
        from _pytest.config.findpaths import determine_setup  # noqa: PLC0415 - no public one

        return determine_setup(
            inifile=config.option.inifilename,
            override_ini=None,
            args=config.option.file_or_dir,
            rootdir_cmd_arg=config.option.rootdir,
            invocation_dir=config.invocation_params.dir,
        )[0]
    except (ImportError, TypeError, AttributeError):
        return None
