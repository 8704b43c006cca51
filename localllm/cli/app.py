"""Builds the command line from the modules in commands/, and turns errors into exit codes.

Exit codes: 0 done, 1 an error that was explained, 2 wrong usage, 130 interrupted.
"""

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable
from typing import Annotated, Any

import typer

from localllm import __version__
from localllm.cli import commands, streams
from localllm.cli.options import name_values
from localllm.errors import Cancelled, LocalLLMError

INTERRUPTED = 130


def build() -> typer.Typer:
    """The application, with every command that the folder holds."""
    app = typer.Typer(
        name="localllm",
        help="Runs quantized language models on your own machine.",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    name_values(start)
    app.callback()(guarded(start))
    for module in pkgutil.iter_modules(commands.__path__):
        loaded = importlib.import_module(f"{commands.__name__}.{module.name}")
        for name, function in loaded.COMMANDS.items():
            name_values(function)
            app.command(name, rich_help_panel=loaded.PANEL)(guarded(function))
    return app


def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Without a command: the chat when there is a terminal, this help otherwise."""
    if version:
        typer.echo(f"localllm {__version__}")
    elif context.invoked_subcommand is None:
        if streams.on_a_terminal():
            from localllm.cli.opener import DEFAULTS, opener
            from localllm.tui.app import run

            run(opener(DEFAULTS, local=False))
        else:
            typer.echo(context.get_help())


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its errors told on stderr in a line each."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Cancelled as error:
            typer.echo(error.message, err=True)
            raise typer.Exit(INTERRUPTED) from None
        except LocalLLMError as error:
            if os.environ.get("LOCALLLM_DEBUG"):
                raise
            typer.echo(f"localllm: {error.message}", err=True)
            if error.hint:
                typer.echo(error.hint, err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # whoever read the answer has read enough: typer ends without a word
        except OSError as error:
            if os.environ.get("LOCALLLM_DEBUG"):
                raise
            where = f": {error.filename}" if error.filename else ""
            typer.echo(f"localllm: {error.strerror or error}{where}", err=True)
            raise typer.Exit(1) from None

    return call
