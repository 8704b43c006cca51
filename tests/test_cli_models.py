"""The commands about models on disk, and the names that a shell is offered."""

import json
from pathlib import Path

import tiny

from localllm.cli import options


def test_models_on_disk(call, tmp_path):
    path = tiny.write(tmp_path / "small.gguf")
    assert json.loads(call("list", "--json").stdout) == []
    assert call("pull", "small", "--from", str(path)).exit_code == 0
    [model] = json.loads(call("list", "--json").stdout)
    assert model["name"] == "small" and model["size"] == path.stat().st_size
    assert "smollm2" in call("list", "--all").stdout
    shown = json.loads(call("show", "small", "--json").stdout)
    assert {"name", "path", "architecture", "parameters", "context_length", "size"} <= set(shown)
    assert shown["architecture"] == "llama" and shown["context_length"] == 256
    assert call("cp", "small", "other").exit_code == 0
    assert json.loads(call("show", "other", "--json").stdout)["path"] == shown["path"]
    assert "is whole" in call("verify", "small").stderr
    Path(shown["path"]).write_bytes(b"damaged")
    assert call("verify").exit_code == 1
    assert call("rm", "other", "small").exit_code == 0
    assert json.loads(call("list", "--json").stdout) == []


def test_every_command_about_models_has_json(call, tmp_path, a_server):
    def told(*words):
        return json.loads(call(*words, "--json").stdout)

    path = tiny.write(tmp_path / "small.gguf")
    pulled = told("pull", "small", "--from", str(path))
    assert pulled["name"] == "small" and pulled["size"] == path.stat().st_size
    assert told("cp", "small", "other") == {"name": "other", "alias": "small"}
    assert [model["name"] for model in told("list")] == ["small", "other"]
    assert "means small" in call("list").stdout
    assert told("verify") == [{"name": "small", "whole": True, "error": None}]
    (tmp_path / "there").mkdir()
    found = path.rename(tmp_path / "there" / "found.gguf")
    listed = told("import", str(found.parent), "--dry-run")
    assert [model["path"] for model in listed] == [str(found)]
    assert str(found) in call("import", str(found.parent), "--dry-run").stdout
    assert told("import", str(found.parent)) == listed
    assert told("rm", "other", "small") == [
        {"name": "other", "alias": True, "freed": 0},
        {"name": "small", "alias": False, "freed": pulled["size"]},
    ]
    assert told("prune") == [] and told("ps") == []


def test_show_is_for_people(call, tmp_path):
    shown = call("show", str(tiny.write(tmp_path / "small.gguf"))).stdout
    assert "context length" in shown and "256" in shown and "template" in shown
    assert "TYPE  TENSORS" in shown and "F32" in shown
    assert "No server of yours" in call("ps").stderr


def test_fit_says_the_numbers(call, tmp_path):
    path = str(tiny.write(tmp_path / "small.gguf"))
    result = call("fit", path, "--json")
    plan = json.loads(result.stdout)
    assert result.exit_code == 0 and plan["fits"] and plan["context"] == 256
    assert plan["needs"] == plan["weights"] + plan["pages"] + plan["scratch"]


def test_a_shell_is_offered_names_and_files(home, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"")
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "ab").mkdir()
    assert options.model_names("qwen2.5-coder:") == ["qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]
    assert options.installed_names("") == []
    offered = options.model_names(f"{tmp_path}/a")
    assert offered == [f"{tmp_path}/a.gguf", f"{tmp_path}/ab/"]
