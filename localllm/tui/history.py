"""Conversations in SQLite: each token is on disk before it is on the screen."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from localllm.errors import BadFile, NotFound, Unsupported
from localllm.tui.conversation import Conversation, Turn

VERSION = 1  # PRAGMA user_version of the schema below

SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, model TEXT NOT NULL, system TEXT NOT NULL,
    leaf INTEGER, updated REAL NOT NULL);
CREATE TABLE IF NOT EXISTS turns (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations ON DELETE CASCADE,
    parent INTEGER, role TEXT NOT NULL, content TEXT NOT NULL, model TEXT NOT NULL,
    stats TEXT NOT NULL, done INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS turns_of ON turns (conversation);
CREATE TABLE IF NOT EXISTS fragments (
    id INTEGER PRIMARY KEY, turn INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
    text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS fragments_of ON fragments (turn);
CREATE TABLE IF NOT EXISTS presets (name TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, text TEXT NOT NULL);
"""

# A turn's text is its content followed by the fragments that have streamed in so far.
TURNS = """
SELECT t.id, t.parent, t.role,
       t.content || coalesce((SELECT group_concat(text, '') FROM
           (SELECT text FROM fragments WHERE turn = t.id ORDER BY id)), ''),
       t.model, t.stats, t.done
FROM turns t WHERE t.conversation = ? ORDER BY t.id
"""

FIND = """
SELECT id, title, model, updated FROM conversations c
WHERE title LIKE :like ESCAPE '\\' OR EXISTS (
    SELECT 1 FROM turns WHERE conversation = c.id AND content LIKE :like ESCAPE '\\')
ORDER BY updated DESC, id DESC LIMIT :limit
"""


T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One conversation as a list shows it; `updated` in seconds since 1970."""

    id: int
    title: str
    model: str
    updated: float


class History:
    """The conversations of one user; safe from any thread, and beside other processes.

    Write-ahead logging makes every statement durable against a killed process (not against a
    power cut: there is no fsync per token). Where the disk is full or may not be written, all of
    it goes on in memory, and `trouble` says why.
    """

    def __init__(self, path: Path):
        self.trouble = ""
        self._path, self._lock = path, threading.RLock()
        self._db = _connect(":memory:")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # the user's words are the user's alone
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = _connect(path)
            self._open(path)
        except (OSError, sqlite3.OperationalError) as error:
            self._go_to_memory(error)
        except sqlite3.DatabaseError as error:
            self._db.close()
            hint = "Move the file away to start with an empty history."
            raise BadFile(f"The chat history {path} cannot be read: {error}.", hint) from None

    def _go_to_memory(self, error: Exception) -> None:
        """Take along what can still be read."""
        memory = _connect(":memory:")
        with suppress(sqlite3.Error):
            self._db.backup(memory)
        self._db.close()
        self._db, self.trouble = memory, str(error)
        self._open(self._path)

    def _open(self, path: Path) -> None:
        version = self._one("PRAGMA user_version")[0]
        if version > VERSION:
            self._db.close()
            hint = "Update localllm, or move the file away."
            raise Unsupported(f"{path} was written by a newer localllm.", hint)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(SCHEMA)
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _safely(self, write: Callable[[], T]) -> T:
        """Write to disk, or else to memory."""
        with self._lock:
            try:
                return write()
            except sqlite3.OperationalError as error:
                if self.trouble:
                    raise
                self._go_to_memory(error)
                return write()

    def _run(self, sql: str, *values: Any) -> int:
        """Run one statement; the id of the row it inserted."""
        return self._safely(lambda: self._db.execute(sql, values).lastrowid or 0)

    def _all(self, sql: str, values: Any = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def _one(self, sql: str, *values: Any) -> Any:
        rows = self._all(sql, values)
        return rows[0] if rows else None

    # --- conversations -----------------------------------------------------------------------

    def create(self, model: str = "", system: str = "", title: str = "") -> Conversation:
        """A new, empty conversation."""
        sql = "INSERT INTO conversations (title, model, system, updated) VALUES (?, ?, ?, ?)"
        number = self._run(sql, title, model, system, time.time())
        return Conversation(number, title, model, system)

    def get(self, number: int) -> Conversation:
        """A conversation with all its turns; NotFound when it was deleted."""
        sql = "SELECT title, model, system, leaf FROM conversations WHERE id = ?"
        with self._lock:
            head, rows = self._one(sql, number), self._all(TURNS, (number,))
        if head is None:
            raise NotFound("This conversation is no longer there.")
        turns = {
            id: Turn(id, parent, role, content, model, json.loads(stats), bool(done))
            for id, parent, role, content, model, stats, done in rows
        }
        title, model, system, leaf = head
        return Conversation(number, title, model, system, leaf, turns)

    def find(self, words: str = "", limit: int = 200) -> list[Entry]:
        """The conversations whose title or text holds `words`, latest first."""
        for special in "\\%_":
            words = words.replace(special, "\\" + special)
        rows = self._all(FIND, {"like": f"%{words}%", "limit": limit})
        return [Entry(*row) for row in rows]

    def rename(self, number: int, title: str) -> None:
        self._run("UPDATE conversations SET title = ? WHERE id = ?", title, number)

    def delete(self, number: int) -> None:
        self._run("DELETE FROM conversations WHERE id = ?", number)

    def settle(self, chat: Conversation) -> None:
        """Write the title, model, system prompt and leaf of a conversation."""
        sql = "UPDATE conversations SET title=?, model=?, system=?, leaf=?, updated=? WHERE id=?"
        self._run(sql, chat.title, chat.model, chat.system, chat.leaf, time.time(), chat.id)

    def keep(self, title: str, model: str, messages: Iterable[dict[str, str]]) -> Conversation:
        """Store a list of messages as a conversation."""
        messages = list(messages)
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        chat = self.create(model, system, title)
        for message in messages:
            if message["role"] != "system":
                self.add(chat, message["role"], message["content"], model=model)
        return chat

    # --- turns -------------------------------------------------------------------------------

    def add(self, chat: Conversation, role: str, content: str = "", **more: Any) -> Turn:
        """Add a turn below the leaf, or below `parent`, and make it the leaf."""
        turn = Turn(0, more.pop("parent", chat.leaf), role, content, **more)
        sql = """INSERT INTO turns (conversation, parent, role, content, model, stats, done)
                 VALUES (?, ?, ?, ?, ?, ?, ?)"""
        row = (chat.id, turn.parent, role, content, turn.model, json.dumps(turn.stats), turn.done)
        turn.id = self._run(sql, *row)
        chat.add(turn)
        self.settle(chat)
        return turn

    def append(self, turn: int, text: str) -> None:
        """Put one more fragment of an answer on disk."""
        self._run("INSERT INTO fragments (turn, text) VALUES (?, ?)", turn, text)

    def finish(self, turn: Turn) -> None:
        """Write a turn as it ended; its fragments have done their duty."""
        turn.done = True
        self._safely(lambda: self._finish(turn))

    def _finish(self, turn: Turn) -> None:
        with self._db as db:
            db.execute("BEGIN IMMEDIATE")
            sql = "UPDATE turns SET content = ?, model = ?, stats = ?, done = 1 WHERE id = ?"
            db.execute(sql, (turn.content, turn.model, json.dumps(turn.stats), turn.id))
            db.execute("DELETE FROM fragments WHERE turn = ?", (turn.id,))

    # --- system prompts and settings ---------------------------------------------------------

    def presets(self) -> dict[str, str]:
        """The saved system prompts by name."""
        return dict(self._all("SELECT name, text FROM presets ORDER BY name"))

    def set_preset(self, name: str, text: str) -> None:
        """Save a system prompt; an empty text removes it."""
        if text:
            self._run("INSERT OR REPLACE INTO presets VALUES (?, ?)", name, text)
        else:
            self._run("DELETE FROM presets WHERE name = ?", name)

    def setting(self, name: str) -> str:
        """What was last set under a name, or nothing."""
        row = self._one("SELECT text FROM settings WHERE name = ?", name)
        return row[0] if row else ""

    def set_setting(self, name: str, text: str) -> None:
        self._run("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, text)


def _connect(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
