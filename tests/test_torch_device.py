"""Which device a name means, and what is said when it cannot be had; needs no torch."""

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import pytest
import tiny

from localllm import models
from localllm.backends.torch import device as devices
from localllm.backends.torch import present
from localllm.errors import BadRequest, LocalLLMError, Unavailable
from localllm.gguf import GGUF

OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update it.\nMore."


def fake(cuda="12.6", available=True, trouble="", mps=False):
    """A torch of which only what is asked before a device is opened is there."""

    def init():
        if trouble:
            raise RuntimeError(trouble)

    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=cuda, hip=None),
        cuda=SimpleNamespace(
            is_available=lambda: available,
            init=init,
            get_device_name=lambda: "NVIDIA Fake",
            mem_get_info=lambda: (3 << 30, 4 << 30),
        ),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
    )


def test_a_gpu_that_is_there():
    device = devices.open_device("cuda", fake())
    assert (device.name, device.kind, device.exact) == ("NVIDIA Fake", "cuda", False)
    assert device.free(fake()) == 3 << 30
    assert devices.open_device("mps", fake(mps=True)).kind == "mps"


def test_torchs_own_cpu_is_exact():
    device = devices.open_device("torch-cpu", fake())
    assert (device.kind, device.exact, device.free(fake())) == ("cpu", True, None)


@pytest.mark.parametrize(
    ("name", "torch", "says"),
    [
        ("cuda", fake(cuda=None), "without CUDA"),
        ("cuda", fake(available=False, trouble=OLD), "driver on your system is too old"),
        ("cuda", fake(available=False), "no GPU"),
        ("mps", fake(), "no Apple GPU"),
    ],
    ids=["cpu-only", "driver", "none", "mps"],
)
def test_what_is_in_the_way_is_one_line(name, torch, says):
    with pytest.raises(Unavailable, match=says) as error:
        devices.open_device(name, torch)
    assert "\n" not in error.value.message + error.value.hint
    assert "--device cpu" in error.value.hint


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "not installed"),
        (ModuleNotFoundError("No module named 'sympy'", name="sympy"), "does not load"),
        (OSError("libcudart.so.12: cannot open shared object file"), "does not load: libcudart"),
    ],
)
def test_a_torch_that_is_missing_or_broken(error, says, monkeypatch):
    def import_module(name):
        raise error

    monkeypatch.setattr(devices.importlib, "import_module", import_module)
    with pytest.raises(Unavailable, match=says):
        devices.import_torch("cuda")


# ---- "auto" ------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """machine(platform, files, torch version or None, processor): what `choose` gets to see."""

    def pretend(platform, files=(), version: str | None = "2.13.0+cu126", processor="x86_64"):
        spec = object() if version else None
        monkeypatch.setattr(present.sys, "platform", platform)
        monkeypatch.setattr(present.platform, "machine", lambda: processor)
        monkeypatch.setattr(present.os.path, "exists", lambda path: path in files)
        monkeypatch.setattr(present.importlib.util, "find_spec", lambda name: spec)
        monkeypatch.setattr(present.importlib.metadata, "version", lambda name: version)

    return pretend


def test_auto_takes_a_gpu_only_where_torch_can_have_one(machine):
    machine("linux", [present.NVIDIA])
    assert present.choose("auto") == "cuda"
    for files, version in (([], "2.13.0"), ([present.NVIDIA], "2.13.0+cpu")):
        machine("linux", files, version)
        assert present.choose("auto") == "cpu"
    machine("linux", [present.NVIDIA], None)
    assert present.choose("auto") == "cpu"
    machine("darwin", processor="arm64")
    assert present.choose("auto") == "mps"
    machine("darwin", processor="x86_64")
    assert present.choose("auto") == "cpu"


def test_names_are_taken_as_they_are_and_others_refused():
    assert [present.choose(name) for name in present.DEVICES[1:]] == [*present.DEVICES[1:]]
    with pytest.raises(BadRequest, match="'tpu'"):
        present.choose("tpu")


def test_a_gpu_that_was_only_guessed_gives_way_to_the_cpu(tmp_path, monkeypatch, kept_kernels):
    monkeypatch.setattr(models, "choose", lambda name: "cuda")
    opening = importlib.import_module("localllm.backends.torch.opening")
    monkeypatch.setattr(opening, "import_torch", lambda name: fake(available=False, trouble=OLD))
    with GGUF.open(tiny.write(tmp_path / "m.gguf", text=False, layers=1)) as file:
        with pytest.warns(UserWarning, match="CPU runs this model: torch cannot use the GPU"):
            model = models.load(file, threads=1)
        assert model.device.startswith("CPU")
        model.close()
        with pytest.raises(LocalLLMError, match="too old"):
            models.load(file, device="cuda", threads=1)


RUN = """
import sys
from pathlib import Path
from localllm import models
from localllm.gguf import GGUF
with GGUF.open(Path(sys.argv[1])) as file:
    models.load(file, device=sys.argv[2], threads=1).close()
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_a_gpu_torch_is_never_imported(device, tmp_path, kept_kernels):
    if present.choose("auto") != "cpu":
        pytest.skip("needs a machine on which auto means the CPU")
    path = tiny.write(tmp_path / "m.gguf", text=False, layers=1)
    keep = "from pathlib import Path; from quant.jit import use_folder; use_folder(Path({!r}))"
    code = keep.format(str(kept_kernels)) + "\n" + RUN
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), device], capture_output=True, text=True, timeout=600
    )
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr
