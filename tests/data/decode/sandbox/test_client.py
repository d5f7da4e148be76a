"""The processes that decode: whom they serve, what they may not do, and when they end."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from forks import listening
from PIL import Image
from torch.utils.data import DataLoader

from sslkit.data.decode.opening import kind_of
from sslkit.data.decode.sandbox import client
from sslkit.data.loader import collate
from sslkit.data.sources.named import open_images

GRAYS = (10, 100, 200, 250)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, gray in enumerate(GRAYS):
        Image.new("LA", (16, 16), (gray, 255)).save(tmp_path / f"{number}.tif")
    return tmp_path


def grays(batch: dict) -> list[int]:
    return batch["images"][:, 0, 8, 8].tolist()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_use_the_decoders_of_the_run(start: str, folder: Path, new_decoders) -> None:
    images = open_images(folder, image_size=16)
    started = client._state.started.pid
    loader = DataLoader(
        Asked(images), batch_sampler=[[0, 1], [2, 3]], num_workers=2, collate_fn=collate, multiprocessing_context=start
    )
    found = list(loader)
    assert [value for batch in found for value in grays(batch)] == list(GRAYS)
    assert {batch["started"] for batch in found} == {None} and psutil.pid_exists(started)


class Asked(torch.utils.data.Dataset):
    """Images, and the process that the worker had to start."""

    def __init__(self, images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: list[int]) -> dict:
        batch = self.images.__getitems__(rows)
        return {**batch, "started": client._state.started and client._state.started.pid}


def test_images_of_a_run_that_is_over_start_decoders_of_their_own(folder: Path, new_decoders) -> None:
    packed = pickle.dumps(open_images(folder, image_size=16))
    client.end()
    assert grays(pickle.loads(packed).__getitems__([0, 1, 2, 3])) == list(GRAYS)
    assert client._state.started is not None


@pytest.mark.parametrize("which", ["decoder", "all"])
def test_a_killed_decoder_is_replaced(which: str, folder: Path, new_decoders) -> None:
    images = open_images(folder, image_size=16)
    server = psutil.Process(client._state.started.pid)
    for process in (*server.children(), *([server] if which == "all" else ())):
        process.kill()
        process.wait(10)
    batch = images.__getitems__([0, 1, 2, 3])
    assert batch["bad"] == [] and grays(batch) == list(GRAYS)


def test_an_image_is_not_blamed_for_a_decoder_that_was_killed_before(folder: Path, new_decoders, monkeypatch) -> None:
    """The news of the end may come after the look for it."""
    images = open_images(folder, image_size=16)
    for process in psutil.Process(client._state.started.pid).children():
        process.kill()
        process.wait(10)
    monkeypatch.setattr(client.Decoder, "is_alive", lambda _: True)
    assert images.__getitems__([0, 1, 2, 3])["bad"] == []


RUN = """
import sys, time
from sslkit.data.decode import opening
from sslkit.data.decode.sandbox import client
with opening.open_picture(sys.argv[1], opening.Opening()):
    print(client._state.started.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_decoder_outlives_its_run(number: signal.Signals, folder: Path) -> None:
    command = [sys.executable, "-c", RUN, folder / "0.tif"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=listening)
    server = psutil.Process(int(run.stdout.readline()))
    every = [server, *server.children(recursive=True)]
    assert len(every) == 2
    run.send_signal(number)
    run.wait(60)
    _, alive = psutil.wait_procs(every, 60)
    assert alive == []


def asks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked, ask = [], client.Decoder.ask
    monkeypatch.setattr(
        client.Decoder, "ask", lambda self, do, *rest, **more: asked.append(do) or ask(self, do, *rest, **more)
    )
    return asked


def test_a_small_image_is_read_as_it_is_opened(folder: Path, new_decoders, monkeypatch) -> None:
    """Once the one before was: then each asks its decoder once, and one that cannot be read says the same."""
    (folder / "3.tif").write_bytes((folder / "3.tif").read_bytes()[:-300])
    with pytest.warns(UserWarning, match="3 of the images looked at"):
        images = open_images(folder, image_size=16)
    asked = asks(monkeypatch)
    batch = images.__getitems__([0, 1, 2, 3])
    assert grays(batch) == [*GRAYS[:3], GRAYS[0]] and batch["bad"] == [str(folder / "3.tif")]
    assert asked.count("open") == 5 and asked.count("read") <= 2


def test_decoders_go_on_where_a_signal_is_for_the_run(folder: Path, new_decoders) -> None:
    """A terminal and SLURM send it to all processes; the run may write a checkpoint then, and read on."""
    images = open_images(folder, image_size=16)
    server = psutil.Process(client._state.started.pid)
    for process in (server, *server.children()):
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
    time.sleep(0.2)
    assert grays(images.__getitems__([0, 1, 2, 3])) == list(GRAYS) and server.is_running()


def test_no_file_stays_open(folder: Path) -> None:
    images = open_images(folder, image_size=16)
    images.__getitems__([0, 1, 2, 3])
    before = os.listdir("/proc/self/fd")
    for _ in range(5):
        images.__getitems__([0, 1, 2, 3])
    assert os.listdir("/proc/self/fd") == before


def test_images_that_are_open_at_once_have_a_decoder_each(folder: Path) -> None:
    images = open_images(folder, image_size=16)
    opened = [images._open(row) for row in range(4)]
    assert [np.asarray(image)[8, 8, 0] for image in reversed(opened)] == list(reversed(GRAYS))
    for image in opened:
        image.close()
    assert len(client._state.idle) <= client._IDLE


@pytest.mark.parametrize(
    ("ending", "options", "is_plain"),
    [
        ("jpg", {}, True),
        ("png", {}, True),
        ("bmp", {}, True),
        ("webp", {}, True),
        ("gif", {}, False),
        ("tif", {}, True),
        ("tif", {"save_all": True}, False),
        ("jp2", {}, False),
        ("ppm", {}, False),
        ("png", {"save_all": True}, False),
        ("webp", {"save_all": True}, False),
    ],
)
def test_what_is_plain_is_told_by_the_content(ending: str, options: dict, is_plain: bool, tmp_path: Path) -> None:
    path, more = tmp_path / f"a.{ending}", [Image.new("RGB", (8, 8), "white")] if options else []
    Image.new("RGB", (8, 8)).save(path, **options, **({"append_images": more} if more else {}))
    assert (kind_of(path.rename(tmp_path / "a.jpg"), channels=None) is None) is is_plain


def test_a_long_text_hides_no_animation(tmp_path: Path) -> None:
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("a", "long " * 2000)
    images = [Image.new("RGB", (8, 8), (gray,) * 3) for gray in (1, 2)]
    images[0].save(tmp_path / "0.png", save_all=True, append_images=images[1:], pnginfo=about)
    assert (
        kind_of(tmp_path / "0.png", channels=None) == "pillow"
        and len(open_images(tmp_path, image_size=8, pages="all")) == 2
    )


LIMITED = """
import os, socket, sys
from sslkit.data.decode.sandbox.limits import Limits
size = os.open("/proc/self/statm", os.O_RDONLY)
os.closerange(size + 1, 256)
limits = Limits(size + 1)
def fails(do):
    try:
        do()
    except (PermissionError, OSError) as error:
        return type(error).__name__
    return "nothing"
def native():
    import ctypes
    return ctypes.CDLL(None).open(b"/etc/passwd", 0)
with limits.apply(2**26, 1.0, size):
    print(fails(lambda: open("/etc/passwd")), fails(lambda: os.open("/etc/passwd", 0)), fails(lambda: socket.socket()))
    print(fails(lambda: os.system("true")), fails(lambda: open("x", "w")))
    import wave  # a module that nobody has imported so far
    print(wave.__name__, fails(lambda: open(os.path.join(sys.argv[1], "a.tif"))))
    try:
        bytearray(2**27)
    except MemoryError:
        print("MemoryError")
open("/etc/passwd").close()
bytearray(2**27)
with limits.apply(2**26, 0.2, size):
    while True:
        pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit less")
def test_limits_of_memory_time_and_files(tmp_path: Path) -> None:
    """tmp_path: a project's folder, whose modules are imported, and whose images are not to be named by another."""
    (tmp_path / "a.tif").touch()
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    said = [*["PermissionError"] * 5, "wave", "PermissionError", "MemoryError"]
    assert ended.stdout.split() == said, ended.stderr
    assert ended.returncode == -signal.SIGPROF


NATIVE = """
import ctypes, os
from sslkit.data.decode.sandbox.limits import Limits
size = os.open("/proc/self/statm", os.O_RDONLY)
os.closerange(size + 1, 256)
native = ctypes.CDLL(None).open
limits = Limits(size + 1)
with limits.apply(2**26, 1.0, size):
    print(native(b"/etc/passwd", 0))
print(native(b"/etc/passwd", 0) > 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit less")
def test_a_library_opens_no_file_either() -> None:
    ended = subprocess.run([sys.executable, "-c", NATIVE], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["-1", "True"]
