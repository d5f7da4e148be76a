"""Set before torch is imported: threads that spin at barriers collapse on a busy machine."""

import gc
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also of the processes that tests start: the workers share the cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

from sslkit.terminal import say


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPUs from the tests, whose numbers are a CPU's; `pytest -m gpu` runs those that need one."""
    if config.option.markexpr != "gpu":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # read when CUDA is first asked for, and by started processes


def pytest_collection_finish() -> None:
    """Spare the garbage collector the million objects of the imports, which it would visit during every test."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def lines_are_printed() -> None:
    say.print_lines()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests kill are processes, and what those wrote outlives them all the same."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def beside_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch says that there are three GPUs; whatever touches one ends the test."""

    def refuse() -> None:
        raise AssertionError("a GPU was used, and the CPU was asked for")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):  # asks for a stream
        monkeypatch.setattr(torch.optim.Optimizer, name, lambda *_: None, raising=False)


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any connection or server that is opened ends the test."""
    import socket

    def refuse(*_args, **_options) -> None:
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "bind", "listen"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
