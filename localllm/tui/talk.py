"""One conversation with a model: what is asked, branched, stopped and kept. No widgets."""

import time
from collections.abc import Mapping
from typing import Any

from localllm.errors import PromptTooLong
from localllm.tui.asking import ask
from localllm.tui.conversation import Conversation, Turn
from localllm.tui.feed import Feed
from localllm.tui.history import History
from localllm.tui.knobs import turned

TITLE = 60  # characters of the first message that become the title
SHORTER = "↑ and e change a message, ^n begins anew."
ALTERNATIVES = 8  # tokens beside each picked one, when they are recorded


class Talk:
    """The conversation on the screen, the model that answers, and the answers under way.

    A conversation is stored once something is said in it. An answer goes on when another
    conversation is shown, and is there when the user comes back.
    """

    def __init__(
        self, history: History, system: str = "", options: Mapping[str, Any] | None = None
    ):
        self.history = history
        self.llm: Any = None
        self.options: dict[str, Any] = dict(options or {})
        self.records_alternatives = False
        self.chat = Conversation(0, system=system)
        self.feeds: dict[int, Feed] = {}  # by turn
        self.logprobs: dict[int, list[Any]] = {}  # by turn; kept while the program runs

    def use(self, llm: Any) -> Any:
        """Have another model answer from now on; the one before, for whoever closes it."""
        before, self.llm = self.llm, llm
        if not self.chat.id and not self.chat.system:
            self.chat.system = llm.system or ""
        return before

    def new(self) -> None:
        """Begin another conversation, with the same system prompt."""
        self.chat = Conversation(0, system=self.chat.system)

    def open(self, number: int) -> None:
        """Go to a stored conversation; NotFound when it was deleted."""
        self.chat = self.history.get(number)

    @property
    def feed(self) -> Feed | None:
        """The answer under way at the end of the conversation as shown."""
        feed = self.feeds.get(self.chat.leaf or 0)
        return None if feed is None or feed.done else feed

    @property
    def streaming(self) -> dict[int, Feed]:
        """The answers under way, here and in other conversations, by turn."""
        return {turn: feed for turn, feed in self.feeds.items() if not feed.done}

    @property
    def unanswered(self) -> bool:
        """Does the conversation end with a question?"""
        path = self.chat.path()
        return bool(path) and path[-1].role == "user"

    @property
    def used(self) -> int:
        """Tokens of the context in use after the last answer on the path."""
        for turn in reversed(self.chat.path()):
            if "prompt_tokens" in turn.stats:
                return turn.stats["prompt_tokens"] + turn.stats["completion_tokens"]
        return 0

    def say(self, text: str, instead_of: int | None = None) -> None:
        """Add a question at the end, or as another branch beside an earlier one."""
        if not self.chat.id:
            title = text.strip().splitlines()[0][:TITLE]
            self.chat = self.history.create(self._name, self.chat.system, title)
        parent = self.chat.leaf if instead_of is None else self.chat.turns[instead_of].parent
        self.history.add(self.chat, "user", text, parent=parent)

    def answer(self) -> Feed:
        """Begin the answer to the question at the end; somebody has to `run` the feed."""
        llm, chat = self.llm, self.chat
        messages = chat.messages()
        options = turned(self.options)
        if self.records_alternatives:
            options["logprobs"] = ALTERNATIVES
        chat.model = self._name
        turn = self.history.add(chat, "assistant", model=self._name, done=False)

        def keep(text: str) -> None:
            self.history.append(turn.id, text)

        def finish(feed: Feed) -> None:
            turn.content, turn.stats = feed.text, dict(feed.stats)
            if feed.error:
                hint = SHORTER if isinstance(feed.error, PromptTooLong) else feed.error.hint
                turn.stats["error"] = f"{feed.error.message} {hint}".strip()
            if feed.logprobs:
                self.logprobs[turn.id] = feed.logprobs
            self.history.finish(turn)

        self.feeds[turn.id] = Feed(lambda: ask(llm, messages, options), keep, finish)
        return self.feeds[turn.id]

    def back_to_question(self, turn: int) -> None:
        """Make the question of this answer (or this question) the end, to answer it once more."""
        at = self.chat.turns[turn]
        self.chat.leaf = at.parent if at.role == "assistant" else at.id

    def branch(self, turn: int, step: int) -> None:
        """Show another of the branches that begin beside this turn."""
        branches = self.chat.branches(turn)
        at = (branches.index(turn) + step) % len(branches)
        self.chat.leaf = self.chat.newest_leaf(branches[at])
        self.history.settle(self.chat)

    def set_system(self, text: str) -> None:
        self.chat.system = text
        if self.chat.id:
            self.history.settle(self.chat)

    def stop(self) -> bool:
        """Stop the answer under way; was there one?"""
        if self.feed is None:
            return False
        self.feed.cancel()
        return True

    def stop_all(self, patience: float = 0.0) -> None:
        """Stop every answer, and wait that many seconds for them to end."""
        for feed in self.feeds.values():
            feed.cancel()
        limit = time.monotonic() + patience
        while time.monotonic() < limit and not all(feed.done for feed in self.feeds.values()):
            time.sleep(0.01)

    def last(self, role: str) -> Turn | None:
        """The last turn of that role on the path."""
        return next((t for t in reversed(self.chat.path()) if t.role == role), None)

    @property
    def _name(self) -> str:
        return self.llm.name if self.llm is not None else ""
