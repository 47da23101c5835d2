from __future__ import annotations

import pytest

from factories.hunt_files import ran
from karat.engines.job import Ran
from karat.hunts.probe.outcomes import is_hunted_crash
from karat.hunts.settings import CrashSettings

SEGV = ran(exit_code=None, signal=11)
SHELL = ran(exit_code=139)
HUNG = ran(exit_code=None, timed_out=True)
GRANDCHILD = "CalledProcessError: Command '['x']' died with <Signals.SIGSEGV: N>."
ERROR = ran("XlaRuntimeError: INTERNAL: bad\n", exit_code=1)


@pytest.mark.parametrize(
    ("crash", "came", "signature", "hunted"),
    [
        (CrashSettings(), ERROR, "x", True),
        (CrashSettings(), HUNG, "timed out", True),
        (CrashSettings(pattern="INTERNAL"), ERROR, "XlaRuntimeError: INTERNAL: bad", True),
        (CrashSettings(pattern="INTERNAL"), SEGV, "SIGSEGV", False),
        (CrashSettings(kind="exception", pattern="^Xla.*INTERNAL"), ERROR, "something else", True),
        (CrashSettings(kind="exception", pattern="OutOfMemory"), ERROR, "XlaRuntimeError: INTERNAL: bad", False),
        (CrashSettings(kind="exception", pattern="timed out"), HUNG, "timed out", False),
        (CrashSettings(kind="exception", pattern="f(x"), ERROR, "f(x", True),
        (CrashSettings(kind="signal"), SEGV, "SIGSEGV", True),
        (CrashSettings(kind="signal"), SHELL, "SIGSEGV", True),
        (CrashSettings(kind="signal"), ERROR, "XlaRuntimeError", False),
        (CrashSettings(kind="signal"), HUNG, "timed out", False),
        (CrashSettings(kind="signal", signal="SIGSEGV"), SEGV, "SIGSEGV", True),
        (CrashSettings(kind="signal", signal="SIGSEGV"), SHELL, "SIGSEGV", True),
        (CrashSettings(kind="signal", signal="SIGSEGV"), ran(exit_code=1), "SIGSEGV", True),
        (CrashSettings(kind="signal", signal="SIGABRT"), SEGV, "SIGSEGV", False),
        (CrashSettings(kind="signal"), ran(exit_code=255), "exit code 255", False),
        (CrashSettings(kind="signal"), ran(exit_code=128), "exit code 128", False),
        (CrashSettings(kind="signal"), ran(exit_code=None, signal=35), "signal 35", True),
        (CrashSettings(kind="signal", signal="SIGSEGV"), ran(exit_code=1), GRANDCHILD, True),
        (CrashSettings(kind="signal"), ran(exit_code=1), GRANDCHILD, True),
        (CrashSettings(kind="signal", signal="SIGABRT"), ran(exit_code=1), GRANDCHILD, False),
        (CrashSettings(kind="hang"), HUNG, "timed out", True),
        (CrashSettings(kind="hang"), ERROR, "XlaRuntimeError", False),
    ],
)  # fmt: skip
def test_kinds(crash: CrashSettings, came: Ran, signature: str, *, hunted: bool) -> None:
    assert is_hunted_crash(crash, came, signature) is hunted
