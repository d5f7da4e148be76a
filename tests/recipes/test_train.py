"""The command line as a person types it."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

import sslkit
from sslkit.runtime import progress

ROOT = Path(__file__).parents[2]


def command(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    call = [sys.executable, str(ROOT / "recipes" / "train.py"), *words]
    return subprocess.run(call, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_help_names_every_member_and_every_option(tmp_path, typed) -> None:
    said = typed("train", "--help=all", "method=byol+dsa", cwd=tmp_path).stdout
    for name in (*sslkit.methods(), *sslkit.regularizers()):
        assert f"  {name} " in said
    for setting in ("epochs=6", "batch_size=128", "precision=auto", "method.objective.momentum=null"):
        assert setting in said
    assert "method.dsa.nu=0.1" in said
    told = said[said.index("options of method=") :].partition("\n")[2]
    lines = re.split(r"\n(?=  method)", told)
    assert len(lines) > 25 and all(re.fullmatch(r"  method\.\w+\.\w+=\S+\s+\S.{4,}", line, re.S) for line in lines), (
        lines
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["method=byolo"], "did you mean 'byol'"),
        (["method=byol+dsaa"], "did you mean 'dsa'"),
        (["epohcs=3"], "did you mean 'epochs'"),
        (["method=byol+dsa", "method.dsa.nuu=3"], "did you mean 'nu'"),
        (["method=byol+dsa", "method.dsa.nu=-3"], "nu"),
        (["method=byol+dsa", "method.dsa.variant=papers"], "variant must be paper or code, got 'papers'"),
        (["data=/no/such/folder"], "/no/such/folder"),
        (["data=fashion_mnist", "backbone=resnet81"], "did you mean"),
        (["batch_size=9000"], "batch_size=9000"),
        (["resume=true", "name=never_started"], "there is no run"),
        (["epochs"], "key=value"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, said, tmp_path, typed) -> None:
    done = typed("train", *words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    assert not list(tmp_path.rglob("card.json"))


def test_one_image_and_an_empty_folder(tmp_path, typed) -> None:
    folder = tmp_path / "pictures with, odd = names"
    folder.mkdir()
    assert "no images" in typed("train", f"data={folder}", cwd=tmp_path).stderr
    Image.new("RGB", (20, 20)).save(folder / "one.png")
    said = typed("train", f"data={folder}", cwd=tmp_path).stderr
    assert said.startswith("error: ") and "1 image" in said


def test_a_sweep_with_options_makes_an_entry_for_each(few_digits, tmp_path, typed) -> None:
    words = [f"data={few_digits}", "batch_size=32", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo"]
    done = typed("train", "-m", "method=simclr,byol+koleo", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(e.card["method"] for e in sslkit.zoo.open(tmp_path / "zoo")) == ["byol+koleo", "simclr"]
    assert {path.name for path in tmp_path.iterdir()} == {"zoo"}  # Hydra's own record lies in zoo/logs


def test_a_refused_job_of_a_sweep_does_not_end_it(few_digits, tmp_path, typed) -> None:
    words = [f"data={few_digits}", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo", "method=simclr"]
    done = typed("train", "batch_size=9999,32", "-m", *words, cwd=tmp_path)  # Hydra refuses it there
    assert done.returncode == 1 and len(sslkit.zoo.open(tmp_path / "zoo")) == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2 and "fewer than one batch (batch_size=9999)" in lines[0], done.stderr
    assert "1 job of the sweep failed, the others are done: " in lines[1] and "batch_size=9999" in lines[1]


def test_options_of_the_command_line_arrive(few_digits, tmp_path, typed) -> None:
    words = [f"data={few_digits}", "batch_size=32", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo", "name=x"]
    options = ["method.objective.momentum=0.5", "method.koleo.weight=0.3", "method.views.scale=[0.5,1]"]
    done = typed("train", "method=byol+koleo", *options, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = sslkit.ZooEntry.load(tmp_path / "zoo" / "x").card["options"]
    assert kept["objective"]["momentum"] == 0.5 and kept["koleo"]["weight"] == 0.3
    assert kept["views"]["scale"] == [0.5, 1]


@pytest.mark.nightly
def test_two_processes_end_where_one_does(tmp_path) -> None:
    """Loader, views and batch norm of two ranks together.

    float32 sums in another order drift apart: by 0.0005 over these 5 steps, by 0.007 over 10, other seeds by 1.4.
    """
    words = ["method=byol", "data=digits", "batch_size=256", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo"]
    words += ["precision=float32", "device=cpu", "optimizer.name=sgd", "optimizer.lr=0.01"]
    two = ["trainer.devices=2", "trainer.strategy=ddp"]
    for name, more in (("one", []), ("two", two), ("other", ["seed=1"])):
        done = command(*words, f"name={name}", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, two, other = (sslkit.ZooEntry.load(tmp_path / "zoo" / name).state_dict() for name in ("one", "two", "other"))
    assert distance(one, two) < 5e-3 < 0.5 < distance(one, other)


def distance(one: dict, two: dict) -> float:
    """Median over the tensors of their relative difference."""
    relative = [(one[k] - two[k]).float().norm() / one[k].float().norm() for k in one if one[k].is_floating_point()]
    return sorted(relative)[len(relative) // 2].item()


def test_where_errors_go_to_a_terminal_a_bar_shows_rate_and_waiting(few_digits, tmp_path, typed, monkeypatch) -> None:
    words = ["method=simclr", f"data={few_digits}", "batch_size=32", "epochs=1", "eval.tsne=0", "eval.k=3"]
    assert "images/s" not in typed("train", *words, "out=zoo", cwd=tmp_path).stderr
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "tqdm", partial(progress.tqdm, mininterval=0))  # it shows every step
    shown = typed("train", *words, "out=zoo", cwd=tmp_path).stderr
    assert "images/s" in shown and "waiting for data" in shown


@pytest.mark.nightly
def test_on_a_terminal_a_bar_shows_rate_and_waiting(tmp_path) -> None:
    import fcntl
    import os
    import pty
    import struct
    import termios

    words = ["method=simclr", "data=digits", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo"]
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    call = [sys.executable, str(ROOT / "recipes" / "train.py"), *words]
    done = subprocess.run(call, stdout=subprocess.PIPE, stderr=terminal, cwd=tmp_path, timeout=300)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other end is closed and all is read
            break
        if not part:
            break
        shown += part
    assert done.returncode == 0, shown.decode()
    assert "images/s" in shown.decode() and "waiting for data" in shown.decode()


SIMCLR, DIGITS = "method=simclr", "data=digits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optimizer=sgd", "optimizer.momentum=-3"], "optimizer.momentum must be a number, at least 0 and below 1"),
        (["seed=18446744073709551617"], "seed must be a whole number"),
        (["precision=64-true"], "precision must be auto"),
        (["precision=bf16-true"], "precision must be auto"),
        (["precision=float16"], "precision=float16 needs a GPU; on a CPU use bfloat16 or float32"),
        (["trainer.devices=99999999999999999999"], "trainer.devices must be"),
        (["image_size=abc"], "image_size must be a whole number"),
        (["image_size=0"], "image_size must be a whole number"),
        (["data.channels=x"], "data.channels must be a whole number"),
        (["optimizer.weight_decay=-1"], "optimizer.weight_decay must be"),
        (["optimizer.clip=-1"], "optimizer.clip must be"),
        (["optimizer.lr=nan"], "optimizer.lr must be"),
        ([f"optimizer.lr={'9' * 400}"], "optimizer.lr must be"),
        ([DIGITS, "backbone=123"], "timm knows no model '123'; did you mean"),
        (["eval.max_images=1"], "eval.max_images must be a whole number"),
        (["eval.max_images=4", "eval.k=3"], "eval.max_images=4 is too few for the picture"),
        (["eval.max_images=9"], "eval.max_images=9 must be at least eval.k=20"),
        (["hydra/launcher=nope"], "hydra/launcher/nope"),
        (["epochs=[1"], "cannot read 'epochs=[1'"),
        ([f"epochs={'9' * 5000}"], "cannot read 'epochs=999"),
        (["epochs=${nope}"], "'nope' not found"),
        (["-m", "epochs=1,x"], "epochs must be a whole number, at least 1"),
        (["data=loop"], "loop"),
        ([f"data={'x' * 5000}"], "File name too long"),
        (["data=~nobody-of-this-name/x"], "cannot look for data"),
        (["data=links"], "links/a.png: Too many levels of symbolic links"),
        ([DIGITS, "out=file/zoo"], "cannot make the run folder file/zoo"),
        ([DIGITS, "out=file"], "cannot make the run folder file/"),
        ([DIGITS, "out=loop"], "cannot make the run folder loop/"),
        ([DIGITS, "out=/dev/full"], "cannot make the run folder /dev/full/"),
        ([DIGITS, f"out={'x' * 300}"], "File name too long"),
        ([DIGITS, f"name={'x' * 300}"], "has 300 bytes, a name may have 200"),
        (["method.objective=5"], "objective must be a mapping of options, got 5"),
        ([SIMCLR, "method.objective.temperature=nan"], "temperature must be a number, above 0"),
        ([SIMCLR, "method.objective.dim=1000000000000"], "dim must be a whole number, at least 1 and at most"),
        ([SIMCLR, DIGITS, "method.views.scale=[a,b]"], "scale=('a', 'b')"),
        ([SIMCLR, DIGITS, "method.views.scale=[0.5]"], "scale=(0.5,)"),
        ([SIMCLR, DIGITS, "method.views.scale=[1,0.5]"], "scale=(1, 0.5)"),
        (["method=dino", DIGITS, "method.views.n_local=1000000"], "n_local=1000000"),
        (["method=byol+dsa", "method.dsa.alpha=nan"], "alpha must be a number"),
    ],
    ids=lambda given: " ".join(given)[:60] if isinstance(given, list) else "",
)
def test_refused_before_any_folder_is_made(words: list[str], said: str, tmp_path, typed) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "links").mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "links" / f"{number}.png")
    (tmp_path / "links" / "a.png").symlink_to(tmp_path / "links" / "a.png")
    before = sorted(tmp_path.rglob("*"))
    done = typed("train", "batch_size=2", *words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: "), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("word", "folder"), [("out=sp ace/x=(1)", "sp ace/x=(1)"), ("experiment=null", "runs/zoo"), ("out=a,b", "a,b")]
)
def test_words_that_are_fine(word: str, folder: str, tmp_path, typed, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.training.pretrain.train", lambda *_: None)
    done = typed("train", SIMCLR, DIGITS, "name=x", word, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / folder / "x" / "config.yaml").is_file()


def test_a_folder_that_may_not_be_written(tmp_path, typed, monkeypatch) -> None:
    make = Path.mkdir

    def refuse(self: Path, *options: object, **more: object) -> None:
        if "zoo" in self.parts:
            raise PermissionError(13, "Permission denied", str(self))
        make(self, *options, **more)

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = typed("train", SIMCLR, DIGITS, "out=zoo", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: cannot make the run folder zoo/"), done.stderr
    assert "Permission denied; choose another with out=" in done.stderr and not list(tmp_path.iterdir())
