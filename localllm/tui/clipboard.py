"""The terminal's clipboard by OSC 52, which works over ssh and, where allowed, through tmux."""

import base64

LARGEST = 100_000  # bytes of base64; longer sequences are dropped by most terminals


def sequence(text: str, inside_tmux: bool = False) -> str:
    """The control sequence that copies `text`, cut to what terminals take.

    tmux either keeps OSC 52 (`set-clipboard on`) or hands it through (`allow-passthrough on`);
    both forms are sent, and the one that is not allowed is ignored.
    """
    data = text.encode("utf-8")[: LARGEST * 3 // 4].decode("utf-8", "ignore").encode("utf-8")
    plain = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"
    if not inside_tmux:
        return plain
    return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def code_blocks(markdown: str) -> list[str]:
    """The fenced code blocks of a message, the last of which may still be open."""
    blocks: list[str] = []
    fence: str | None = None
    for line in markdown.splitlines():
        mark = line.lstrip()
        if fence is None:
            if mark.startswith(("```", "~~~")):
                fence = mark[: len(mark) - len(mark.lstrip(mark[0]))]
                blocks.append("")
        elif mark.startswith(fence) and not mark.strip(fence[0] + " "):
            fence = None
        else:
            blocks[-1] += line + "\n"
    return blocks
