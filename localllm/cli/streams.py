"""Makes stdin, stdout and stderr fit for any text, whatever the locale and the caller left them."""

import io
import os
import sys


def prepare() -> None:
    """What a stream's encoding lacks becomes a question mark; a closed stream becomes an empty one.

    A model writes any character there is, and a pipe from `latin1.txt` is no reason to stop.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace" if name == "stderr" else "replace")


def on_a_terminal() -> bool:
    """Can somebody see a screen and type?"""
    return sys.stdin.isatty() and sys.stdout.isatty()
