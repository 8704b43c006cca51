"""Where pip is told to look: variables over files, commands over [global]."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localllm.errors import BadFile
from localllm.sources import pip_config
from localllm.sources.pip_config import PYPI, read


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "pip.conf") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_without_any_settings():
    config = read({}, [])
    assert config.indexes == (PYPI,) and config.find_links == () and not config.no_index


def test_files_in_order(file):
    first = file(
        "[global]\nindex-url = https://a/simple\nfind-links = /one\n  /two\ncert = /ca.pem\n"
        "[install]\nextra_index_url = https://b/simple https://c/simple\n",
        "first",
    )
    second = file("[global]\nindex-url = https://d/simple\nextra-index-url = https://e\n", "second")
    config = read({}, [first, second, first.with_name("missing")])
    assert config.indexes == ("https://d/simple", "https://b/simple", "https://c/simple")
    assert config.find_links == ("/one", "/two") and config.web.cert == "/ca.pem"


def test_variables_win(file):
    path = file("[global]\nindex-url = https://a\nno-index = true\ntrusted-host = h:8080 i\n")
    assert read({}, [path]).indexes == ()
    config = read(
        {"PIP_INDEX_URL": "https://b", "PIP_NO_INDEX": "0", "PIP_PROXY": "proxy:3128"}, [path]
    )
    assert config.indexes == ("https://b",) and config.trusted == {"h", "i"}
    assert config.web.proxy == "http://proxy:3128"


def test_a_percent_sign_is_no_riddle(file):
    path = file("[global]\nindex-url = https://me:p%40ss@host/simple\n")
    assert read({}, [path]).index_url == "https://me:p%40ss@host/simple"


def test_a_damaged_file_is_named(file):
    path = file("index-url = x\n")
    with pytest.raises(BadFile, match=r"pip\.conf"):
        read({}, [path])


def test_files_can_be_switched_off_and_added(tmp_path):
    assert pip_config.config_files({"PIP_CONFIG_FILE": os.devnull}) == []
    mine = str(tmp_path / "mine")
    assert pip_config.config_files({"PIP_CONFIG_FILE": mine})[-1] == Path(mine)


def test_pip_itself_agrees_on_the_files(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "debug"], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip("needs pip")
    listed = [line.strip().rpartition(", exists")[0] for line in done.stdout.splitlines()]
    theirs = [Path(line) for line in listed if line]
    assert set(theirs) == set(pip_config.config_files(dict(os.environ)))
