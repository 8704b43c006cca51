"""python -m localllm, and what the console script calls."""

from localllm.cli.app import build


def main() -> None:
    build()()


if __name__ == "__main__":
    main()
