"""python -m localllm, and what the console script calls."""

from localllm.cli import streams
from localllm.cli.app import build


def main() -> None:
    streams.prepare()
    build()()


if __name__ == "__main__":
    main()
