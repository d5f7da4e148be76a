"""A set of runs: what is done of it, and which faults are known before any is trained."""

import dataclasses
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from photographs import write_jpegs
from PIL import Image

from sslkit.cli import sweep

import sslkit
from sslkit.errors import UserError
from sslkit.runtime.jobs import Job, Machine, Outcome
from sslkit.training.config import Config


def configs(small_run: dict, methods: tuple[str, ...] = ("simclr", "byol+koleo"), **changes: object) -> list[Config]:
    return [Config.from_mapping({**small_run, "method": method, **changes}) for method in methods]


def states(found: list[sweep.Member]) -> dict[str, str]:
    return {member.folder.name: member.state for member in found}


def test_the_names_are_those_that_training_gives(small_run, tmp_path) -> None:
    config = Config.from_mapping({**small_run, "epochs": 1, "eval": {"k": 3, "tsne": 0}})
    (member,) = sweep.examine([config])
    assert (member.state, member.decodes) == ("new", False) and not (tmp_path / "zoo").exists()
    assert sslkit.pretrain(config).folder == member.folder
    (again,) = sweep.examine([config])
    assert again == dataclasses.replace(member, state="done")


def test_done_is_the_same_settings_on_the_same_images(small_run, small_npz, tmp_path) -> None:
    data = tmp_path / "own.npz"
    arrays = dict(np.load(small_npz))
    np.savez(data, **arrays)
    run = {**small_run, "epochs": 1, "eval": {"k": 3, "tsne": 0}, "data": {**small_run["data"], "source": str(data)}}
    folder = sslkit.pretrain(run).folder

    def state(**changes: object) -> tuple[str, str]:
        (member,) = sweep.examine([Config.from_mapping({**run, **changes})])
        return member.folder.name.removeprefix(folder.name), member.state

    assert state() == ("", "done")
    assert state(trainer={**run["trainer"], "log_every": 5}, eval={"k": 5, "tsne": 0}) == ("", "done")
    assert state(optimizer={"lr": 1e-4}) == ("-2", "new")
    # A later run with other settings does not hide it.
    sslkit.pretrain({**run, "optimizer": {"lr": 1e-4}})
    assert state() == ("", "done") and state(optimizer={"lr": 1e-4}) == ("-2", "done")
    np.savez(data, **{**arrays, "x_train": 255 - arrays["x_train"]})
    assert state() == ("-3", "new")


def test_done_on_a_copy_of_the_images_is_done(small_run, tmp_path) -> None:
    for name in "ab":
        write_jpegs(tmp_path / "photos" / name, 8, (16, 16))
    data = {"data": {"source": str(tmp_path / "photos")}, "image_size": 16, "batch_size": 8}
    run = {**small_run, "method": "simclr", "epochs": 1, **data, "eval": {"k": 3, "tsne": 0}}
    sslkit.pretrain(run)
    shutil.copytree(tmp_path / "photos", tmp_path / "scratch" / "photos", copy_function=shutil.copyfile)
    copied = Config.from_mapping({**run, "data": {"source": str(tmp_path / "scratch" / "photos")}})
    assert sweep.examine([copied])[0].state == "done"
    Image.new("RGB", (16, 16)).save(tmp_path / "scratch" / "photos" / "a" / "00.jpg")
    assert sweep.examine([copied])[0].state == "new"


def test_what_was_stopped_goes_on_and_what_cannot_starts_anew(small_run, monkeypatch) -> None:
    from sslkit.training import pretrain

    run = {**small_run, "epochs": 1}
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: None)
        sslkit.pretrain(run)
    (member,) = sweep.examine([Config.from_mapping(run)])
    assert member.state == "resume" and (member.folder / sweep.LAST).is_file()
    assert sweep.has_settled(member, began=time.time() - 3600) and not sweep.has_settled(member, began=time.time() + 1)
    (other,) = sweep.examine([Config.from_mapping({**run, "optimizer": {"lr": 1e-4}})])
    assert other.state == "new" and other.folder.name == member.folder.name + "-2"
    (member.folder / "config.yaml").write_text("colour: red\n")  # of another version
    (unread,) = sweep.examine([Config.from_mapping(run)])
    assert unread.state == "new" and unread.folder == other.folder


def test_a_stopped_run_on_other_images_is_left_alone(small_run, small_npz, tmp_path, monkeypatch) -> None:
    from sslkit.training import pretrain

    data, arrays = tmp_path / "own.npz", dict(np.load(small_npz))
    np.savez(data, **arrays)
    run = {**small_run, "epochs": 1, "data": {**small_run["data"], "source": str(data)}}
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: None)
        sslkit.pretrain(run)
    assert [member.state for member in sweep.examine([Config.from_mapping(run)])] == ["resume"]
    np.savez(data, **{**arrays, "x_train": 255 - arrays["x_train"]})
    assert [member.state for member in sweep.examine([Config.from_mapping(run)])] == ["new"]


def test_an_objective_that_learns_from_labels_is_found_again(small_run, small_npz, tmp_path) -> None:
    """Without a test split it withholds labels, which changes what its card says of the data, and of nobody else's."""
    arrays = np.load(small_npz)
    np.savez(tmp_path / "train.npz", x=arrays["x_train"], y=arrays["y_train"])
    run = {**small_run, "epochs": 1, "eval": {"k": 3, "tsne": 0}}
    run |= {"data": str(tmp_path / "train.npz"), "batch_size": 32}
    wanted = configs(run, ("supervised", "simclr"))
    for config in wanted:
        sslkit.pretrain(config)
    assert [member.state for member in sweep.examine(wanted)] == ["done", "done"]
    assert [member.state for member in sweep.examine(wanted[::-1])] == ["done", "done"]


def test_each_network_is_built_once(small_run, monkeypatch) -> None:
    from sslkit.training import build as building

    built, build = [], building.build_method
    monkeypatch.setattr(
        building, "build_method", lambda config, data: built.append(config.method) or build(config, data)
    )
    found = sweep.examine([c for seed in range(3) for c in configs(small_run, seed=seed)])
    assert len(states(found)) == 6 and built == ["simclr", "byol+koleo"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": ("simclr", "simclr")}, "2 members would have the same name"),
        ({"methods": ("simclr", "simclrr")}, "did you mean 'simclr'"),
        ({"methods": ("simclr", "byol+dsaa")}, "did you mean 'dsa'"),
        ({"data": "no/such/folder"}, "no/such/folder"),
        ({"backbone": "resnet81"}, "resnet81"),
        ({"methods": ({"name": "simclr", "objective": {"temprature": 1.0}},)}, "did you mean 'temperature'"),
    ],
)
def test_faults_are_told_before_anything_is_trained(changes: dict, said: str, small_run, tmp_path) -> None:
    with pytest.raises(UserError, match=said):
        sweep.examine(configs(small_run, **changes))
    assert not (tmp_path / "zoo").exists()


def test_labels_that_the_data_lacks(small_run, small_npz, tmp_path) -> None:
    np.savez(tmp_path / "plain.npz", x=np.load(small_npz)["x_train"])
    run = {**small_run, "batch_size": 32, "data": {"source": str(tmp_path / "plain.npz")}}
    with pytest.raises(UserError, match=r"supervised learns from labels"):
        sweep.examine(configs(run, ("simclr", "supervised")))


def test_the_machine_as_a_run_sees_it(monkeypatch) -> None:
    def machine(batch_size: int = 128, device: str = "auto", **trainer: object) -> Machine:
        mapping = {"batch_size": batch_size, "device": device, "data": {"source": "digits"}, "trainer": trainer}
        return sweep.machine_for([Config.from_mapping(mapping)], None)

    assert machine().gpus == () and machine(devices=2).each == 2
    for trainer, said in (
        ({"num_nodes": 2}, "num_nodes=2"),
        ({"devices": [0, 1]}, "give a number"),
        ({"device": "cuda"}, "trainer: "),
        ({"device": "cuda:1"}, "device=cuda:1: the GPUs of a member are chosen here"),
        ({"batch_size": 15, "devices": 2}, "cannot be shared evenly by 2"),
    ):
        with pytest.raises(UserError, match=said):
            machine(**trainer)
    # What Fabric would say of GPUs that are not here is not asked.
    monkeypatch.setattr("sslkit.cli.sweep.check_trainer", lambda config: None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine().gpus == ("0", "1", "2") and machine().each == 1
    assert machine(devices=-1).each == 3 and machine(device="cpu").gpus == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,5,7")
    assert machine().gpus == ("GPU-a", "5", "7")


def member_with(folder: Path, after: dict | None) -> sweep.Member:
    folder.mkdir(parents=True)
    if after is not None:
        (folder / "backbone.safetensors").touch()
        (folder / "card.json").write_text(json.dumps({"method": "byol", "after": after}))
    return sweep.Member(Config(), folder, "new", False)


def ended(member: sweep.Member, code: int, said: str, beside: int = 0) -> Outcome:
    log = sweep.log_of(member)
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"\n$ python train.py\n{said}\n")
    return Outcome(Job(member.folder.name, ["python"], log), code, 60.0, 1, beside)


def test_a_line_for_each_member_and_the_end_of_the_log_of_those_that_failed(tmp_path, capsys) -> None:
    good, bad, silent = (
        member_with(tmp_path / "good", {"knn": 0.501, "probe": 0.752}),
        member_with(tmp_path / "bad", None),
        member_with(tmp_path / "silent", {}),
    )
    done = dataclasses.replace(good, state="done")
    outcomes = [ended(good, 0, "fine", 1), ended(bad, 1, "Traceback\nValueError: no prior"), ended(silent, 0, "fine")]
    members = [good, bad, silent]
    assert sweep.report(iter(outcomes), [*members, dataclasses.replace(done, folder=tmp_path / "before")]) == outcomes
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "[1/3] good",
        "      quick kNN 50.1 %  quick probe 75.2 %  1 min 00 s, about 1 min 00 s left",
        "[2/3] bad",
        "      failed (exit code 1): ValueError: no prior  1 min 00 s, about 1 min 00 s",
        "        left",
        "[3/3] silent",
        "      not evaluated: no labels  1 min 00 s",
    ]
    told = sweep.failures(members, outcomes)
    assert told == [
        f"failed    bad: exit code 1; the end of {tmp_path}/logs/bad.log:",
        "    Traceback",
        "    ValueError: no prior",
    ]
    assert sweep.failures([good, silent], outcomes) == []
    killed = ended(bad, -9, "epoch 1")
    assert "signal 9" in sweep.failures([bad], [killed])[0]
    assert "no entry" in sweep.failures([bad], [])[0]


def test_durations() -> None:
    assert [sweep.duration(s) for s in (0.4, 59.4, 59.6, 185, 7800)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "3 min 05 s",
        "2 h 10 min",
    ]


def test_no_gpu_is_visible(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert sweep.visible_gpus() == []


def test_a_member_whose_initial_weights_have_changed_is_not_done(small_run, tmp_path) -> None:
    weights, net = tmp_path / "weights.pth", timm.create_model("resnet10t", num_classes=0)
    torch.save(net.state_dict(), weights)
    data = {**small_run["data"], "channels": 3}
    config = Config.from_mapping(
        {**small_run, "method": "simclr", "epochs": 1, "data": data, "init": f"timm:resnet10t:{weights}"}
    )
    (member,) = sweep.examine([config])
    assert member.state == "new" and member.folder == sslkit.pretrain(config).folder
    assert sweep.examine([config])[0].state == "done"
    torch.save({name: value + 1 for name, value in net.state_dict().items()}, weights)
    assert sweep.examine([config])[0].state == "new"
