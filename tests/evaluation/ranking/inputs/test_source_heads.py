"""Source heads of entries: fitted once to real data, the same bits each time, and every fault one reason."""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import ended, started
from PIL import Image
from random_entries import CLOTHES, made
from torch import nn

import evaluation
import sslkit
from evaluation.datasets import Reading
from evaluation.learners.fitted_head import HEAD_STRENGTHS
from evaluation.ranking.inputs import source_heads
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.inputs.source_heads import CLUSTER_COUNT, source_head
from evaluation.ranking.summary import rank_tasks
from sslkit import backbones, zoo
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime
from sslkit.zoo.heads import Head


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Real images with labels, others with labels, without, of one class, and six of them; the working folder."""
    x, y = CLOTHES.pixels[:300, 0], CLOTHES.labels[:300]
    np.savez(tmp_path / "labelled.npz", x_train=x, y_train=y)
    np.savez(tmp_path / "task.npz", x_train=CLOTHES.pixels[300:600, 0], y_train=CLOTHES.labels[300:600])
    np.savez(tmp_path / "bare.npz", x_train=x)
    np.savez(tmp_path / "ones.npz", x_train=x[y == 1], y_train=y[y == 1])
    np.savez(tmp_path / "six.npz", x_train=x[:6])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(folder: Path, source: str | None = None, **more: object) -> source_heads.SourceHead:
    clusters = more.pop("clusters", CLUSTER_COUNT)
    how = {"cache": "cache", "progress": False, "workers": 0, **more}
    reading, runtime = (
        part(**{name: value for name, value in how.items() if name in vars(part())}) for part in (Reading, Runtime)
    )
    return source_head(sslkit.load(folder), source, clusters, reading=reading, runtime=runtime)


def weights(head: source_heads.SourceHead) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in head.layers.parameters())


def test_the_head_that_a_training_kept_is_taken(place: Path) -> None:
    own = Head.from_layers("prototypes", nn.Sequential(nn.Linear(128, 7)), {"data": "labelled.npz", "made": "kept"})
    entry = made(place, "swav", "gone.npz", head=own)
    for source in (None, "prototypes"):
        head = found(entry, source)
        assert (head.kind, head.classes, head.made) == ("prototypes", 7, "kept")
    assert torch.equal(head.layers[0].weight, own.state["0.weight"])
    assert os.listdir(entry / "heads") == ["prototypes.safetensors"]


def test_prototypes_that_are_lost_are_no_silent_labels(place: Path) -> None:
    own = Head.from_layers("prototypes", nn.Sequential(nn.Linear(128, 7)), {"data": "labelled.npz", "made": "kept"})
    entry = made(place, "swav", "labelled.npz", head=own)
    (entry / "heads" / "prototypes.safetensors").unlink()
    for source in (None, "prototypes"):
        with pytest.raises(UserError, match=r"prototypes\.safetensors is not a whole safetensors file"):
            found(entry, source)
    assert found(entry, "labels").kind == "labels"


def test_labels_are_fitted_once_and_kept_with_their_recipe(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, said = made(place, "byol", "labelled.npz"), []
    head = found(entry, say=said.append)
    assert (head.kind, head.classes, head.data) == ("labels", 10, "labelled.npz")
    assert said == ["source head of byol: labels of 300 images of labelled, fitted once"]
    recipe = zoo.ZooEntry.load(entry).card["source_heads"]["labels"]
    assert recipe["classes"] == 10 and recipe["images"] == 300 and recipe["strength"] in HEAD_STRENGTHS
    monkeypatch.setattr(source_heads, "_fit", None)  # not called again
    assert weights(found(entry)) == weights(found(entry, "labels")) == weights(head)


def test_data_without_labels_give_clusters_of_the_features(place: Path) -> None:
    entry = made(place, "byol", "bare.npz")
    head = found(entry, clusters=12)
    assert (head.kind, head.classes) == ("clusters", 12)
    x = evaluation.extract(entry, "labelled.npz", "train", cache=None, progress=False, workers=0).x
    p = head.layers(torch.from_numpy(np.array(x))).softmax(1)
    assert p.argmax(1).unique().numel() > 6 and 0.4 < p.max(1).values.mean() < 1
    recipe = zoo.ZooEntry.load(entry).card["source_heads"]["clusters-12"]
    assert recipe["labelled"] is False and "seed 0" in recipe["by"]
    (place / "bare.npz").unlink()
    assert weights(found(entry, clusters=12)) == weights(head)  # the images are not needed again
    with pytest.raises(UserError, match=r"bare\.npz cannot be opened"):
        found(entry, clusters=13)


def test_clusters_may_be_asked_for_where_there_are_labels(place: Path) -> None:
    entry = made(place, "byol", "labelled.npz")
    assert found(entry, "clusters", clusters=9).classes == 9
    assert found(entry, None, clusters=9).kind == "labels"
    assert sorted(zoo.ZooEntry.load(entry).card["source_heads"]) == ["clusters-9", "labels"]


@pytest.mark.parametrize("source", ["labels", "clusters"])
def test_two_fits_are_bitwise_equal(place: Path, source: str) -> None:
    first, second = (found(made(place, name, "labelled.npz"), source, clusters=20) for name in ("a", "b"))
    assert weights(first) == weights(second)
    other = found(made(place, "c", "labelled.npz", seed=1), source, clusters=20)
    assert weights(other) != weights(first)


def test_two_processes_do_not_fit_one_twice(place: Path) -> None:
    entry = made(place, "byol", "labelled.npz")
    logs = [place / f"{number}.log" for number in range(2)]
    both = [started(log, _in_a_process, entry, place) for log in logs]
    assert [ended(one) for one in both] == [0, 0], [log.read_text() for log in logs]
    texts = [log.read_text() for log in logs]
    assert sum("fitted once" in text for text in texts) == 1, texts
    assert len({text.splitlines()[-1] for text in texts}) == 1, texts


def _in_a_process(entry: Path, folder: Path) -> None:
    os.chdir(folder)
    head = found(entry, say=print)
    print("sum", sum(float(value.double().sum()) for value in head.layers.parameters()))


def test_values_of_a_ranking_are_a_float64_loop(place: Path) -> None:
    entry = made(place, "byol", "labelled.npz")
    how = {"cache": "cache", "progress": False, "workers": 0}
    ranking = evaluation.rank([str(entry)], "task.npz", ["leep", "nce"], bootstrap=0, max_images=60, **how)
    split = draw_images(evaluation.open_split("task.npz", "train"), 60, 0)
    features = evaluation.extract(entry, split, "train", **how)
    head = zoo.ZooEntry.load(entry).head("labels")[0]
    weight, bias = (value.double().numpy() for value in (head.weight, head.bias))
    p = []
    for row in np.asarray(features.x, dtype=np.float64):
        logits = [float(w @ row + b) for w, b in zip(weight, bias, strict=True)]
        top = max(logits)
        mass = sum(math.exp(one - top) for one in logits)
        p.append([math.exp(one - top) / mass for one in logits])
    leep = nce = 0.0
    decided = [max(range(10), key=one.__getitem__) for one in p]
    for i, label in enumerate(features.y):
        given = sum(
            p[i][z] * sum(p[j][z] for j in range(60) if features.y[j] == label) / sum(p[j][z] for j in range(60))
            for z in range(10)
        )
        leep += math.log(given) / 60
        alike = [j for j in range(60) if decided[j] == decided[i]]
        nce += math.log(sum(features.y[j] == label for j in alike) / len(alike)) / 60
    np.testing.assert_allclose(ranking.scores[0], [leep, nce], rtol=2e-6)


def test_a_head_that_was_fitted_to_the_labels_of_the_task_gives_no_score(place: Path) -> None:
    shutil.copy("labelled.npz", "copy.npz")
    data = evaluation.open_split("labelled.npz", "train").images
    for name in ("a", "b"):
        entry = zoo.ZooEntry.load(made(place / "zoo", name, "labelled.npz"))
        zoo.update(entry, data={"source": "labelled.npz", "images": 300, "content": data.content_digest})
    how = {"cache": "cache", "progress": False, "workers": 0, "bootstrap": 0, "max_images": 60}
    whole = evaluation.open_split("labelled.npz", "train")
    tasks = ("labelled.npz", "copy.npz", whole, whole.take(np.arange(0, 200, 2)))
    rankings = [evaluation.rank("zoo", task, ["leep", "knn"], **how) for task in tasks]
    for ranking in [*rankings, *rank_tasks("zoo", tasks[:2], ["leep", "knn"], out="out", pictures=False, **how)]:
        assert np.isnan(ranking.scores[:, 0]).all() and np.isfinite(ranking.scores[:, 1]).all()
        assert any("fitted to the labels of these very images" in note for note in ranking.notes), ranking.notes
    by_clusters = evaluation.rank("zoo", "labelled.npz", ["leep"], source="clusters", clusters=8, **how)
    assert np.isfinite(by_clusters.scores).all()


def test_what_cannot_be_had_has_a_reason_and_a_remedy(place: Path) -> None:
    def reason(data: str, source: str | None = None, **more: object) -> str:
        with pytest.raises(UserError) as error:
            found(made(place, "one", data), source, **more)
        assert "\n" not in str(error.value)
        return str(error.value)

    gone = reason("gone/photos")
    assert "gone/photos cannot be opened" in gone and gone.endswith("put the images back, or give source=none")
    assert "no prototypes: source=none" in reason("labelled.npz", "prototypes")
    assert "no two classes of one label an image: source=clusters" in reason("ones.npz", "labels")
    assert "six has 6 images, fewer than 100 clusters: clusters=K" in reason("six.npz")
    assert "none can be held out" in reason("six.npz", clusters=6)
    assert "source=none" in reason("labelled.npz", "none")
    with pytest.raises(UserError, match="no source classifier"):
        source_head(sslkit.load("random:narrow_resnet", image_size=28, in_chans=1), source=None, clusters=CLUSTER_COUNT)


def test_a_head_whose_file_is_gone_or_that_does_not_fit(place: Path) -> None:
    entry = made(place, "byol", "labelled.npz")
    first = found(entry)
    (entry / "heads" / "labels.safetensors").unlink()  # as the message of a stale one says
    assert weights(found(entry)) == weights(first)
    recipe = {"data": "labelled.npz", "images": 300}
    zoo.ZooEntry.load(entry).keep_head(Head.from_layers("labels", nn.Sequential(nn.Linear(64, 3)), recipe))
    with pytest.raises(UserError, match=r"labels\.safetensors takes 64 features, the model has 128"):
        found(entry)
    zoo.ZooEntry.load(entry).keep_head(Head.from_layers("clusters-9", nn.Sequential(nn.Linear(128, 9)), recipe))
    (entry / "heads" / "labels.safetensors").unlink()
    (place / "labelled.npz").unlink()
    with pytest.raises(UserError, match="give source=clusters clusters=9 or source=none"):
        found(entry)
    assert found(entry, "clusters", clusters=9).classes == 9


def test_images_that_cannot_be_read_are_not_counted(place: Path) -> None:
    (place / "photos").mkdir()
    for row in range(12):
        path = place / "photos" / f"{row}.png"
        Image.fromarray(CLOTHES.pixels[row, 0]).save(path)
        if row % 3:
            path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(UserError, match="photos has 4 images, fewer than 8 clusters"):
        found(made(place, "byol", "photos", images=12), clusters=8)


def test_a_head_is_fitted_in_float32_whatever_the_ranking_is(place: Path) -> None:
    exact, half = (
        found(made(place, name, "labelled.npz"), precision=precision)
        for name, precision in (("a", "float32"), ("b", "bfloat16"))
    )
    assert weights(exact) == weights(half)


def test_a_replaced_backbone_and_a_model_without_data_do_not_stop_the_others(place: Path) -> None:
    named = {"sound": "labelled.npz", "stale": "labelled.npz", "gone": "gone.npz"}
    sound, stale, _ = (made(place / "zoo", name, data) for name, data in named.items())
    found(stale)
    card = json.loads((stale / "card.json").read_text())
    body = backbones.build("narrow_resnet", image_size=28, in_chans=1)
    zoo.save(stale, body.export(), card)
    how = {"cache": "cache", "progress": False, "workers": 0, "bootstrap": 0, "max_images": 60}
    ranking = evaluation.rank("zoo", "task.npz", ["leep", "knn"], **how)
    scores = dict(zip(ranking.models, ranking.scores, strict=True))
    assert np.isfinite(scores["sound"]).all() and not ranking.left_out
    assert all(np.isnan(scores[name][0]) and np.isfinite(scores[name][1]) for name in ("stale", "gone"))
    notes = "\n".join(ranking.notes)
    assert "no LEEP, no NCE: " in notes and "is the head of another backbone" in notes and "gone.npz" in notes
    assert ranking.sources == {
        "sound": {"kind": "labels", "classes": 10, "data": "labelled.npz", "made": notes_of(sound)}
    }


def test_the_held_out_images_of_a_folder_give_no_labels(place: Path) -> None:
    for label in range(2):
        (place / "photos" / str(label)).mkdir(parents=True)
        for k, row in enumerate(np.flatnonzero(CLOTHES.labels == label)[:10]):
            Image.fromarray(CLOTHES.pixels[row, 0]).save(place / "photos" / str(label) / f"{k}.png")
    entry, said = made(place, "byol", "photos", images=20), []
    found(entry, say=said.append), found(entry, "clusters", clusters=4, say=said.append)
    assert [text.partition(": ")[2] for text in said] == [
        "labels of 16 images of photos, fitted once",
        "clusters of 20 images of photos, fitted once",
    ]


def notes_of(folder: Path) -> str:
    return zoo.ZooEntry.load(folder).card["source_heads"]["labels"]["made"]


def test_in_a_zoo_that_cannot_be_written_the_head_is_used_and_said_not_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = made(place, "byol", "labelled.npz")
    kept = made(place, "same", "labelled.npz")
    monkeypatch.setattr(source_heads.os, "access", lambda path, mode: Path(path).name != "byol")
    how = {"cache": "cache", "progress": False, "workers": 0, "bootstrap": 0, "max_images": 60}
    ranking = evaluation.rank([str(entry), str(kept)], "task.npz", ["leep"], **how)
    assert ranking.scores[0, 0] == ranking.scores[1, 0] and not (entry / "heads").exists()
    assert any(note.endswith("is fitted anew in the next ranking (byol)") for note in ranking.notes)


def test_a_ranking_keeps_data_sets_apart_whose_class_counts_differ(place: Path) -> None:
    few = CLOTHES.labels[:300] < 4
    np.savez(place / "few.npz", x_train=CLOTHES.pixels[:300, 0][few], y_train=CLOTHES.labels[:300][few])
    for seed, (name, data) in enumerate([("a", "labelled.npz"), ("b", "labelled.npz"), ("c", "few.npz")]):
        made(place / "zoo", name, data, seed=seed, images=300 if seed < 2 else int(few.sum()))
    how = {"cache": "cache", "progress": False, "workers": 0, "bootstrap": 10, "max_images": 60}
    apart = evaluation.rank("zoo", "task.npz", ["leep"], **how)
    assert sorted(apart.ranks[:2, 0]) == [1, 2] and apart.ranks[2, 0] == 1
    order = np.argsort(-apart.scores[:2, 0])
    assert apart.consensus.rank[order[0]] < apart.consensus.rank[2] < apart.consensus.rank[order[1]]  # level groups
    assert any("ranked apart" in note for note in apart.notes)
    together = evaluation.rank("zoo", "task.npz", ["leep"], source="clusters", clusters=8, **how)
    assert sorted(together.ranks[:, 0]) == [1, 2, 3] and not any("ranked apart" in note for note in together.notes)


def test_other_images_than_those_of_the_training_are_said(place: Path) -> None:
    head = found(made(place, "byol", "labelled.npz", images=301))
    assert head.made.endswith("its training had 301 images, there are 300 now")
    entry = made(place, "other", "labelled.npz")
    zoo.update(zoo.ZooEntry.load(entry), data={"source": "labelled.npz", "images": 300, "content": "00"})
    assert found(entry).made.endswith("these are not the images of its training")
    content = open_images("labelled.npz", split="train").content_digest
    entry = made(place, "same", "labelled.npz")
    zoo.update(zoo.ZooEntry.load(entry), data={"source": "labelled.npz", "images": 300, "content": content})
    assert found(entry).made.endswith("300 of its images")


def test_unknown_words_are_refused_before_anything_is_computed(place: Path) -> None:
    entry = made(place, "byol", "labelled.npz")
    with pytest.raises(
        UserError,
        match=r"source must be .*, got 'labelz': did you mean 'labels'",
    ):
        evaluation.rank([str(entry)], "labelled.npz", ["leep"], source="labelz")
    with pytest.raises(UserError, match="clusters must be a whole number, at least 2"):
        evaluation.rank([str(entry)], "labelled.npz", ["leep"], clusters=1)
    x = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(UserError, match="source is for models and a data set"):
        evaluation.rank({"a": (x, [0, 0, 1, 1, 2, 2])}, metrics=["leep"], source="labels")
