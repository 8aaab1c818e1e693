"""The command line. One file a verb; nothing heavy is imported before a verb runs."""

from __future__ import annotations

from typing import NoReturn

import typer

from roofmark.cli import boundary, doctor, evaluate, hardware, operators, release, runs, score

app = typer.Typer(
    name="roofmark",
    help="Is this GPU kernel, written by a model, good enough to ship?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("evaluate")(evaluate.command)
app.command("score")(score.command)
app.command("runs")(runs.command)
app.command("doctor")(doctor.command)
app.add_typer(operators.app, name="operators")
app.add_typer(release.app, name="release")
app.add_typer(hardware.app, name="hardware")


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Is this GPU kernel, written by a model, good enough to ship?"""
    if version:
        from roofmark import __version__

        typer.echo(f"roofmark {__version__}")
        raise typer.Exit


def main() -> NoReturn:
    """Runs the command line: 0 all passed, 1 a candidate failed, 2 bad input or a broken machine."""
    boundary.run(lambda: app(standalone_mode=False))
