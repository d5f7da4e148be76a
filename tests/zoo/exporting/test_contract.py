"""What every form must do, whichever files there are: found by listing the folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sslkit
from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo import exporting

NAMES = exporting.names()
WRITE_ONLY = {"torch_export"}  # torch restores it by more than plain weights
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def test_every_file_of_the_folder_is_a_form() -> None:
    there = {path.stem for path in Path(exporting.__file__).parent.glob("[!_]*.py")} - {"base"}
    assert set(NAMES) == there >= {"timm", "hf", "torchvision", "onnx", "torch_export"}
    with pytest.raises(UserError, match="no target 'tim': did you mean 'timm'"):
        zoo.export("nowhere", to="tim")


@pytest.mark.nightly  # that each gives the same numbers has a quick test of its own in test_timm.py, test_hf.py, ...
def test_plain_libraries_load_it_and_sslkit_is_out_of_the_loop(exported, tmp_path: Path) -> None:
    x = torch.randn(5, 1, 16, 16)
    np.save(tmp_path / "x.npy", x.numpy())
    script = f"import os, sys, numpy\nx = numpy.load({str(tmp_path / 'x.npy')!r})\n"
    for to in NAMES:
        script += (
            f"os.chdir({str(exported(to).parent)!r})\n"
            + "\n".join(exporting.lines(exported(to)))
            + (
                "\nif hasattr(net, 'run'):\n    y, = net.run(None, {'images': x})\n"
                "else:\n    import torch\n    y = net(torch.from_numpy(x)).detach().numpy()\n"
                f"numpy.save({str(tmp_path / to)!r}, y)\n"
            )
        )
    script += "assert 'sslkit' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | ONE_THREAD)
    assert done.returncode == 0, done.stderr
    expected = sslkit.load(exported("timm").parents[1]).net(x)
    for to in NAMES:
        given = torch.from_numpy(np.load(tmp_path / f"{to}.npy"))
        torch.testing.assert_close(given, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("to", NAMES)
class TestEveryForm:
    def test_round_trip(self, to: str, exported) -> None:
        path = exported(to)
        folder = path.parents[1]
        assert path.parent == folder / "exports" and [e.folder for e in zoo.open(folder.parent)] == [folder]
        if to in WRITE_ONLY:
            with pytest.raises(UserError, match="give the entry, or an export to onnx or timm"):
                sslkit.load(path)
            return
        ours, net = zoo.ZooEntry.load(folder).backbone(), sslkit.load(path)
        pixels = torch.rand(5, 1, 16, 16)
        expected = ours(net.normalize(pixels)).detach()
        torch.testing.assert_close(net(pixels), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
        assert (net.name, net.width, net.image_size, net.in_chans) == ("byol-entry", 512, 16, 1)
        assert (net.mean, net.std) == ((0.25,), (0.3,)) and not net.training
        assert not net(pixels).requires_grad

    @pytest.mark.parametrize("broken", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_crash_half_way_leaves_what_stood_there(
        self, to: str, broken, same_source, tmp_path, monkeypatch
    ) -> None:
        def crash(self, source, path, name) -> None:
            (path / "config.json" if path.is_dir() else path).write_bytes(b"half")
            raise broken

        monkeypatch.setattr(exporting.find(to), "write", crash)
        out = tmp_path / "exports" / f"x{exporting.find(to).suffix}"
        with pytest.raises((UserError, KeyboardInterrupt)):
            zoo.export(same_source, to=to, out=out)
        assert list(out.parent.iterdir()) == []
        for path in (out,) if out.suffix else (out / "config.json", out / "model.safetensors"):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"before")
        before = contents(out.parent)
        with pytest.raises((UserError, KeyboardInterrupt)):
            zoo.export(same_source, to=to, out=out)
        assert contents(out.parent) == before

    def test_a_file_cut_short_is_one_clear_error(self, to: str, exported, tmp_path: Path) -> None:
        shutil.copytree(exported(to).parent, tmp_path / "x")
        path = tmp_path / "x" / exported(to).name
        weights = max((file for file in [path, *path.rglob("*")] if file.is_file()), key=lambda f: f.stat().st_size)
        weights.write_bytes(weights.read_bytes()[:-100_000])
        with pytest.raises(UserError, match=weights.name):
            exporting.lines(path)

    def test_where_to(self, to: str, exported, same_source, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(exporting.find(to), "write", lambda self, source, path, name: place(exported(to), path))
        entry, suffix = same_source, exporting.find(to).suffix
        path = tmp_path / "a" / f"b{suffix}"
        assert zoo.export(entry, to=to, out=path) == path
        assert zoo.export(entry, to=to, out=str(path)) == path  # again
        assert exporting.find(to)().about(path).name == "byol-entry"
        (tmp_path / "c" / "d").mkdir(parents=True)
        if suffix:
            assert zoo.export(entry, to=to, out=tmp_path / "c").name == f"byol-entry-{to}{suffix}"
            with pytest.raises(UserError, match=f"must end in {suffix}"):
                zoo.export(entry, to=to, out=tmp_path / "x.weights")
        else:
            with pytest.raises(UserError, match="is no earlier export"):
                zoo.export(entry, to=to, out=tmp_path / "c")
            assert (tmp_path / "c" / "d").is_dir()

    def test_no_path_of_this_machine_is_written(self, to: str, exported) -> None:
        path = exported(to)
        for file in [path, *path.rglob("*"), *path.parent.glob("*.json")]:
            assert not file.is_file() or os.fsencode(str(path.parent)) not in file.read_bytes(), file

    def test_a_module_object_cannot_be_exported(self, to: str, entry_of) -> None:
        entry = entry_of(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), 4, 1)
        with pytest.raises(UserError, match="was trained from a module object"):
            zoo.export(entry, to=to)
        assert not (entry.folder / "exports").exists()

    def test_what_a_newer_sslkit_exported(self, to: str, exported, monkeypatch) -> None:
        monkeypatch.setattr("sslkit.zoo.about.FORMAT", 0)
        with pytest.raises(UserError, match=r"newer sslkit \(format 1\): pip install --upgrade"):
            exporting.lines(exported(to))


def place(exported: Path, path: Path) -> None:
    """What `write` does, without the work: the content of an export at a temporary path."""
    if exported.is_dir():
        shutil.copytree(exported, path, dirs_exist_ok=True)
    else:
        shutil.copy(exported, path)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
