"""The command line: a command is imported when it is used.

`run` is the only place where errors become exit codes. An error nobody foresaw is exit 3, cannot
verify: Python's own 1 would read as "a golden failed".
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

import click

from karat.cli.group import LazyGroup
from karat.cli.output import complain, remember
from karat.findings import ExitCode, KaratError, suggest

COMMANDS = {
    "refresh": "Download golden values from CI and check them.",
    "diff": "Compare goldens, old against new, and judge what changed.",
    "check": "Check a run against its golden.",
    "summary": "Write the pull request description for a golden refresh.",
    "stage": "Stage exactly the changed goldens.",
    "audit": "Find what is wrong with the goldens of a tree as it stands.",
    "record": "Create or update a golden from the output of a run.",
    "pack": "Pack captured cases into zips that any machine can verify.",
    "verify": "Verify captured cases without unpacking them.",
    "push": "Upload captured cases to a store, under a name.",
    "pull": "Download cases from a store into a new folder.",
    "ls": "List what a store holds.",
    "pin": "Keep a snapshot permanently.",
    "gc": "Delete expired references, and objects that nothing needs.",
    "replay": "Run captured programs, and compare their outputs with the captured ones.",
    "policy": "Check that op tests follow the gradient policy.",
    "ops": "Audit the derivatives of a framework's operators.",
    "changes": "Find level changes, crashes and gaps in a series.",
    "hunt": "Find every regression, dip and crash, down to the commit.",
    "tolerance": "Recommend tolerances from repeated runs.",
    "config": "Show the configuration in force, and where each value came from.",
    "schema": "Print a published JSON schema.",
    "demo": "Run the main commands on an embedded sample.",
}

_HOMES = {
    "pack": "store.bundles:pack",
    "verify": "store.bundles:verify",
    "push": "store.transfer:push",
    "pull": "store.transfer:pull",
    "ls": "store.manage:ls",
    "pin": "store.manage:pin",
    "gc": "store.manage:gc",
}


class _ReaderIsGone(Exception):  # noqa: N818 - nobody did anything wrong
    """Whoever read stdout (`| head`) has seen enough.

    Not an OSError, because click would turn that into exit code 1, which means something here.
    """


class _RootGroup(LazyGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderIsGone from error
        return result


@click.group(
    cls=_RootGroup,
    summaries=COMMANDS,
    homes=_HOMES,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 no problems, 1 a fail finding, 2 wrong usage, 3 cannot verify.",
)
@click.version_option(package_name="karat", message="karat %(version)s")
def cli() -> None:
    """Keep the golden values of machine-learning frameworks honest."""


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    # No report may fail because a terminal cannot show a character, or because there is none.
    if sys.stdout is None or sys.stderr is None:
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for the whole run
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    remember(sys.argv[1:] if arguments is None else arguments)
    try:
        result = cli.main(args=arguments, prog_name="karat", standalone_mode=False)
    except KaratError as error:
        complain(str(error), error.next_command)
        return int(error.exit_code)
    except click.ClickException as error:
        _mistyped(error)
        return int(ExitCode.USAGE)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except _ReaderIsGone:
        _stdout_to_nowhere()  # or Python complains at exit
        return 141
    except Exception as error:  # noqa: BLE001 - the last line of defence, and it says so
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _stdout_to_nowhere()
            complain(f"expected to write the report, but: {error.strerror}", "df -h")
        else:
            import traceback

            from karat.report.terminal import say

            for line in "".join(traceback.format_exception(error)).splitlines():
                say(line, sys.stderr)
            complain("karat met an error it did not foresee; nothing was verified", "report the lines above")
        return int(ExitCode.CANNOT_VERIFY)
    return result if isinstance(result, int) else 0


def _mistyped(error: click.ClickException) -> None:
    """What click objects to, in karat's voice; `karat` alone asks for help, and gets it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    # By name: click 8.1 has no such class.
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    said = error.format_message().rstrip(".")
    hint = suggest(said.split("'")[1], list(COMMANDS)) if "No such command " in said else ""
    complain(f"{said[:1].lower()}{said[1:]}{hint}", f"{context.command_path} --help")


def _stdout_to_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
