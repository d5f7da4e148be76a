"""What a run chooses where nothing is given: as documented, only where it was measured, and a given value wins."""

import pytest

import sslkit
from sslkit.errors import UserError
from sslkit.training import build
from sslkit.training.config import Config
from sslkit.training.data import open_data
from sslkit.training.settled import Choice, Settled


def settings(**more: object) -> Settled:
    """The settings of a new run."""
    asked = Config.from_mapping(more)
    return Settled(asked, build.choose(asked, open_data(asked)))


def test_the_first_command_runs_with_the_documented_settings() -> None:
    """8,000 images, 6 epochs of 62 steps: 1 - 8 / 372."""
    settled = settings(method="byol+dsa")
    assert settled.config.optimizer.lr == 0.009 and settled.config.backbone == "narrow_resnet"
    assert settled.config.method == {
        "name": "byol+dsa",
        "objective": {"momentum": 0.978},
        "views": {"scale": [0.2, 1.0]},
    }
    assert [choice.reason for choice in settled.chosen.values() if choice.reason] == [
        "learning rate 0.009 for narrow_resnet",
        "crops from 20 % of the area for small images",
        "teacher's momentum 0.978 for the run's length",
    ]


def test_a_given_value_wins() -> None:
    settled = settings(
        method={"name": "byol", "objective": {"momentum": 0.996}, "views": {"scale": [0.08, 1.0]}},
        optimizer={"lr": 0.002},
        backbone="resnet18",
    )
    assert settled.config == settled.asked and not settled.chosen
    one = settings(**{"method": "byol+dsa", "method.objective.momentum": 0.99}).config
    assert one.method["objective"] == {"momentum": 0.99} and one.method["views"] == {"scale": [0.2, 1.0]}


@pytest.mark.parametrize(
    ("more", "rate", "method"),
    [
        ({"method": "mae"}, 0.002, "mae"),  # narrow_vit; its recipe is not the papers' 8 %
        ({"method": "dino"}, 0.002, "dino"),
        ({"method": "simclr"}, 0.009, {"name": "simclr", "views": {"scale": [0.2, 1.0]}}),
        ({"method": "simclr", "batch_size": 32}, 0.0045, {"name": "simclr", "views": {"scale": [0.2, 1.0]}}),
        ({"method": "simclr", "batch_size": 512}, 0.009, {"name": "simclr", "views": {"scale": [0.2, 1.0]}}),
        ({"method": "moco", "optimizer.name": "sgd"}, 0.002, "moco"),
        ({"method": "simclr", "image_size": 65}, 0.002, "simclr"),  # auto is another network
    ],
)
def test_where_it_was_not_measured_nothing_is_chosen(more: dict, rate: float, method: object) -> None:
    config = settings(**more).config
    assert (config.optimizer.lr, config.method) == (rate, method)


@pytest.mark.parametrize(("epochs", "momentum"), [(1, 0.9), (6, 0.978), (33, 0.996), (1000, 0.996)])
def test_the_teacher_of_a_longer_run_is_slower_up_to_the_papers(epochs: int, momentum: float) -> None:
    assert settings(method="byol", epochs=epochs).chosen["method.objective.momentum"].value == momentum


def test_a_network_that_starts_from_weights_keeps_the_lower_rate(tmp_path) -> None:
    few = {"method": "simclr", "data": "digits", "batch_size": 512, "eval.tsne": 0, "progress": False}
    entry = sslkit.pretrain({**few, "epochs": 1, "out": str(tmp_path)})
    assert entry.card["config"]["optimizer"]["lr"] == 0.009
    assert entry.card["options"]["views"] == {"scale": [0.2, 1.0]}
    given = settings(**few, init=str(entry.folder)).config
    assert (given.optimizer.lr, given.optimizer.head_lr, given.unfreeze, given.tune) == (3e-5, 0.002, 0.1, "all")
    assert settings(**few, init=str(entry.folder), tune="lora").config.optimizer.lr == pytest.approx(3e-4)


def test_a_run_is_continued_with_what_it_chose() -> None:
    """Also an older one, which chose another rate, and left crops and momentum to the papers' values."""
    asked = Config.from_mapping({"method": "byol"})
    older = Settled(asked, {"optimizer.lr": Choice(0.002), "image_size": Choice(96, "small")})
    assert older.of(asked) == older and older.config.image_size == 96
    given = older.of(Config.from_mapping({"method": "byol", "optimizer": {"lr": 0.1}, "image_size": 64}))
    assert (given.config.optimizer.lr, given.config.image_size, given.chosen) == (0.1, 64, {})
    assert Settled.from_dict(older.to_dict()).to_dict() == older.to_dict()
    asked = Config.from_mapping({"method": "mae", "init": "efficientnet_lite0"})
    continued = Settled(asked, {"method.objective.position": Choice("learned")})
    assert continued.of(asked).config.method_options() == {"objective": {"position": "learned"}}


def test_diet_has_a_class_for_each_image_and_smooths_less_where_it_continues(small_run) -> None:
    made = settings(**{**small_run, "method": "diet"}).config
    data = open_data(made)
    objective = build.build_method(made, data).objective
    assert objective.classifier.weight.shape == (len(data.train), objective.dim) and objective.label_smoothing == 0.8
    with pytest.raises(UserError, match=r"images=3, but .* has "):
        build.build_method(settings(**{**small_run, "method": "diet", "method.objective.images": 3}).config, data)
    continued = {**small_run, "method": "diet", "init": "efficientnet_lite0"}
    smoothing = settings(**continued).chosen["method.objective.label_smoothing"]
    assert smoothing == Choice(0.3, "label_smoothing 0.3 to continue")
    given = settings(**{**continued, "method": {"name": "diet", "objective": {"label_smoothing": 0.5}}})
    assert "method.objective.label_smoothing" not in given.chosen
    assert made.optimizer.lr == 1e-3
    assert settings(method="diet", **{"optimizer.name": "sgd"}).config.optimizer.lr == 0.002
