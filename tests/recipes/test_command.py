"""Words of the command line on their way to Hydra's grammar."""

import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sslkit.cli.command import STOPPED, one_line_errors, run_plain
from sslkit.cli.words import quote_value

from sslkit.terminal.say import CALL

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("metrics=[nleep(covariance=diag),logme]", ["nleep(covariance=diag)", "logme"]),
        ("metrics=[logme, ped(lam=0.3,steps=2)+logme]", ["logme", "ped(lam=0.3,steps=2)+logme"]),
        ('metrics=["nleep(covariance=diag)",logme]', ["nleep(covariance=diag)", "logme"]),
        ("metrics=['ped(lam=1,steps=2)+logme']", ["ped(lam=1,steps=2)+logme"]),
        ("metrics=nleep(covariance=diag)", "nleep(covariance=diag)"),
        ("data=a folder/b=c", "a folder/b=c"),
        ("data=[a/b,c]", ["a/b", "c"]),
        ("data=sp ace/x=(1)", "sp ace/x=(1)"),
        ("name=2024", "2024"),
        ("name=[1", "[1"),
        ("name=a,b", "a,b"),
        ("name='a b'", "a b"),
        ('name=it\'s \\ "so"', 'it\'s \\ "so"'),
        ("name=null", None),
        ("lr=[0.1,1e-3]", [0.1, 1e-3]),
        ("seed=3", 3),
        ("truth=null", None),
        ("x={a: b}", {"a": "b"}),
    ],
)
def test_a_word_means_what_a_person_reads(word: str, meant: object) -> None:
    assert OverridesParser.create().parse_override(quote_value(word, {"name", "data"})).value() == meant


def test_a_warning_is_shown_as_one_line(monkeypatch, capsys) -> None:
    @dataclass
    class Settings:
        a: int = 1

    def show(*warning: object) -> None:  # as Python does; pytest keeps warnings for its summary
        sys.stderr.write(warnings.formatwarning(*warning[:4]))

    monkeypatch.setattr(sys, "argv", ["warn.py"])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(warnings, "showwarning", show)
    run_plain(lambda config: warnings.warn("two films cannot be read", stacklevel=1), Settings(), "usage", {})
    assert capsys.readouterr().err == "warning: two films cannot be read\n"


@pytest.mark.slow
def test_a_warning_is_one_line_without_its_place_in_the_code(tmp_path) -> None:
    script = tmp_path / "warn.py"
    script.write_text(
        "import warnings\nfrom sslkit.cli.command import run_plain\n"
        "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    a: int = 1\n"
        "run_plain(lambda config: warnings.warn('two films cannot be read'), Settings(), 'usage', {})\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == "warning: two films cannot be read\n"


@pytest.mark.parametrize(
    ("recipe", "word", "said"),
    [
        ("train", "lr=0.1", "there is no setting 'lr': did you mean 'optimizer.lr=0.1'?"),
        ("train", "data.batch_size=8", "in data: did you mean 'batch_size=8'?"),
        (
            "train",
            "precision=bf16-mixed",
            "precision must be auto, float32, bfloat16 or float16, got 'bf16-mixed': did you",
        ),
        ("train", "device=gpu", "did you mean 'cuda'?"),
        ("train", "trainer.accelerator=cpu", "in trainer: did you mean 'device=cpu'?"),
        ("train", "model=resnet18", "did you mean 'backbone=resnet18'?"),
        ("train", "max_epochs=3", "did you mean 'epochs=3'?"),
        ("evaluate", "model=runs/zoo/a", "did you mean 'checkpoint=runs/zoo/a' or 'zoo=runs/zoo/a'?"),
        ("evaluate", "k=5", "did you mean 'clustering.k=5' or 'knn.k=5' or 'knn_seg.k=5'?"),
        ("rank", "checkpoint=efficientnet_lite0", "did you mean 'zoo=efficientnet_lite0'?"),
        ("export", "entry=runs/zoo/a", "did you mean 'checkpoint=runs/zoo/a'?"),
        ("train", "checkpoint=runs/zoo/a", "did you mean 'init=runs/zoo/a'?"),
        ("embed", "zoo=runs/zoo/a", "did you mean 'checkpoint=runs/zoo/a'?"),
        ("train", "data.image_size=96", "did you mean 'image_size=96'?"),
        ("rank", "data.image_size=96", "in data: did you mean 'image_size=96'?"),
        ("evaluate", "protocols=[linear_probe]", "there is no protocol 'linear_probe': did you mean 'linear'?"),
        ("evaluate", "checkpiont=a", "did you mean 'checkpoint'?"),
    ],
)
def test_what_other_programs_call_a_setting_is_understood(recipe, word, said, typed, tmp_path) -> None:
    done = typed(recipe, word, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("recipe", "words", "said"),
    [
        ("train", "photos", "cannot read 'photos': did you mean data=photos?"),
        ("train", "nowhere", "cannot read 'nowhere': write key=value"),
        ("train", "--data photos --method simclr", "options are written data=photos method=simclr, without --data"),
        ("train", "--data=photos --lr 0.1", "options are written data=photos optimizer.lr=0.1, without --data"),
        ("train", "photos --batch-size 64 epochs=3", "written data=photos batch_size=64, without --batch-size"),
        ("train", "--resume", "options are written resume=true, without --resume"),
        ("evaluate", "zoo/a", "did you mean checkpoint=zoo/a?"),
        ("evaluate", "--model zoo/a", "options are written checkpoint=zoo/a, without --model"),
        ("export", "zoo/a", "did you mean checkpoint=zoo/a?"),
        ("rank", "zoo --data photos", "options are written zoo=zoo data=photos, without --data"),
        ("shards", "photos", "did you mean folder=photos?"),
    ],
)
def test_words_of_another_form_are_said_as_settings(recipe, words, said, typed, tmp_path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "zoo" / "a").mkdir(parents=True)
    (tmp_path / "zoo" / "a" / "card.json").touch()
    done = typed(recipe, *words.split(), cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_a_value_is_checked_before_the_imports_of_training(typed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.pretrain", None)
    done = typed("train", "image_size=7", cwd=tmp_path)
    assert done.returncode == 2 and "image_size must be a whole number, at least 8" in done.stderr


@pytest.mark.parametrize(
    ("interrupt", "said"),
    [
        (KeyboardInterrupt(f"stopped; {CALL} continues zoo/a"), "stopped; the same command with resume=true continues"),
        (KeyboardInterrupt(), "stopped before the training began"),
    ],
)
def test_a_stop_is_a_line_for_a_command(interrupt: KeyboardInterrupt, said: str, capsys) -> None:
    with pytest.raises(SystemExit), one_line_errors(STOPPED):
        raise interrupt
    assert capsys.readouterr().err.startswith(said)


def test_training_that_is_stopped_in_its_imports_says_that_nothing_began(tmp_path, typed, monkeypatch) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sslkit.training.pretrain.open_data", press)
    done = typed("train", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "stopped before the training began\n")
