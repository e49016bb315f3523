"""The command line: the same functions as the pages, the same numbers.

With `--json` standard output holds one JSON object and nothing else; progress and notes go
to standard error. Exit status: 0 done, 2 bad input with a one-line reason.
"""

import os
import sys

import typer

from lmk_viz.cli import (
    bench,
    corpora,
    documents,
    encoders,
    maps,
    probes,
    retrieval,
    sweep,
    training,
)

INTERRUPTED = 130
"""Exit status that typer gives for an interrupt, as shells do."""

app = typer.Typer(
    name="lmk_viz",
    help="See and measure how an encoder's pooling decides what a document's vector remembers.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for group in (documents, corpora, encoders, maps, retrieval, sweep, training):
    app.add_typer(group.app)
app.add_typer(bench.app, name="bench")
app.add_typer(probes.app, name="probe")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = app(
            args=arguments or ["--help"], standalone_mode=False, prog_name="python -m lmk_viz"
        )
    except typer.TyperException as error:
        _fail(error.format_message())
        return 2
    except ValueError as error:
        # Settings and inputs are checked at the library's edge, which raises ValueError.
        _fail(str(error))
        return 2
    except SystemExit:
        # What typer makes of a broken pipe: the reader of the output went away, and nothing is
        # left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if status == INTERRUPTED:
        _fail("stopped")
    return status if isinstance(status, int) else 0


def _fail(message: str) -> None:
    typer.echo(f"lmk_viz: error: {' '.join(message.split())}", err=True)


if __name__ == "__main__":
    sys.exit(main())
