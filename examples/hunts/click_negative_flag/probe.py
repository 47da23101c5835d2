"""What a negative flag gives if nobody says anything, and True is its default."""

import click
from click.testing import CliRunner


@click.command()
@click.option("--without-xyz", "enable_xyz", flag_value=False, default=True)
def main(enable_xyz: object) -> None:
    click.echo(f"enabled: {int(bool(enable_xyz))}")


print(CliRunner().invoke(main, []).output, end="")
