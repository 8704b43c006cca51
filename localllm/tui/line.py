"""The interactive chat of `localllm run`: a line in, a streamed answer out, until /bye."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prompt_toolkit.input import Input
from prompt_toolkit.output import ColorDepth, Output, create_output

from localllm import paths
from localllm.errors import LocalLLMError, Unavailable
from localllm.tui import answer, clipboard, commands, meter
from localllm.tui.history import History
from localllm.tui.interrupt import unechoed, wished
from localllm.tui.reading import message, prompt_session
from localllm.tui.session import Session
from localllm.tui.terminal import DIM, RED, RESET, YELLOW, printable
from localllm.tui.waiting import Waiting

INTERRUPTED = 130  # exit code
TALLEST = 12  # lines of a message that is put back to be edited; more would hide why
COLOURS = {ColorDepth.DEPTH_4_BIT: 16}


def chat_loop(
    open_llm: Callable[..., Any],
    model_name: str,
    *,
    system: str | None = None,
    sampling: Mapping[str, Any] | None = None,
    plain: bool = False,
    history: bool = True,
    stats: bool = False,
    files: Sequence[str] = (),
    models: Callable[[], list[str]] = list,
    input: Input | None = None,
    output: Output | None = None,
) -> int:
    """Chat until the user leaves; the exit code.

    open_llm(name, progress) opens a model and calls progress(stage, done, total) meanwhile;
    sampling: the knobs that the user turned; history=False keeps no lines; stats tells what each
    answer cost; files, as attach.quoted has them, go with the first message; models: the names that
    /model offers. Plain text also where NO_COLOR is set or the terminal is dumb.
    """
    chat = Chat(Session(open_llm, system, sampling), plain, output or create_output(), models)
    if not history or os.environ.get("LOCALLLM_NOHISTORY"):
        chat.desk.switches["history"] = False
    chat.desk.switches["stats"] = stats
    chat.desk.files.extend(files)
    return chat.run(model_name, input)


class Raw:
    """The output as something that Waiting can write to."""

    def __init__(self, output: Output, live: bool):
        self._output, self._live = output, live
        self.encoding = output.encoding()

    def isatty(self) -> bool:
        return self._live

    def write(self, text: str) -> None:
        self._output.write_raw(text)

    def flush(self) -> None:
        self._output.flush()


class Chat:
    """The loop, and what its commands may do to the terminal."""

    def __init__(
        self,
        session: Session,
        plain: bool,
        output: Output,
        models: Callable[[], list[str]],
    ):
        self.session, self._output = session, output
        dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
        self._plain = plain or dumb
        self._stored: History | None = None
        self.desk = commands.Desk(session, self.load, models, self.copy, self.stored)

    def run(self, model_name: str, input: Input | None) -> int:
        """Open the model and talk; 1 when it cannot be opened."""
        try:
            self.load(model_name)
        except LocalLLMError as error:
            self.complain(error)
            return 1
        except KeyboardInterrupt:
            return INTERRUPTED
        full = meter.context(0, self.session.context).split(" / ")[-1].split(" (")[0]
        self.note(f"{self.session.llm.name} · context {full} · /help for help, /bye to leave")
        lines = self._lines(input)
        try:
            return self._talk(lines)
        except KeyboardInterrupt:  # the second one, while an answer would not stop
            return INTERRUPTED
        finally:
            self.session.close()
            if self._stored is not None:
                self._stored.close()

    def _lines(self, input: Input | None) -> Any:
        file = paths.data() / "prompts" if self.desk.switches["history"] else None
        toolbar = None if self._plain else self._toolbar
        return prompt_session(self.desk, file, toolbar, input, self._output)

    def _toolbar(self) -> str:
        parts = [self.session.llm.name, meter.context(self.session.used, self.session.context)]
        if rate := self.session.stats.get("predicted_per_second"):
            parts.append(f"{rate:.1f} t/s")
        if files := self.desk.files:
            parts.append(f"{len(files)} file{'s' * (len(files) > 1)} attached")
        return f" {' · '.join(parts)} "

    def _talk(self, lines: Any) -> int:
        text = ""
        while True:
            try:
                line = message(lines.prompt(default=text))
            except KeyboardInterrupt:
                self.note("Ctrl-D or /bye leaves.")
                continue
            except EOFError:
                return 0
            text = ""
            if not line:
                continue
            try:
                outcome = commands.run(self.desk, line) if self._is_command(line) else None
            except (LocalLLMError, OSError) as error:
                self.complain(error)
                continue
            if isinstance(outcome, commands.Leave):
                return 0
            if isinstance(outcome, commands.Say):
                self.note(outcome.text)
            elif isinstance(outcome, commands.Prefill):
                text = outcome.text
            else:
                text = self._answer(outcome.text) if outcome else self._ask(line)

    @staticmethod
    def _is_command(line: str) -> bool:
        """`/help` is one; `/usr/bin is what?` is a question."""
        return line.startswith("/") and "/" not in line.split()[0][1:]

    def _ask(self, line: str) -> str:
        """Ask with the files that were to go along; they stay when there is no answer."""
        files = [*self.desk.files]
        self.desk.files.clear()
        before = len(self.session.messages)
        again = self._answer("\n\n".join([line, *files]))
        if len(self.session.messages) > before:
            return ""
        self.desk.files[:] = files
        return again and line

    def _answer(self, text: str) -> str:
        """Ask and print; what to offer for editing when there was no answer."""
        try:
            with wished() as wish, unechoed():
                reply = self.session.ask(text)
                answer.show(reply, self._style(), self.write, wish)
                self.session.keep(reply)
        except LocalLLMError as error:
            self.complain(error)
            self.session.take_back(text)
            if isinstance(error, Unavailable) and self.session.llm.server:
                self._open_again()
            if text.count("\n") > TALLEST:
                self.note("The up key brings your message back.")
                return ""
            return text
        self._after()
        return ""

    def _open_again(self) -> None:
        """The server has gone: have the model here, or in another one."""
        try:
            self.load(self.session.llm.name)
        except LocalLLMError as error:
            self.complain(error)
        else:
            self.note("The model is open again: Enter sends the question once more.")

    def _after(self) -> None:
        """What is worth saying about the answer that ended, and room below it."""
        reason = self.session.stats["finish_reason"]
        if self.desk.switches["stats"]:
            self.note(meter.speed(self.session.stats))
        elif reason == "cancelled":
            self.note("stopped; what there is stays")
        elif reason == "length":
            self.warn("The answer was cut: by max_tokens, or by the end of the context.")
        if warning := self.session.warning():
            self.warn(warning)
        self.write("\n")

    def _style(self) -> answer.Style:
        size, depth = self._output.get_size(), self._output.get_default_color_depth()
        plain = self._plain or not self.desk.switches["markdown"]
        return answer.Style(plain, size.columns, COLOURS.get(depth, 256))

    # --- what commands may do ----------------------------------------------------------------

    def load(self, name: str) -> None:
        """Open a model with a line that says how far it is."""

        with Waiting(Raw(self._output, not self._plain)) as waiting:
            self.session.open(name, waiting)
        if server := self.session.llm.server:
            self.note(f"{name} is loaded in the server at {server}, which is asked.")

    def copy(self, text: str) -> None:
        self.write(clipboard.sequence(text, "TMUX" in os.environ))

    def stored(self) -> History:
        """The saved conversations, opened when first asked for."""
        if self._stored is None:
            self._stored = History(paths.data() / "chats.db")
        return self._stored

    # --- what is printed ---------------------------------------------------------------------

    def write(self, text: str) -> None:
        self._output.write_raw(text)
        self._output.flush()

    def note(self, text: str) -> None:
        self._say(DIM, text)

    def warn(self, text: str) -> None:
        self._say(YELLOW, text)

    def complain(self, error: LocalLLMError | OSError) -> None:
        message, hint = getattr(error, "message", str(error)), getattr(error, "hint", "")
        self._say(RED, message)
        if hint:
            self.note(hint)

    def _say(self, colour: str, text: str) -> None:
        text = printable(text)
        self.write(f"{text}\n" if self._plain else f"{colour}{text}{RESET}\n")
