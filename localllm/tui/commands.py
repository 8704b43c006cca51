"""The slash commands of line mode: one function each, and the table that names them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localllm.errors import BadRequest, NotFound
from localllm.tui import attach, clipboard, export, knobs, meter
from localllm.tui.history import History
from localllm.tui.session import Session


@dataclass
class Desk:
    """What commands work on: the session, and what the loop around it offers them."""

    session: Session
    load: Callable[[str], None]  # open another model
    models: Callable[[], list[str]]  # names that can be opened
    copy: Callable[[str], None]
    history: Callable[[], History]
    switches: dict[str, bool] = field(
        default_factory=lambda: {"history": True, "markdown": True, "stats": False}
    )
    files: list[str] = field(default_factory=list)  # quoted files that go with the next message


@dataclass(frozen=True)
class Say:
    """Print this."""

    text: str


@dataclass(frozen=True)
class Ask:
    """Put this to the model."""

    text: str


@dataclass(frozen=True)
class Prefill:
    """Let the user edit this."""

    text: str


@dataclass(frozen=True)
class Leave:
    """End the chat."""


Outcome = Say | Ask | Prefill | Leave


def show_help(desk: Desk, rest: str) -> Outcome:
    wide = max(len(f"{c.name} {c.takes}") for c in COMMANDS)
    lines = [f"{f'{c.name} {c.takes}':{wide}}  {c.help}" for c in COMMANDS]
    keys = [
        '"""            opens and closes a message of several lines; Alt-Enter also breaks a line',
        "Ctrl-C         stops an answer and keeps what there is; Ctrl-D leaves",
    ]
    return Say("\n".join([*lines, "", *keys]))


def model(desk: Desk, rest: str) -> Outcome:
    if not rest:
        names = ", ".join(desk.models()) or "none"
        return Say(f"This is {desk.session.llm.name}. There are: {names}.")
    desk.load(rest)
    return Say(f"Now talking to {desk.session.llm.name}.")


def system(desk: Desk, rest: str) -> Outcome:
    if rest:
        desk.session.system = "" if rest in ("-", "off", "none") else rest
    return Say(_system(desk))


def set_value(desk: Desk, rest: str) -> Outcome:
    name, _, value = rest.partition(" ")
    if not name:
        return show(desk, "settings")
    if name in desk.switches:
        if value.strip() not in ("on", "off"):
            raise BadRequest(f"/set {name} takes on or off.")
        desk.switches[name] = value.strip() == "on"
        return Say(f"{name} is {value.strip()}")
    knob = knobs.named(name)
    desk.session.options[knob.name] = knobs.parse(knob, value)
    return Say(f"{knob.name} is {knobs.shown(desk.session.options[knob.name])}")


def show(desk: Desk, rest: str) -> Outcome:
    if rest not in VIEWS:
        raise BadRequest(f"/show takes one of {', '.join(VIEWS)}.")
    return Say(VIEWS[rest](desk))


def _settings(desk: Desk) -> str:
    turned = desk.session.options
    lines = []
    for knob in knobs.knobs(getattr(desk.session.llm, "defaults", None)):
        value = turned.get(knob.name)
        value = knob.default if value is None else value
        mark = "*" if turned.get(knob.name) is not None else " "
        lines.append(f"{mark} {knob.name:20} {knobs.shown(value):>8}  {knob.help}")
    lines += [f"  {name:20} {knobs.shown(on):>8}" for name, on in desk.switches.items()]
    return "\n".join(lines)


def _messages(desk: Desk) -> str:
    said = [f"{m['role']}: {m['content']}" for m in desk.session.whole()]
    return "\n\n".join(said) or "Nothing has been said yet."


def _model(desk: Desk) -> str:
    llm = desk.session.llm
    where = f"in the server at {llm.server}" if llm.server else llm.path
    return f"{llm.name}\n{where}\ncontext {llm.context:,} tokens"


def _template(desk: Desk) -> str:
    template = desk.session.llm.template
    return (
        getattr(template, "source", template)
        if template
        else "This is a base model: it has no chat template."
    )


def _system(desk: Desk) -> str:
    return f"System prompt: {desk.session.system or 'none'}"


VIEWS: dict[str, Callable[[Desk], str]] = {
    "settings": _settings,
    "messages": _messages,
    "model": _model,
    "system": _system,
    "template": _template,
}


def save(desk: Desk, rest: str) -> Outcome:
    if not rest:
        raise BadRequest("/save takes a title, or a file name that ends in .json or .md.")
    session = desk.session
    if rest.lower().endswith((".json", ".md", ".markdown")):
        path = Path(rest).expanduser()
        export.write(path, path.stem, session.llm.name, session.whole())
        return Say(f"Written to {path}.")
    desk.history().keep(rest, session.llm.name, session.whole())
    return Say(f"Saved as {rest!r}; `localllm chat` shows it too.")


def load(desk: Desk, rest: str) -> Outcome:
    if not rest:
        titles = [entry.title for entry in desk.history().find()]
        return Say("There are: " + ", ".join(titles) if titles else "Nothing is saved yet.")
    if rest.lower().endswith(".json"):
        desk.session.replace(export.read(Path(rest).expanduser())["messages"])
    else:
        found = [e for e in desk.history().find(rest) if e.title == rest]
        if not found:
            raise NotFound(f"There is no saved chat {rest!r}.", "/load alone lists them.")
        desk.session.replace(desk.history().get(found[0].id).messages())
    return Say(f"{len(desk.session.messages)} messages loaded.")


def retry(desk: Desk, rest: str) -> Outcome:
    return Ask(desk.session.undo())


def edit(desk: Desk, rest: str) -> Outcome:
    return Prefill(desk.session.undo())


def undo(desk: Desk, rest: str) -> Outcome:
    text = desk.session.undo()
    return Say(f"Taken back: {text.splitlines()[0][:60] if text else ''}")


def clear(desk: Desk, rest: str) -> Outcome:
    desk.session.clear()
    desk.files.clear()
    return Say("A new chat.")


def file(desk: Desk, rest: str) -> Outcome:
    path = Path(rest.strip("\"'")).expanduser()
    if not rest:
        raise BadRequest("/file takes the name of a text file.")
    text = attach.read(path)
    desk.files.append(attach.quoted(path, text))
    return Say(f"{path} goes with your next message ({len(text.splitlines()):,} lines).")


def copy(desk: Desk, rest: str) -> Outcome:
    text, what = desk.session.last_answer(), "the answer"
    if rest == "code":
        blocks = clipboard.code_blocks(text)
        if not blocks:
            raise BadRequest("There is no code in the last answer.")
        text, what = blocks[-1], "its last code block"
    desk.copy(text)
    return Say(f"Copied {what}.")


def stats(desk: Desk, rest: str) -> Outcome:
    session = desk.session
    full = meter.context(session.used, session.context)
    return Say("\n".join(filter(None, [meter.speed(session.stats), f"context {full}"])))


def bye(desk: Desk, rest: str) -> Outcome:
    return Leave()


@dataclass(frozen=True)
class Command:
    """A name, what may follow it, one line of help, and what it does."""

    name: str
    takes: str
    help: str
    run: Callable[[Desk, str], Any]
    also: tuple[str, ...] = ()


COMMANDS = (
    Command("/help", "", "what you are reading", show_help, ("/?",)),
    Command("/model", "[NAME]", "which model this is, or change to another", model),
    Command("/system", "[TEXT|-]", "show, set or remove the system prompt", system),
    Command("/set", "NAME VALUE", "turn a knob: temperature, max_tokens, history, ...", set_value),
    Command("/show", "WHAT", "settings, messages, model, system or template", show),
    Command("/save", "TITLE|FILE", "keep this chat: under a title, or as .json or .md", save),
    Command("/load", "[TITLE|FILE]", "go on with a saved chat", load),
    Command("/retry", "", "another answer to the same question", retry),
    Command("/edit", "", "change your last message and send it again", edit),
    Command("/undo", "", "take back the last question and answer", undo),
    Command("/clear", "", "forget everything said", clear, ("/new",)),
    Command("/file", "PATH", "send a text file with the next message", file),
    Command("/copy", "[code]", "copy the last answer, or its last code block", copy),
    Command("/stats", "", "speed and context of the last answer", stats),
    Command("/bye", "", "leave", bye, ("/exit", "/quit")),
)


def run(desk: Desk, line: str) -> Outcome:
    """Carry out a line that begins with a slash; NotFound when there is no such command."""
    name, _, rest = line.partition(" ")
    for command in COMMANDS:
        if name in (command.name, *command.also):
            return command.run(desk, rest.strip())
    raise NotFound(f"There is no command {name}.", "/help lists them.")
