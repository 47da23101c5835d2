"""What `--transpose` gives for a flag that also has a type."""

import click
from click.testing import CliRunner


@click.command()
@click.option("--transpose", type=str, is_flag=True)
def main(transpose: object) -> None:
    click.echo(f"given: {int(bool(transpose))}")


print(CliRunner().invoke(main, ["--transpose"]).output, end="")
