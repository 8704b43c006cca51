"""Puts a conversation to a model: as a chat, or as text to go on from when it is a base model."""

from collections.abc import Mapping
from typing import Any


def ask(llm: Any, messages: list[dict[str, str]], options: Mapping[str, Any]) -> Any:
    """The Reply to the last message. Options: sampling knobs, max_tokens, logprobs."""
    if llm.template is None:
        return llm.generate("".join(m["content"] for m in messages), **options)
    return llm.chat(messages, **options)
