"""The conversation as shown: the bubbles of its last turns, following the newest line."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from localllm.tui.bubble import Bubble
from localllm.tui.conversation import Conversation, Turn
from localllm.tui.events import EarlierWanted
from localllm.tui.feed import Feed

PAGE = 20  # turns mounted at once; earlier ones come when asked for


class Earlier(Static, can_focus=True):
    """Stands for the turns that are not mounted."""

    BINDINGS = [("enter", "more", "Show earlier")]

    def on_click(self) -> None:
        self.action_more()

    def action_more(self) -> None:
        self.post_message(EarlierWanted())


class Transcript(VerticalScroll, can_focus=False):
    """Shows a conversation's path, and changes only what differs from what is there."""

    def __init__(self, welcome: str = "", id: str | None = None):
        super().__init__(id=id)
        self._welcome = welcome
        self._pages = 1

    def compose(self) -> ComposeResult:
        yield Static(self._welcome, classes="welcome")
        earlier = Earlier("", classes="earlier")
        earlier.display = False
        yield earlier

    def on_mount(self) -> None:
        self.anchor()

    @property
    def bubbles(self) -> list[Bubble]:
        return list(self.query_children(Bubble))

    def bubble(self, turn: int) -> Bubble | None:
        return next((b for b in self.bubbles if b.turn.id == turn), None)

    def reset(self) -> None:
        """Begin at the end again: another conversation is going to be shown."""
        self._pages = 1
        self.anchor()

    def more(self) -> None:
        self._pages += 1

    async def show(self, chat: Conversation, feeds: dict[int, Feed] | None = None) -> None:
        """Bring the bubbles in line with the path; feeds: the answers that are streaming."""
        path = chat.path()
        hidden = max(0, len(path) - PAGE * self._pages)
        wanted = [(turn, chat.branches(turn.id)) for turn in path[hidden:]]
        keys = [_key(*each) for each in wanted]
        usable = [b for b in self.bubbles if _key(b.turn, b.branches) in keys]
        at = keys.index(_key(usable[0].turn, usable[0].branches)) if usable else 0
        kept = [
            bubble
            for bubble, key in zip(usable, keys[at:], strict=False)
            if _key(bubble.turn, bubble.branches) == key
        ]
        gone = [bubble for bubble in self.bubbles if bubble not in kept]

        def fresh(some: list[tuple[Turn, list[int]]]) -> list[Bubble]:
            return [Bubble(turn, beside, (feeds or {}).get(turn.id)) for turn, beside in some]

        with self.app.batch_update():
            if gone:
                await self.remove_children(gone)
            if at:
                await self.mount_all(fresh(wanted[:at]), before=kept[0])
            if wanted[at + len(kept) :]:
                await self.mount_all(fresh(wanted[at + len(kept) :]))
            self.query_one(".welcome").display = not path
            earlier = self.query_one(Earlier)
            earlier.display = hidden > 0
            earlier.update(f"↑ {hidden} earlier messages: Enter or click")


def _key(turn: Turn, branches: list[int]) -> tuple[int, ...]:
    """What a bubble shows: this very turn, among these branches."""
    return (id(turn), *branches)
