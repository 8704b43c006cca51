"""python -m localllm, and what the console script calls."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line. Ctrl-C while it is still being imported ends it as quietly as later."""
    try:
        from localllm.cli import streams
        from localllm.cli.app import build

        streams.prepare()
        build()()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
