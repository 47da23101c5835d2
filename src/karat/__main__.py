"""Entry point; answers `--version` before anything is imported, so that it costs next to nothing."""

from __future__ import annotations

import gc
import os
import sys

_RUN_OTHERS = (["hunt"], ["replay"])
"""Verbs that may live for hours, and whose environment is that of the programs they run."""

_LEAVE_NOTHING = (["diff"], ["check"])
"""Verbs with nothing to tidy up: to free what they have made, piece by piece, takes a tenth of a diff."""


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from karat import __version__

        print(f"karat {__version__}")
        return
    if sys.argv[1:2] not in _RUN_OTHERS:
        # A short life: what karat makes is freed by reference counting, and looking for cycles among
        # hundreds of thousands of numbers would only take time. karat multiplies no matrices either;
        # a pool of waiting BLAS threads costs more than reading a hundred goldens.
        gc.disable()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from karat.cli import run
        from karat.cli.output import left_at_once
    except KeyboardInterrupt:
        sys.exit(130)  # as `run` says it later; nothing has begun
    code = run()
    if left_at_once() or sys.argv[1:2] in _LEAVE_NOTHING:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


# CPython keeps frames in pieces of 16 kB. A loop whose calls cross the end of one asks the kernel for the next at every call, and
# gives it back on return: a sixth of a diff's time. A frame that claims a deep stack gets a piece of 128 kB, and those called
# from it share what it leaves.
main.__code__ = main.__code__.replace(co_stacksize=8_000)


if __name__ == "__main__":
    # `python -m` puts the current folder before everything else, and it may hold a stranger's tree, with a
    # msgspec.py in it. karat itself has been found by now, and needs that folder no more.
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 - no pathlib at start-up
        del sys.path[0]
    main()
