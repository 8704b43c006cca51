"""A conversation as Markdown to read, or as JSON to load again."""

import json
from pathlib import Path
from typing import Any

from localllm.errors import BadFile, NotFound, TooLarge

LARGEST = 64 << 20  # bytes of a conversation file we are willing to read
HINT = "Load a file that /save wrote."
ROLES = ("system", "user", "assistant")


def as_markdown(title: str, model: str, messages: list[dict[str, str]]) -> str:
    """The messages under headings that name who spoke."""
    names = {"system": "System", "user": "You", "assistant": model or "Assistant"}
    parts = [f"# {title or 'Conversation'}"]
    parts += [f"## {names[m['role']]}\n\n{m['content'].strip()}" for m in messages]
    return "\n\n".join(parts) + "\n"


def as_json(title: str, model: str, messages: list[dict[str, str]]) -> str:
    """The messages as chat APIs write them, with the title and model beside them."""
    whole = {"title": title, "model": model, "messages": messages}
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def write(path: Path, title: str, model: str, messages: list[dict[str, str]]) -> None:
    """Write Markdown when the name ends in .md, JSON otherwise."""
    form = as_markdown if path.suffix.lower() in (".md", ".markdown") else as_json
    path.write_text(form(title, model, messages), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """The title, model and messages of a JSON conversation; BadFile when it is not one."""
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    if path.stat().st_size > LARGEST:
        raise TooLarge(f"{path.name} is larger than a conversation file may be (64 MiB).")
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path.name} is not JSON: {error}", HINT) from None
    if not isinstance(whole, dict) or not _are_messages(whole.get("messages")):
        raise BadFile(f"{path.name} holds no conversation.", HINT)
    title, model = whole.get("title"), whole.get("model")
    return {
        "title": title if isinstance(title, str) else "",
        "model": model if isinstance(model, str) else "",
        "messages": [{"role": m["role"], "content": m["content"]} for m in whole["messages"]],
    }


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(m, dict) and m.get("role") in ROLES and isinstance(m.get("content"), str)
        for m in value
    )
