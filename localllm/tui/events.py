"""The messages that widgets send each other."""

from dataclasses import dataclass
from typing import Any

from textual.message import Message

from localllm.errors import LocalLLMError
from localllm.tui.doors import Choice
from localllm.tui.feed import Feed


@dataclass
class Sent(Message):
    """The user sent a message."""

    text: str


@dataclass
class FileWanted(Message):
    """An @ was typed where a file name may stand."""


@dataclass
class Flowing(Message):
    """An answer made progress: tokens, or a piece of the prompt."""

    turn: int
    feed: Feed


@dataclass
class Ended(Message):
    """An answer is over, for whatever reason."""

    turn: int
    feed: Feed


@dataclass
class RetryWanted(Message):
    """Another answer instead of this one (or to this question)."""

    turn: int


@dataclass
class EditWanted(Message):
    """The user wants to change this message."""

    turn: int


@dataclass
class BranchWanted(Message):
    """Show the branch `step` places from this one."""

    turn: int
    step: int


@dataclass
class InspectWanted(Message):
    """Show the alternatives of this answer's tokens."""

    turn: int


@dataclass
class CopyWanted(Message):
    """Put a text on the clipboard; `what` names it to the user."""

    text: str
    what: str


@dataclass
class EarlierWanted(Message):
    """Show more of the beginning of the conversation."""


@dataclass
class Chosen(Message):
    """A conversation was chosen in the sidebar."""

    conversation: int


@dataclass
class Removed(Message):
    """A conversation was deleted in the sidebar."""

    conversation: int


@dataclass
class Renamed(Message):
    """A conversation got another title in the sidebar."""

    conversation: int
    title: str


@dataclass
class ExportWanted(Message):
    """Write a conversation to a file."""

    conversation: int


@dataclass
class Turned(Message):
    """A sampling knob was turned; None puts it back to the model's default."""

    name: str
    value: Any


@dataclass
class Loading(Message):
    """How far a model is with opening: a stage, and done of total."""

    model: str
    stage: str
    done: int
    total: int


@dataclass
class Opened(Message):
    """A model is ready to be asked."""

    model: str
    llm: Any


@dataclass
class OpenFailed(Message):
    """A model could not be opened."""

    model: str
    error: LocalLLMError


@dataclass
class ChoicesFound(Message):
    """The models that can be chosen."""

    choices: list[Choice]


@dataclass
class PullEnded(Message):
    """A model is here now, or `error` says why not."""

    model: str
    error: LocalLLMError | None = None
