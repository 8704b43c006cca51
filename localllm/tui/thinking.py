"""Tells a model's reasoning from its answer, also while the text is still coming in."""

MARKS = (("<think>", "</think>"), ("<|channel>thought", "<channel|>"), ("[THINK]", "[/THINK]"))


def split(text: str) -> tuple[str, str]:
    """(reasoning, answer); where the prompt opened the reasoning, only its end is in the text."""
    for opening, closing in MARKS:
        head, found, tail = text.partition(opening)
        if found and not head.strip():
            reasoning, _, answer = tail.partition(closing)
            return _held(reasoning, closing).strip("\n"), answer.lstrip("\n")
        if not found and closing in text:
            reasoning, _, answer = text.partition(closing)
            return reasoning.strip("\n"), answer.lstrip("\n")
    if any(opening.startswith(text.lstrip()) for opening, _ in MARKS):
        return "", ""  # what is there may become an opening mark
    return "", text


def _held(text: str, mark: str) -> str:
    """The text without a beginning of `mark` at its end."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return text[:-size]
    return text
