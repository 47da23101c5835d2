"""A replay as a pytest session: `karat replay --pytest` starts one, with an item for every case."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import msgspec

from karat.findings import CannotVerify, ExitCode
from karat.replay.options import Choice, Function, Judging, Options

# pytest: 0 passed, 1 failed, 2 interrupted, 3 internal error, 4 usage, 5 nothing collected.
_CODES = {
    0: ExitCode.OK,
    1: ExitCode.FAIL,
    3: ExitCode.CANNOT_VERIFY,
    4: ExitCode.USAGE,
    5: ExitCode.CANNOT_VERIFY,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is told beside its bundle and its runner, as JSON."""

    choice: Choice = Choice()
    judging: Judging = Judging()
    store: str | None = None
    timeout: float | None = None
    isolated: bool = False
    keep: str | None = None


def run_pytest(bundle: str, options: Options, words: Sequence[str]) -> int:
    """Run the session, on this terminal; its exit code in karat's words."""
    runner = options.runner
    said = "--karat-run" if isinstance(runner, Function) else "--karat-command"
    settings = Settings(
        choice=options.choice,
        judging=options.judging,
        store=options.store,
        timeout=options.timeout,
        isolated=options.isolated,
        keep=str(options.keep) if options.keep else None,
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest"),
            *("--karat-replay", bundle, said, str(runner)),
            *("--karat-replay-settings", msgspec.json.encode(settings).decode()),
            *words,
        ],
        check=False,
    )
    if done.returncode == 2:
        return 130
    if done.returncode not in _CODES:
        raise CannotVerify(
            f"expected pytest to run the session, but it ended with {done.returncode}",
            next_command="python -m pytest --version",
        )
    return int(_CODES[done.returncode])
