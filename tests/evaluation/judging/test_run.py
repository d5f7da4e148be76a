"""Evaluation as a whole: every protocol that the folder lists, on real images, kept beside the weights."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from defective import write_mvtec
from detectors import images as clipart_boxes
from forks import exit_code
from motion_films import write_motions
from odd_disks import become_a_reader
from PIL import Image
from random_entries import made

import evaluation
import sslkit
from evaluation import protocols
from evaluation.judging import run
from evaluation.protocols import knn
from evaluation.protocols.base import Subject
from evaluation.protocols.linear import STRENGTHS
from evaluation.results import store
from evaluation.results.result import Result
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.runtime.context import Runtime

SMALL = {  # options that make a protocol short enough for a test
    "attentive": {"grid": {"iterations": 4}},
    "anomaly": {"shots": [1], "draws": 2, "heat_maps": 1},
    "few_shot": {"episodes": 20, "n_query": 4, "n_way": 3},
    "fine_tune": {"grid": "itm", "steps": 2},
    "semi_supervised": {"fraction": 4, "draws": 2, "epochs": 1},
    "lidar": {"q": 2, "n_images": 40},
    "view_retrieval": {"n_images": 40},
    "patch_quality": {"n_images": 20},
    "linear_aug": {"epochs": 1},
    "action": {"features": "once", "epochs": 1, "frames": 4, "clips": 1, "crops": 1},
    "detection": {"schedule": "smoke", "steps": 1, "batch_size": 2, "trials": 2},
    "segmentation": {"schedule": "smoke", "steps": 1, "batch_size": 2, "trials": 2},
}


@pytest.fixture(autouse=True)
def few_strengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.protocols.linear.STRENGTHS", STRENGTHS[::6])


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """Digits 0 to 5: 180 to learn from, 60 to test on."""
    arrays = {}
    for split, n in (("train", 30), ("test", 10)):
        images = open_images("digits", split=split)
        rows = np.concatenate([np.flatnonzero(images.labels == k)[:n] for k in range(6)])
        arrays |= {f"x_{split}": images.pixels[rows, 0], f"y_{split}": images.labels[rows]}
    path = tmp_path_factory.mktemp("data") / "six.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def model():
    return sslkit.load("random:narrow_resnet", image_size=8, in_chans=1)


@pytest.mark.parametrize("name", protocols.names())
def test_every_protocol_gives_results_that_json_keeps(name: str, data: str, model, tmp_path: Path) -> None:
    runtime = Runtime(cache=tmp_path / "cache", out=tmp_path, progress=False)
    if name in ("detection", "segmentation"):
        data = {split: replace(clipart_boxes(3, split), name="six") for split in ("train", "test")}
    if name in ("linear_seg", "knn_seg"):
        data = {split: replace(clipart_boxes(6, split), name="six") for split in ("train", "test")}
        model = sslkit.load("random:narrow_resnet", image_size=32, in_chans=1)
    if name in ("attentive", "patch_quality"):
        model = sslkit.load("random:narrow_resnet", image_size=32, in_chans=1)
    if name == "action":
        data, model = f"video:{write_motions(tmp_path / 'six')}", sslkit.load("random:narrow_slow", image_size=16)
    if name == "anomaly":
        model = sslkit.load("random:narrow_vit", image_size=32)
        data = str((write_mvtec(tmp_path) / "bottle").rename(tmp_path / "six"))
    protocol = protocols.find(name)
    options = protocol.Options(**SMALL.get(name, {}))
    results = protocol.run(protocol.open(Subject(model, data), options), options, runtime)
    assert results
    for result in results:
        assert result.protocol == name and result.recipe and result.metric and result.n > 0
        low, high = result.interval or (0, 1)  # of six images: no interval of mIoU
        assert low <= result.value <= high and result.kind and (result.interval or "it takes" in result.kind)
        assert result.model == model.name and result.data == "six"
        assert result.unit != "fraction" or 0 <= result.value <= 1
        assert all(isinstance(digest, str) and digest for digest in result.digests.values()) and result.digests
        assert Result.from_json(result.to_json()).to_json() == result.to_json()
        assert not result.leaky
        if result.outcomes is not None and result.unit == "fraction":
            assert result.paired_on and result.outcomes.mean() == pytest.approx(result.value)


@pytest.mark.parametrize("name", protocols.names())
def test_every_protocol_says_what_it_is_and_takes_options_by_name(name: str) -> None:
    run_it = protocols.find(name).run
    assert members.summary(run_it) and run_it.__doc__
    with pytest.raises(UserError, match=f"protocol {name} has no option 'nonsense'"):
        run.evaluate("random:narrow_resnet", "digits", [name], options={name: {"nonsense": 1}}, image_size=8)


def test_one_extraction_serves_all_protocols(data: str, model, tmp_path: Path) -> None:
    options = {"few_shot": SMALL["few_shot"]}
    seen = []
    # the cost of one image is counted in a pass of its own
    model.net.register_forward_hook(lambda _, images, *__: seen.append(1) if len(images[0]) > 1 else None)
    how = {"cache": tmp_path / "cache", "out": tmp_path / "out", "progress": False, "batch_size": 90}
    names = ["linear", "knn", "crowding", "few_shot"]
    results = run.evaluate(model, data, names, options=options, pictures=True, **how)
    drawn = {path.name for path in run.results_folder(model, tmp_path / "out").glob("*.png")}
    assert drawn == {"evaluation.png", "map-six.png", "confusion-six.png"}
    assert len(seen) == 3, "two batches of training images and one of test images"
    assert [result.protocol for result in results] == ["linear", "knn", "crowding", "few_shot", "few_shot"]
    kept = store.read(run.results_folder(model, tmp_path / "out"))
    assert [result.to_json() for result in kept] == [result.to_json() for result in results]
    assert (kept[0].outcomes == results[0].outcomes).all()
    again = run.evaluate(model, data, names, options=options, **how)
    assert len(seen) == 3 and [result.value for result in again] == [result.value for result in results]


def evaluate_as_a_reader(folder: Path) -> None:
    sealed = folder / "sealed"

    def evaluate(precision: str, out: Path) -> None:
        how = {"cache": sealed / "cache", "out": out, "precision": precision, "progress": False}
        run.evaluate(sealed / "entry", str(sealed / "six.npz"), ["knn"], **how)

    evaluate("float32", folder / "unused")
    become_a_reader(sealed)
    evaluate("float32", folder / "out")
    with pytest.raises(UserError) as told:
        evaluate("bfloat16", folder / "out")
    print(told.value)


@pytest.mark.nightly
def test_what_is_read_only_and_whole_is_used(data: str, tmp_path: Path) -> None:
    entry = made(tmp_path / "sealed", "entry", "fashion_mnist")
    shutil.copy(data, tmp_path / "sealed" / "six.npz")
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    said = tmp_path / "said"
    assert exit_code(said, evaluate_as_a_reader, tmp_path) == 0, said.read_text()
    assert said.read_text().splitlines()[-1] == (
        f"cannot write the features in {tmp_path / 'sealed' / 'cache'}: Permission denied; "
        "choose another folder: out= of a run, cache= of an evaluation"
    )
    (first,), (again,) = store.read(entry), store.read(tmp_path / "out" / "entry")
    assert first.value == again.value
    assert not (tmp_path / "unused").exists()


def test_the_episodes_are_kept_with_their_digest(data: str, model, tmp_path: Path) -> None:
    how = {"cache": tmp_path / "cache", "out": tmp_path / "out", "progress": False}
    options = {"few_shot": {**SMALL["few_shot"], "k_shot": 2}}
    [result] = run.evaluate(model, data, ["few_shot"], options=options, **how)
    table = evaluation.EpisodeTable.load(next((tmp_path / "out").rglob("episodes-*.npz")))
    assert table.digest == result.digests["episodes"] and table.k_shot == 2 and len(table) == 20


def test_nothing_asked_for_is_the_embedded_suite() -> None:
    pairs = run.list_pairs(None, None)
    assert ("fashion_mnist", "linear") in pairs and ("glyphs", "few_shot") in pairs and ("clipart", "knn") in pairs
    assert run.list_pairs(None, ["knn"]) == [("fashion_mnist", "knn"), ("clipart", "knn")]
    assert run.list_pairs(["digits", "pets"], ["knn"]) == [("digits", "knn"), ("pets", "knn")]
    assert ("fashion_mnist", "lidar") in run.list_pairs(None, ["lidar"])
    assert {name for _, name in run.list_pairs("pets", None)} == {"linear", "knn", "crowding"}


def test_a_mistake_costs_no_extraction(data: str, model, tmp_path: Path) -> None:
    how = {"cache": tmp_path / "cache", "out": tmp_path / "out"}
    for sources, names, options, message in (
        ([data, "nonsuch"], ["knn"], {}, "there is no data 'nonsuch'"),
        (data, ["knn", "lineer"], {}, "there is no protocol 'lineer': did you mean 'linear'"),
        (data, ["knn", "few_shot"], {}, "has 10 images and an episode needs 16"),
        (data, ["linear", "knn"], {"knn": {"k": 100_000}}, "k must be .* at most 10,000, got 100000"),
        (data, ["linear", "knn"], {"knn": {"k": 9_999}}, r"knn\.k=9999 neighbours, but only \d+ training images of .*"),
    ):
        with pytest.raises(UserError, match=message):
            run.evaluate(model, sources, names, options=options, **how)
    assert not (tmp_path / "cache").exists()


def test_random_features_are_told_apart_from_pixels(data: str, model) -> None:
    """Two models on the same images: the comparison is paired."""
    other = sslkit.load("random:narrow_resnet:1", image_size=8, in_chans=1)
    results = []
    for one in (model, other):
        results += knn.run(Subject(one, data), knn.Options(), Runtime(cache=None, progress=False))
    comparison = evaluation.compare(*results)
    assert comparison.difference == pytest.approx(results[0].value - results[1].value)
    assert comparison.n == 60 and comparison.verdict


def picture_folder(root: Path, parts: dict[str, int]) -> Path:
    """Real clip art of two classes as files, the same names in every split; one of the test files is no image."""

    images = open_images("clipart")
    rows = {name: iter(np.flatnonzero(images.labels == label)) for label, name in enumerate(images.classes[:2])}
    for split, n in parts.items():
        for name, own in rows.items():
            for i in range(n):
                path = root / split / name / f"{i:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(images[next(own)]["images"].permute(1, 2, 0).numpy()).save(path)
    (root / "test" / images.classes[0] / "00.png").write_bytes(b"no image")
    return root


def test_val_is_learned_from_and_what_is_left_out_is_in_the_result(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "pictures", {"train": 20, "val": 10, "test": 12})
    twin = next(folder.glob("train/*/05.png"))
    (folder / "test" / twin.parent.name / "05.png").write_bytes(twin.read_bytes())
    model = sslkit.load("random:narrow_resnet", image_size=32, in_chans=3)
    how = {"cache": tmp_path / "cache", "progress": False, "workers": 0}
    train = Subject(model, str(folder)).train(Runtime(**how))
    assert len(train) == 60 and len(set(train.ids.tolist())) == 60
    said: list[str] = []
    [result] = run.evaluate(model, str(folder), "knn", out=tmp_path / "out", say=said.append, **how)
    assert result.details["bank"] == 60 and result.n == 23
    assert result.details["unreadable"] == 1 and result.details["splits"] == ["train+val", "test"]
    assert any(line.endswith("are also training images") for line in said), said
    assert "1 unreadable" in evaluation.table([result]) and result.details["largest_class"] == pytest.approx(0.5)


def test_a_rerun_replaces_its_number_whatever_the_solver_says_of_its_way(tmp_path: Path) -> None:
    from dataclasses import replace

    features = [
        (open_images("digits", split=s).pixels.reshape(-1, 64), open_images("digits", split=s).labels)
        for s in ("train", "test")
    ]
    result = evaluation.linear_probe(*features, c=0.01)
    for gap in (1e-7, 2e-7):
        store.append(tmp_path, replace(result, details={**result.details, "gap": gap}))
    store.append(tmp_path, evaluation.linear_probe(*features, c=0.1))
    kept = store.read(tmp_path)
    assert [one.details["c"] for one in kept] == [0.01, 0.1] and kept[0].details["gap"] == 2e-7


def test_mistaken_requests_are_refused(tmp_path: Path, model) -> None:
    with pytest.raises(UserError, match="protocols=\\[\\] names nothing to do"):
        run.evaluate(model, "digits", [], out=tmp_path)
    with pytest.raises(UserError, match="data=\\[\\] names nothing to evaluate"):
        run.evaluate(model, [], ["lidar"], out=tmp_path)
    with pytest.raises(UserError, match="not one open split"):
        run.evaluate(model, evaluation.open_split("digits", "test"), ["knn"], out=tmp_path)


def test_options_of_an_unknown_protocol_are_refused() -> None:
    with pytest.raises(UserError, match="there is no protocol 'knnn': did you mean 'knn'"):
        run.make_tasks("digits", ["knn"], {"knnn": {"k": 5}})


def test_a_folder_named_as_a_published_set_is_a_folder(tmp_path: Path, data: str, model) -> None:
    path = tmp_path / "dtd"
    path.write_bytes(Path(data).read_bytes())
    assert Subject(model, path).entry is None and Subject(model, "dtd").entry is not None


def test_notes_of_the_data_are_with_every_protocol(tmp_path: Path, data: str, model) -> None:
    arrays = dict(np.load(data))
    arrays["y_train"][[0, 40, 80]] = -1
    np.savez(tmp_path / "some.npz", **arrays)
    how = {"options": {"fine_tune": SMALL["fine_tune"]}, "out": tmp_path, "cache": None, "progress": False}
    for protocol in ("knn", "fine_tune"):
        (found,) = run.evaluate(model, tmp_path / "some.npz", [protocol], **how)
        assert "3 images without a label left out" in found.details["notes"], protocol


def test_test_images_that_were_trained_on_are_said(tmp_path: Path, model) -> None:
    images = open_images("digits")
    pixels, labels = images.pixels[:60, 0], images.labels[:60]
    for name, first in (("apart", 40), ("shared", 37)):
        parts = {"x_train": pixels[:40], "y_train": labels[:40], "x_test": pixels[first:], "y_test": labels[first:]}
        np.savez(tmp_path / f"{name}.npz", **parts)
        said: list[str] = []
        run.evaluate(model, tmp_path / f"{name}.npz", "knn", out=tmp_path, cache=None, progress=False, say=said.append)
        notes = [line for line in said if line.startswith("note: 3 of 23 test images")]
        assert len(notes) == (name == "shared")
