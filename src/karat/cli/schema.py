"""`karat schema`."""

from __future__ import annotations

import json

import click

from karat.cli.output import deliver
from karat.findings import UsageError


@click.command(epilog="\b\nExample:\n  karat schema karat.diff/1 > karat.diff.1.json")
@click.argument("name", required=False)
def command(*, name: str | None) -> int:
    """Print a published JSON schema; without NAME, list them."""
    from karat import schemas

    known = schemas.names()
    if name is None:
        deliver("-", "".join(f"{one}\n" for one in known))
        return 0
    if name not in known:
        raise UsageError(f"no schema is called {name!r}; there are {', '.join(known)}", next_command="karat schema")
    deliver("-", json.dumps(schemas.schema(name), indent=2, ensure_ascii=False) + "\n")
    return 0
