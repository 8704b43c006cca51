"""A running full-screen chat for tests: its keyboard, and its screen as text."""

import asyncio
import time

from fake_doors import fake_doors
from fakes_tui import FakeLLM

from localllm.tui.app import ChatApp

WIDE, SMALL = (120, 40), (80, 24)


class Screen:
    """Keys go in, the rendered screen is read."""

    def __init__(self, app, pilot):
        self.app, self.pilot = app, pilot

    async def keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if char == " " else char for char in text))

    async def ask(self, text: str) -> None:
        """Send a message and wait for the end of its answer."""
        await self.type(text)
        await self.keys("enter")
        await self.idle()

    async def idle(self) -> None:
        """Until no answer is under way, and what it ended with is on the screen."""
        panes = self.app.screen.query("Pane")
        await self.until(lambda: not any(pane.busy or pane.waiting for pane in panes))
        bubbles = self.app.screen.query("Bubble")
        await self.until(lambda: all(bubble.feed is None for bubble in bubbles))
        await self.pilot.pause()

    def text(self) -> str:
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(line.text.rstrip() for line in lines)

    async def until(self, condition, seconds: float = 20.0) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, f"waited in vain; the screen is\n{self.text()}"
            await self.pilot.pause(0.03)

    async def shows(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text() for text in texts))

    async def hides(self, text: str) -> None:
        await self.until(lambda: text not in self.text())


def chat(folder, flow, *llms, size=WIDE, model=None, doors=None):
    """Run `flow` in an app over fakes; the history stays in `folder`."""
    doors = doors or fake_doors(folder, *(llms or [FakeLLM()]))

    async def play():
        app = ChatApp(doors, model)
        app.NOTIFICATION_TIMEOUT = 60  # a slow machine must have time to look
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                await flow(Screen(app, pilot))
        finally:
            app.close()

    asyncio.run(play())
