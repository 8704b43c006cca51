"""What the chat's model picker lists: installed models with a real verdict, then the catalogue."""

import pytest

from localllm import catalog, store
from localllm.errors import Cancelled
from localllm.store import Installed
from localllm.tui import doors


def unopened(name, progress):
    raise AssertionError(f"{name} is opened only to be talked to")


@pytest.fixture
def choices(home):
    return lambda: {choice.name: choice for choice in doors.real(unopened).choices()}


def test_the_catalogue_is_listed_with_sizes(choices):
    smollm2 = choices()["smollm2"]
    assert (smollm2.size, smollm2.quant, smollm2.installed) == (98_362_432, "Q4_1", False)
    assert smollm2.fits is True and "free" in smollm2.verdict


def test_a_model_larger_than_the_memory_does_not_fit(choices, monkeypatch):
    monkeypatch.setattr("localllm.machine.available_memory", lambda: 100 << 20)
    assert choices()["smollm2"].fits is False


def test_an_installed_file_that_is_damaged_says_so(choices, home):
    folder = store.home("broken")
    folder.mkdir(parents=True)
    (folder / "broken.Q8_0.gguf").write_bytes(b"not a model")
    note = Installed("broken", (folder / "broken.Q8_0.gguf",), 11, ("",), "path", "", False)
    store.write_note(folder, note)
    broken = choices()["broken"]
    assert broken.installed and broken.fits is None and broken.quant == "Q8_0"
    assert "broken.Q8_0.gguf" in broken.verdict


def test_a_pull_reports_and_can_be_stopped_by_its_report(home, monkeypatch):
    def pull(name, progress):
        progress(1, 2)

    monkeypatch.setattr(catalog, "pull", pull)
    seen = []
    doors.real(unopened).pull("smollm2", lambda *far: seen.append(far))
    assert seen == [("pulling smollm2", 1, 2)]

    def stop(stage, done, total):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        doors.real(unopened).pull("smollm2", stop)


def test_the_history_is_in_the_data_folder(home):
    assert doors.real(unopened).history == home / "data" / "chats.db"
