"""Importing: `module:function` as the function itself, or a sentence that says what is wrong with it."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from karat.findings import suggest
from karat.replay.options import Function


class CannotImport(Exception):  # noqa: N818 - what is wrong with a word of the user's
    """The function cannot be had; the message is for the user."""


def load_function(function: Function) -> Callable[..., Any]:
    """The function; its module may do whatever modules do when they are imported."""
    module = _module(function.module)
    found: Any = module
    for part in function.name.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            raise CannotImport(
                f"expected {function} to be a function, but {function.module} has no {function.name}"
                f"{suggest(part, known)}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise CannotImport(
            f"expected {function} to be a function, found {type(found).__name__}: it cannot be called"
        )
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            here = [path.stem for path in Path.cwd().glob("*.py")]
            raise CannotImport(
                f"expected a module {name}, found none: neither installed nor in {Path.cwd()}"
                f"{suggest(name, here)}"
            ) from error
        raise CannotImport(_broken(name, error)) from error
    except (Exception, SystemExit) as error:
        raise CannotImport(_broken(name, error)) from error


def _broken(name: str, error: BaseException) -> str:
    # The last frame is where the user's module went wrong; what led there is the import machinery.
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"expected to import {name}, but: {type(error).__name__}: {error}{where}"
