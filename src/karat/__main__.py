"""Entry point; answers `--version` before anything is imported, so that it costs next to nothing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from karat import __version__  # noqa: PLC0415 - quick answers import nothing else

        print(f"karat {__version__}")
        return
    from karat.cli import run  # noqa: PLC0415 - see above

    sys.exit(run())


if __name__ == "__main__":
    main()
