"""`karat schema`."""

from __future__ import annotations

from importlib import resources

import click

from karat.findings import UsageError


def names() -> list[str]:
    """Every published schema, as `karat.diff/1`."""
    files = resources.files("karat").joinpath("schemas").iterdir()
    stems = sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))
    return ["/".join(stem.rsplit(".", 1)) for stem in stems]


@click.command(epilog="\b\nExample:\n  karat schema karat.diff/1 > karat.diff.1.json")
@click.argument("name", required=False)
def command(*, name: str | None) -> int:
    """Print a published JSON schema; without NAME, list them."""
    known = names()
    if name is None:
        click.echo("\n".join(known))
        return 0
    if name not in known:
        raise UsageError(
            f"no schema is called {name!r}; there are {', '.join(known)}",
            next_command="karat schema",
        )
    file = resources.files("karat").joinpath("schemas", f"{name.replace('/', '.')}.json")
    click.echo(file.read_text(encoding="utf-8"), nl=False)
    return 0
