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

from karat.cli.group import STORE_COMMANDS, LazyGroup
from karat.cli.output import complain, json_error, remember, typed
from karat.findings import ExitCode, KaratError, suggest
from karat.system.command import Command

_OF_THE_DISK = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG}

SECTIONS = {
    "Goldens": {
        "diff": "Compare goldens, old against new, and judge what changed.",
        "refresh": "Download golden values from CI and check them.",
        "check": "Check a run against its golden.",
        "review": "Decide what becomes of each changed golden: accept, reject or skip.",
        "accept": "Accept changed goldens: stage them.",
        "reject": "Reject changed goldens: restore HEAD's values.",
        "summary": "Write the pull request description for a golden refresh.",
        "stage": "Stage exactly the changed goldens.",
        "record": "Create or update a golden from the output of a run.",
        "tolerance": "Recommend tolerances from repeated runs.",
        "audit": "Find what is wrong with the goldens in a tree today.",
        "lint": "Check files before they are committed.",
    },
    "Bundles": {
        "pack": "Pack captured cases into zips that any machine can verify.",
        "verify": "Verify captured cases without unpacking them.",
        "replay": "Run captured programs, and compare their outputs with the captured ones.",
        "store": "Keep captured cases in a folder or a bucket.",
        **STORE_COMMANDS,
    },
    "Gradients": {
        "policy": "Check that op tests follow the gradient policy.",
        "ops": "Audit the derivatives of a framework's operators.",
    },
    "Regressions": {
        "changes": "Find level changes, crashes and gaps in a series.",
        "hunt": "Find every regression, dip and crash, down to the commit.",
    },
    "Setup": {
        "init": "Recognise the goldens of this repository and write a commented karat.toml.",
        "doctor": "Check what karat needs here, and show the fix for whatever is missing.",
        "git-setup": "Let git merge goldens by metric and step, and show one value per line.",
        "comment": "Write a text as one comment of a pull or merge request, and keep it up to date.",
        "demo": "Run the main commands on an embedded sample.",
        "config": "Show the configuration in force, and where each value came from.",
        "schema": "Print a published JSON schema.",
        "help": "Explain a command, a topic or a kind of finding.",
    },
}
"""The commands as `karat --help` groups them."""
COMMANDS = {name: sentence for section in SECTIONS.values() for name, sentence in section.items()}

_HOMES = {
    **{name: f"goldens.{name}:command" for name in SECTIONS["Goldens"]},
    **{name: f"setup.{name.replace('-', '_')}:command" for name in SECTIONS["Setup"]},
    "lint": "goldens.audit:lint",
    "tolerance": "goldens.record:tolerance",
    "summary": "goldens.stage:summary",
    "doctor": "setup.init:doctor",
    "schema": "setup.config:schema",
    **{name: f"goldens.review:{name}" for name in ("review", "accept", "reject")},
    "pack": "store.bundles:pack",
    "verify": "store.bundles:verify",
    "store": "store:command",
    **{name: f"store.commands:{name}" for name in STORE_COMMANDS},
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
    sections=SECTIONS,
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
        json_error(str(error), error.next_command, int(error.exit_code))
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
        elif (found := _of_the_disk(error)) is not None:
            said, advice = found
            complain(said, advice)
            json_error(said, advice, int(ExitCode.CANNOT_VERIFY))
        else:
            import traceback

            from karat.report.terminal import say

            for line in "".join(traceback.format_exception(error)).splitlines():
                say(line, sys.stderr)
            said, advice = "karat met an error it did not foresee; nothing was verified", "report the lines above"
            complain(said, advice)
            json_error(f"{said}: {type(error).__name__}", advice, int(ExitCode.CANNOT_VERIFY))
        return int(ExitCode.CANNOT_VERIFY)
    return result if isinstance(result, int) else 0


def _of_the_disk(error: Exception) -> tuple[str, str] | None:
    """What to say of a file or folder that cannot be used, whoever tried; None of an error that is karat's own."""
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return "expected to run in a folder, found that it was deleted meanwhile", "cd  # to one that is there"
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK and isinstance(error.filename, str):
        return f"expected to use {error.filename}, but: {error.strerror}", Command("ls", "-ld", error.filename)
    # What pathlib says of it before Python 3.13.
    loop = str(error).partition("Symlink loop from ")[2] if isinstance(error, RuntimeError) else ""
    if not loop:
        return None
    return f"expected a file at {loop}, found a symbolic link that leads to itself", Command("ls", "-l", loop)


def _mistyped(error: click.ClickException) -> None:
    """What click objects to, in karat's voice; `karat` alone asks for help, and gets it."""
    if type(error).__name__ == "NoArgsIsHelpError":  # by name: click 8.1 has no such class
        error.show()
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    # Of an option that lacks its value, click does not say whose it is.
    path = context.command_path if context else " ".join(word for word in typed().words[:2] if word.isalpha())
    said = error.format_message().rstrip(".")
    hint = suggest(said.split("'")[1], list(COMMANDS)) if "No such command " in said else ""
    message, advice = f"{said[:1].lower()}{said[1:]}{hint}", f"{path} --help"
    complain(message, advice)
    json_error(message, advice, int(ExitCode.USAGE))


def _is_nowhere() -> bool:
    try:
        return not os.getcwd()  # noqa: PTH109 - as Path.cwd() does
    except FileNotFoundError:
        return True


def _stdout_to_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
