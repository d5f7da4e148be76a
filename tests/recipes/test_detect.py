"""recipes/detect.py as a person types it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sslkit import backbones, zoo

ROOT = Path(__file__).parents[2]
SMOKE = ("data=clipart_boxes", "schedule=smoke", "steps=2", "batch_size=2", "progress=false")


def command(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess:
    call = [sys.executable, str(ROOT / "recipes" / "detect.py"), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(call, capture_output=True, text=True, cwd=cwd, timeout=1200, env=environment)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a zoo entry of gray images."""
    body = backbones.build("narrow_resnet", image_size=28, in_chans=1)
    own = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 28, "in_chans": 1}
    zoo.save(tmp_path / "zoo" / "a", body.export(), {"backbone": own, "normalize": {"mean": [0.3], "std": [0.4]}})
    return tmp_path


@pytest.mark.nightly
def test_a_checkpoint_is_judged_and_its_results_are_kept(place: Path) -> None:
    done = command("checkpoint=zoo/a", *SMOKE, cwd=place)
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.replace("\\\n", "").split())
    for said in (
        "clipart_boxes: 500 training images",
        "not comparable to published numbers",
        "coco_ap75",
        "voc_ap50",
        "results zoo/a/results.jsonl",
        "next python recipes/detect.py 'checkpoint=[zoo/a,random:zoo/a]' data=clipart_boxes",
    ):
        assert said in printed, done.stdout
    lines = [json.loads(line) for line in (place / "zoo/a/results.jsonl").read_text().splitlines()]
    assert [(line["protocol"], line["metric"]) for line in lines] == [
        ("detection", "coco_ap"),
        ("detection", "voc_ap50"),
    ]
    (picture,) = (place / "zoo/a/detection").glob("*.png")
    assert picture.name in done.stdout


@pytest.mark.nightly
def test_two_ranks_give_one_table(place: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    call = [sys.executable, str(ROOT / "recipes" / "detect.py"), "checkpoint=zoo/a", *SMOKE, "device=cpu"]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": place}
    ranks = [subprocess.Popen(call, env={**shared, "RANK": r, "LOCAL_RANK": r}, **pipes) for r in ("0", "1")]
    said = [process.communicate(timeout=1200) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    assert "on 2 processes" in said[0][0] and "voc_ap50" in said[0][0] and said[1][0].strip() == ""
    assert len((place / "zoo/a/results.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["checkpoint=zoo/a"], "name what to learn from: data=clipart_boxes"),
        (["data=clipart_boxes"], "name what to evaluate: checkpoint=runs/zoo/NAME"),
        (["checkpoint=zoo/a", "recipe=paper_voc08"], "did you mean 'paper_voc07'"),
        (["checkpoint=zoo/a", "recipe=paper_voc07"], "VOC2007/ImageSets/Main/trainval.txt"),
        (["checkpoint=zoo/a", "recipe=paper_voc0712"], "VOC2012/JPEGImages"),
        (["checkpoint=zoo/a", "recipe=paper_coco"], "instances_val2017.json"),
        (["checkpoint=zoo/a", "data=clipart_boxes", "task=mask"], "task must be boxes or masks or null, got 'mask'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str, place: Path, typed) -> None:
    done = typed("detect", *words, cwd=place)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1, done.stderr
    assert not list(place.rglob("results.jsonl"))
