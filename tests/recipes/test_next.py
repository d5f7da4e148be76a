"""The commands that a program prints as next: they name one's own data and run as they are."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from evaluation.judging.following import following
from evaluation.judging.run import make_tasks
from evaluation.protocols.base import Judged
from sslkit.data.sources.named import open_images
from sslkit.terminal.say import words as typed_words
from sslkit.training.config import Config
from sslkit.training.following import next_run

SHORT = ("batch_size=16", "epochs=1", "eval.tsne=0", "eval.k=3", "workers=0", "image_size=16")


def commands(said: str) -> dict[str, list[str]]:
    """Every printed command by the label before it, as a shell reads it."""
    found = re.findall(r"^ *(\w[\w ]*?):? +(python recipes/(?:.*\\\n)*.*)$", said, re.M)
    return {label.rstrip(":"): shlex.split(text.replace("\\\n", " ")) for label, text in found}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Thirty of each of two digits, as files, in a folder with a blank and a comma in its name."""
    digits = open_images("digits")
    for label in range(2):
        for number, row in enumerate((digits.labels == label).nonzero()[0][:30]):
            path = tmp_path / "my pictures, 2026" / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(digits.pixels[row, 0]).save(path)
    return tmp_path / "my pictures, 2026"


def test_train_names_the_folder_and_its_settings_and_evaluate_takes_its_command(pictures: Path, typed) -> None:
    where = pictures.parent
    own = ("method=byol+koleo", "method.koleo.weight=0.2", f"data={pictures.name}", "out=my zoo", "name=mine", *SHORT)
    done = typed("train", *own, cwd=where)
    assert done.returncode == 0, done.stderr
    assert "PATH/TO" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 80
    told = commands(done.stdout)
    _, program, *words = told["next"]
    asked = {*own, "epochs=100"} - {"epochs=1", f"data={pictures.name}", "out=my zoo", "name=mine"}
    assert program == "recipes/train.py" and asked | {f'data="{pictures.name}"', 'out="my zoo"'} == set(words)
    shown = typed("train", *words, "--cfg", "job", cwd=where).stdout
    assert f"source: {pictures.name}" in shown and "epochs: 100" in shown and "momentum: null" in shown

    _, program, *words = told["evaluate"]
    assert program == "recipes/evaluate.py"
    judged = typed("evaluate", *words, "pictures=false", "protocols=[knn]", "knn.k=3", "workers=0", cwd=where)
    assert judged.returncode == 0 and max(map(len, judged.stdout.splitlines())) <= 80, judged.stderr
    following = commands(judged.stdout)["next"]
    assert following[1] == "recipes/evaluate.py"
    assert {f'data="{pictures.name}"', "protocols=[knn]", "knn.k=3"} <= set(following)
    again = typed("evaluate", *following[2:], "pictures=false", "workers=0", "image_size=16", cwd=where)
    assert again.returncode == 0, again.stderr


def test_after_embedded_images_the_options_that_fit_any_images_are_repeated() -> None:
    def told(**guide: object) -> list[str]:
        method = {"name": "mae+guide", "guide": guide}
        asked = Config.from_mapping({"method": method, "data": "digits"})
        return typed_words(next_run(asked, {})).split()

    usual = ["method=mae+guide", "data=PATH/TO/YOUR/IMAGES", "epochs=100"]
    assert told() == told(prior="features:rows.npy") == usual
    assert told(balance=1.0) == [*usual, "method.guide.balance=1.0"]
    assert told(prior="hog", prior_size=32) == [*usual, "method.guide.prior=hog", "method.guide.prior_size=32"]
    given = {"init": "efficientnet_lite0", "tune": "lora"}
    continued = Config.from_mapping({"method": "simclr", "data": "digits", **given})
    assert next_run(continued, {}).items() >= given.items()


def test_pictures_without_classes_are_looked_at(pictures: Path, typed) -> None:
    for path in (pictures / "1").iterdir():
        path.rename(pictures / "0" / f"one-{path.name}")
    (pictures / "1").rmdir()
    done = typed("train", "method=simclr", f"data={pictures.name}", *SHORT, cwd=pictures.parent)
    _, program, *words = commands(done.stdout)["look at it"]
    assert program == "recipes/embed.py" and f'data="{pictures.name}"' in words
    looked = typed("embed", *words, "workers=0", cwd=pictures.parent)
    assert looked.returncode == 0, looked.stderr
    assert list(pictures.parent.glob("runs/zoo/*/features.npz"))


def test_embedded_images_lead_to_ones_own(few_digits, tmp_path: Path, typed) -> None:
    done = typed("train", "method=simclr", "data=digits", "batch_size=512", *SHORT[1:4], cwd=tmp_path)
    told = commands(done.stdout)
    assert told["next"][2:] == ["method=simclr", "data=PATH/TO/YOUR/IMAGES", "epochs=100"]
    assert [word.partition("=")[0] for word in told["evaluate"][2:]] == ["checkpoint"]


def test_ranking_leads_to_a_choice_among_the_same_models(few_digits, tmp_path: Path, typed) -> None:
    models = "zoo=[random:narrow_resnet,random:narrow_resnet:1]"
    done = typed("rank", models, f"data={few_digits}", "metrics=[knn]", "bootstrap=0", "image_size=8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _, program, *words = commands(done.stdout)["next"]
    assert program == "recipes/choose.py" and {models, f"data={few_digits}", "image_size=8"} == set(words)


def test_several_models_on_ones_own_data_are_ranked_next() -> None:
    judged = [Judged(name, type("Model", (), {"entry": None, "name": name}), Path(), []) for name in ("a", "b")]
    asked = {"data": "my pictures", "protocols": None, "trust": None}
    said = following(judged, make_tasks("digits", ["knn"]), asked, {"seed": 3, "out": "x", "range": [0, 4095]})
    assert said == "python recipes/rank.py 'zoo=[a,b]' 'data=\"my pictures\"' seed=3 'range=[0,4095]'"
    place = {"range": None, "opacity": False, "fill": -2000.0}
    said = following(judged, make_tasks("digits", ["knn"]), asked, place)
    assert said == "python recipes/rank.py 'zoo=[a,b]' 'data=\"my pictures\"' opacity=false fill=-2000.0"
    assert "opacity" not in following(judged, make_tasks("digits", ["knn"]), asked, {"opacity": None, "fill": "auto"})
    said = following(judged, make_tasks("clipart_boxes", ["linear_seg"]), {"data": "clipart_boxes"}, {})
    assert said == "python recipes/rank.py 'zoo=[a,b]' data=masks:clipart_boxes"


def test_only_a_network_that_can_be_built_is_proposed_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.judging.following.find_spec", lambda name: None)
    tasks, asked = make_tasks("digits", ["knn"]), {"data": "digits"}

    def told(asked_for: str, **backbone: object) -> str:
        entry = SimpleNamespace(folder=Path(asked_for), card={"backbone": backbone}) if backbone else None
        return following(
            [Judged(asked_for, SimpleNamespace(entry=entry, name=asked_for), Path(), [])], tasks, asked, {}
        )

    assert told("timm:resnet18:file.pt") == "" == told("own", name="mine:net", lines=["import mine"])
    assert "'checkpoint=[runs/zoo/a,random:runs/zoo/a]'" in told("runs/zoo/a", name="resnet18", lines=["import timm"])
