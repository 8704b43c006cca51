"""Conversations: the tree of turns, its storage, and what a crash leaves behind."""

import os
import signal
import subprocess
import sys

import pytest

from localllm.errors import BadFile, NotFound, Unsupported
from localllm.tui.history import History


@pytest.fixture
def history(tmp_path):
    store = History(tmp_path / "chats.db")
    yield store
    store.close()


def test_turns_come_back_as_they_were(history):
    chat = history.create("smollm2", "Be brief.", "Greetings")
    history.add(chat, "user", "hi")
    answer = history.add(chat, "assistant", model="smollm2", done=False)
    answer.content, answer.stats = "hello", {"completion_tokens": 1}
    history.finish(answer)
    again = history.get(chat.id)
    assert again == chat
    assert again.messages() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]


def test_branches_share_a_parent_and_the_leaf_chooses_the_path(history):
    chat = history.create()
    question = history.add(chat, "user", "q")
    first = history.add(chat, "assistant", "one")
    more = history.add(chat, "user", "go on")
    second = history.add(chat, "assistant", "two", parent=question.id)
    assert [t.content for t in chat.path()] == ["q", "two"]
    assert chat.branches(first.id) == [first.id, second.id]
    chat.leaf = chat.newest_leaf(first.id)
    assert chat.leaf == more.id
    assert [t.content for t in chat.path()] == ["q", "one", "go on"]
    assert [t.content for t in chat.path(first.id)] == ["q", "one"]


def test_a_loop_in_a_damaged_tree_ends(history):
    chat = history.create()
    a, b = history.add(chat, "user", "a"), history.add(chat, "user", "b")
    a.parent = b.id
    assert [t.content for t in chat.path()] == ["a", "b"]
    assert chat.newest_leaf(a.id) in (a.id, b.id)


def test_find_looks_into_titles_and_text_and_takes_signs_literally(history):
    one = history.create(title="100% sure")
    two = history.create(title="other")
    history.add(two, "user", "about snake_case")
    assert [e.id for e in history.find("100%")] == [one.id]
    assert [e.id for e in history.find("snake_c")] == [two.id]
    assert history.find("snake-case") == [] and history.find("%%") == []
    assert [e.id for e in history.find()] == [two.id, one.id]


def test_delete_takes_turns_and_fragments_along(history):
    chat = history.create()
    turn = history.add(chat, "assistant", done=False)
    history.append(turn.id, "x")
    history.delete(chat.id)
    with pytest.raises(NotFound):
        history.get(chat.id)
    assert history._all("SELECT * FROM turns") == history._all("SELECT * FROM fragments") == []


def test_presets(history):
    history.set_preset("pirate", "Arr.")
    history.set_preset("pirate", "Arr!")
    assert history.presets() == {"pirate": "Arr!"}
    history.set_preset("pirate", "")
    assert history.presets() == {}


WRITER = """
import os, sys
from pathlib import Path
from localllm.tui.history import History
history = History(Path(sys.argv[1]))
chat = history.create()
history.add(chat, "user", "count")
turn = history.add(chat, "assistant", done=False)
for i in range(10**6):
    history.append(turn.id, f"{i} ")
    os.write(1, f"{i}\\n".encode())
"""


def test_a_killed_process_loses_no_token_that_was_shown(tmp_path):
    path = tmp_path / "chats.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    shown = [int(writer.stdout.readline()) for _ in range(300)]
    writer.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
    shown += [int(line) for line in writer.stdout.read().splitlines()]
    writer.wait()
    history = History(path)
    turn = history.get(1).path()[-1]
    history.close()
    kept = [int(word) for word in turn.content.split()]
    assert kept == list(range(len(kept))) and len(kept) >= len(shown)
    assert not turn.done


def test_two_windows_on_one_history(tmp_path):
    one, two = History(tmp_path / "c.db"), History(tmp_path / "c.db")
    chat = one.create(title="shared")
    turn = one.add(chat, "assistant", done=False)
    one.append(turn.id, "half ")
    assert two.get(chat.id).path()[0].content == "half "
    one.append(turn.id, "whole")
    assert two.get(chat.id).path()[0].content == "half whole"
    one.close(), two.close()


def test_the_file_is_the_users_alone(tmp_path):
    History(tmp_path / "c.db").close()
    if os.name == "posix":
        assert (tmp_path / "c.db").stat().st_mode & 0o077 == 0


def test_a_damaged_or_newer_file_is_named(tmp_path):
    (tmp_path / "bad.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(BadFile, match=r"bad\.db"):
        History(tmp_path / "bad.db")
    newer = History(tmp_path / "new.db")
    newer._run("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(Unsupported, match="newer"):
        History(tmp_path / "new.db")


def test_a_full_disk_loses_nothing_while_the_program_runs(tmp_path):
    history = History(tmp_path / "chats.db")
    chat = history.create("m", title="before")
    turn = history.add(chat, "assistant", done=False)
    history._db.execute("PRAGMA max_page_count = 1")  # no page more than there are
    for _ in range(200):
        history.append(turn.id, "word " * 40)
    assert "full" in history.trouble
    assert len(history.get(chat.id).path()[0].content) == 200 * 40 * 5
    turn.content = "whole"
    history.finish(turn)
    history.rename(chat.id, "after")
    assert history.get(chat.id).path()[0].content == "whole"
    assert [entry.title for entry in history.find()] == ["after"]
    history.close()
    assert History(tmp_path / "chats.db").find()[0].title == "before"


def test_a_disk_that_is_full_when_an_answer_ends(tmp_path):
    history = History(tmp_path / "chats.db")
    turn = history.add(history.create(), "assistant", done=False)
    history._db.execute("PRAGMA max_page_count = 1")
    turn.content = "word " * 8000
    history.finish(turn)
    assert history.trouble and history.get(1).path()[0].content == turn.content
    history.close()


def test_a_home_that_cannot_be_written_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("in the way")
    history = History(tmp_path / "file" / "chats.db")
    chat = history.keep("kept", "m", [{"role": "user", "content": "hi"}])
    assert history.trouble and history.get(chat.id).messages()[0]["content"] == "hi"
    history.close()
