"""A stopped run whose files are damaged: it goes on from what is whole, or one line says what is wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sslkit.cli import sweep

import sslkit
from sslkit.errors import UserError
from sslkit.files.writing import MACHINE
from sslkit.numerics.figures import NoMap, plot_embedding
from sslkit.runtime.checkpoint import LAST, PREVIOUS
from sslkit.training import finish, pretrain
from sslkit.training.config import Config
from sslkit.zoo import CARD, WEIGHTS, ZooEntry


class Killed(BaseException):
    """The process ends here."""


def die(*_: object, **__: object) -> None:
    raise Killed


@pytest.fixture(scope="module")
def stopped(small_npz, tmp_path_factory) -> tuple[dict, Path]:
    """A config, and a folder `zoo/x` of a run that was killed after its last epoch."""
    out = tmp_path_factory.mktemp("stopped") / "zoo"
    config = {
        "method": "byol+koleo",
        "batch_size": 32,
        "data": {"source": str(small_npz)},
        "epochs": 2,
        "eval": {"k": 3, "tsne": 20},
        "progress": False,
        "precision": "float32",
        "trainer": {"log_every": 1},
        "name": "x",
    }
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: None)
        sslkit.pretrain({**config, "out": str(out)})
    return config, out


@pytest.fixture
def run(stopped, tmp_path) -> tuple[dict, Path]:
    """The config that resumes a copy of it, and the copy's folder."""
    config, out = stopped
    shutil.copytree(out, tmp_path / "zoo")
    return {**config, "out": str(tmp_path / "zoo"), "resume": True}, tmp_path / "zoo" / "x"


STEPS = [
    (finish, "save"),
    (sslkit.zoo.entry, "write_whole"),
    (finish, "evaluate"),
    (finish, "plot_terms"),
    (finish, "plot_embedding"),
    (finish, "update"),
    (finish.shutil, "rmtree"),  # before the checkpoint that is not needed any more is removed
]


def test_killed_at_any_step_of_the_end(run, monkeypatch) -> None:
    config, folder = run
    partial = folder / f".loss.png.{MACHINE}-999999999-a.part"
    for module, step in STEPS:
        partial.touch()
        with monkeypatch.context() as patch:
            patch.setattr(module, step, die)
            with pytest.raises(Killed):
                sslkit.pretrain(config)
        assert (folder / CARD).exists() == (folder / WEIGHTS).exists() == (step not in ("save", "write_whole")), step
    assert ZooEntry.load(folder).card["missing"] == []
    partial.touch()
    entry = sslkit.pretrain(config)
    assert entry.backbone() is not None and not list(folder.rglob("*.part"))
    assert {path.name for path in folder.glob("*.png")} == {"views.png", "loss.png", "embedding.png"}
    assert (folder / LAST).is_file() and not (folder / PREVIOUS).exists()


def test_metrics_cut_short_are_written_again(run) -> None:
    config, folder = run
    whole = (folder / "metrics.csv").read_text()
    (folder / "metrics.csv").write_bytes(whole.encode()[: len(whole) // 2])
    sslkit.pretrain({**config, "eval": {"k": 3, "tsne": 0}})
    assert (folder / "metrics.csv").read_text() == whole


def fail(*_: object, **__: object) -> None:
    raise OSError("no such font\nand more")


PARTS = {  # what is made at the end: its name, and what makes it
    "metrics.csv": "History.write",
    "the evaluation": "evaluate",
    "the views": "measure_views",
    "the evaluators": "Evaluations.of_card",
    "other images": "_measure_elsewhere",
    "the diagnostics": "_diagnose",
    "the source head": "_keep_head",
    "loss.png": "plot_terms",
    "embedding.png": "_picture",
    "card.json": "update",
    "the summary": "summary",
}


OFTEN = ("the evaluation",)


@pytest.mark.parametrize(
    "part", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.nightly) for one in PARTS]
)
def test_a_part_of_the_end_that_fails_costs_no_other(part: str, run, monkeypatch) -> None:
    config, folder = run
    with monkeypatch.context() as broken:
        broken.setattr(f"sslkit.training.finish.{PARTS[part]}", fail)
        with pytest.warns(UserWarning, match=rf"^{part} could not be made, all else is kept: OSError: no such font; "):
            entry = sslkit.pretrain(config)
    assert entry.backbone() is not None and ZooEntry.load(folder).card["epochs"] == 2
    listed = {part} & {*PARTS} - {"card.json", "the summary"}
    assert listed <= set(ZooEntry.load(folder).card["missing"]) and (folder / "views.png").is_file()
    if part != "the summary":
        whole = sslkit.pretrain(config)  # again, with resume=true
        assert whole.card["missing"] == [] and {"after", "diagnostics", "features", "unreadable"} <= set(whole.card)
        for name, tensor in entry.state_dict().items():
            assert torch.equal(tensor, whole.state_dict()[name])


def test_the_parts_are_all_that_is_made_at_the_end(run) -> None:
    """A run that is killed right after its weights lists the parts that it had before it."""
    config, _ = run
    listed = []
    whole = finish.save

    def saved(folder: Path, state: dict, card: dict) -> ZooEntry:
        listed.extend(card["missing"])
        return whole(folder, state, card)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "save", saved)
        sslkit.pretrain(config)
    assert {*listed, "card.json", "the summary"} == set(PARTS)


def test_a_run_without_git_has_its_card(run, monkeypatch) -> None:
    config, folder = run
    monkeypatch.setenv("PATH", str(folder / "empty"))
    assert sslkit.pretrain(config).card["commit"] is None


def test_a_finished_run_sweeps_what_a_killed_writer_left(run) -> None:
    config, folder = run
    sslkit.pretrain({**config, "eval": {"k": 3, "tsne": 0}})
    for name in (f".loss.png.{MACHINE}-999999999-a.part", ".odd.part"):
        (folder / name).touch()
    shutil.copy(folder / LAST, folder / PREVIOUS)
    sslkit.pretrain(config)
    assert {path.name for path in folder.glob("*.part")} == {".odd.part"} and not (folder / PREVIOUS).exists()
    (folder / CARD).write_text("{")
    with pytest.raises(UserError, match=r"card\.json.*resume=true writes it again"):
        sslkit.pretrain(config)
    (folder / CARD).unlink()
    assert sslkit.pretrain({**config, "eval": {"k": 3, "tsne": 0}}).backbone() is not None


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [flipped, lambda path: path.write_bytes(b""), Path.unlink])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    harm: Callable[[Path], object], run, monkeypatch, capsys
) -> None:
    config, folder = run
    unbroken = torch.load(folder / LAST, weights_only=True)
    before = (folder / PREVIOUS).read_bytes()
    harm(folder / LAST)
    monkeypatch.setattr(pretrain, "finish", die)
    with monkeypatch.context() as patch:  # killed while it writes: nothing whole is lost
        patch.setattr("sslkit.files.checksums.seal", die)
        with pytest.raises(Killed):
            sslkit.pretrain(config)
    assert (folder / PREVIOUS).read_bytes() == before
    with pytest.raises(Killed):
        sslkit.pretrain(config)
    (line,) = {line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")}
    assert str(folder / LAST) in line and str(folder / PREVIOUS) in line
    assert (folder / PREVIOUS).read_bytes() == before
    resumed = torch.load(folder / LAST, weights_only=True)
    for state in (unbroken, resumed):  # measured times differ
        for row in state["hooks"]["History"]["rows"]:
            row.pop("images_per_second", None), row.pop("waiting", None)
        state["hooks"]["History"]["seconds"] = 0
    for name in ("module", "optimizer", "schedule", "hooks"):
        assert equal(unbroken[name], resumed[name]), name


def equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def test_no_whole_checkpoint(run) -> None:
    config, folder = run
    flipped(folder / LAST)
    flipped(folder / PREVIOUS)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"last.ckpt.*checksum.*previous.ckpt.*checksum.*without resume=true") as said:
        sslkit.pretrain(config)
    assert "\n" not in str(said.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_of_another_network(run) -> None:
    config, folder = run
    state = torch.load(folder / LAST, weights_only=True)
    name = next(name for name, value in state["module"].items() if value.dim() == 4)
    state["module"][name] = state["module"][name][:1]
    torch.save(state, folder / LAST)
    with pytest.raises(UserError, match="another network") as said:
        sslkit.pretrain(config)
    assert "\n" not in str(said.value)


CONFIGS: dict[str, bytes] = {
    "empty": b"",
    "truncated": b"method: byol+koleo\nbackbone: {a",
    "junk": bytes(range(256)),
    "tag": b"!!python/object/apply:os.system ['touch stolen']",
    "list": b"[1, 2]",
    "text": b"hello",
    "number": b"3",
    "no parts": b"epochs: 1",
    "other settings": b"asked: {colour: red}\nchosen: {}",
    "other type": b"asked: {epochs: many}\nchosen: {}",
    "data": b"asked: {data: 3}\nchosen: {}",
    "no mapping": b"asked: 3\nchosen: {}",
    "no choices": b"asked: {}\nchosen: 3",
    "no choice": b"asked: {}\nchosen: {optimizer.lr: 3}",
    "other choice": b"asked: {}\nchosen: {optimizer.rate: {value: 1}}",
    "half a choice": b"asked: {}\nchosen: {method.views: {value: 1}}",
    "chosen type": b"asked: {}\nchosen: {optimizer.lr: {value: many}}",
    "no rate": b"asked: {}\nchosen: {}",
    "no date": b"asked: {epochs: 2001-99-99}\nchosen: {}",
    "no number": b"asked: {epochs: !!int x}\nchosen: {}",
    "utf-16": "method: byol\n".encode("utf-16"),
    "latin-1": b"name: \xe9t\xe9",
    "deep": b"[" * 1500,
    "nul": b"name: a\0b",
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_damaged_settings(kind: str, run) -> None:
    config, folder = run
    (folder / "config.yaml").write_bytes(CONFIGS[kind])
    with pytest.raises(UserError) as said:
        sslkit.pretrain(config)
    assert str(folder / "config.yaml") in str(said.value) and "without resume=true" in str(said.value)
    assert "\n" not in str(said.value)


def test_settings_that_are_a_folder(run) -> None:
    config, folder = run
    (folder / "config.yaml").unlink()
    (folder / "config.yaml").mkdir()
    with pytest.raises(UserError, match=r"cannot read .*config.yaml: Is a directory"):
        sslkit.pretrain(config)


def test_a_damaged_member_of_a_zoo_is_named_and_trained_anew(run) -> None:
    config, folder = run
    ones = [Config.from_mapping({**config, "resume": False, "name": name}) for name in ("x", "y", "z")]
    for name in "yz":
        shutil.copytree(folder, folder.with_name(name))
    assert [one.state for one in sweep.examine(ones)] == ["resume"] * 3
    flipped(folder / LAST)  # the one before it is whole
    flipped(folder.with_name("y") / LAST)
    (folder.with_name("y") / PREVIOUS).write_bytes(b"")
    (folder.with_name("z") / "config.yaml").write_bytes(b"\xff")
    found = sweep.examine(ones)
    assert [(one.folder.name, one.state) for one in found] == [("x", "resume"), ("y-2", "new"), ("z-2", "new")]
    shown = sweep.overview(found)
    assert f"damaged run: cannot resume: {folder.with_name('y')}" in shown and "z/config.yaml" in shown


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_collapsed_network_has_no_map_and_no_crash(value: float, tmp_path) -> None:
    """scikit-learn's t-SNE ends such a process with a segmentation fault."""
    x = torch.full((40, 8), value)
    with pytest.raises(NoMap, match="images are equal"):
        plot_embedding(x, torch.zeros(40), None, tmp_path / "embedding.png", seed=0, title="")
    assert not list(tmp_path.iterdir())
