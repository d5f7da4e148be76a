"""What every published set keeps to; members are found by listing the folder."""

from pathlib import Path

import pytest

import sslkit.data.published
from evaluation.datasets import find, names, open_split
from sslkit.data.published.base import METRICS
from sslkit.errors import UserError

ROUTINE = {"base", "__init__"}


def test_every_file_of_the_folder_is_a_member() -> None:
    folder = Path(sslkit.data.published.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")} - ROUTINE
    assert set(names()) == files and {"aircraft", "voc07", "imagenet_10pct", "cub2010", "plantvillage"} <= files


@pytest.mark.parametrize("name", names())
def test_an_entry_is_complete(name: str) -> None:
    entry = find(name)
    assert entry.name == name and entry.title and entry.metric in METRICS and entry.classes > 1
    assert len(entry.licence) > 5 and "\n" not in entry.licence
    assert entry.train in entry.counts and "test" in entry.counts and set(entry.aliases.values()) <= set(entry.counts)
    assert not set(entry.aliases) & set(entry.counts) and set(entry.class_counts) <= set(entry.counts)
    assert set(entry.files) - {""} <= set(entry.counts)
    for count in entry.counts.values():
        assert count is None or (min(count) if isinstance(count, range) else count) > 0
    if "trainval" in entry.counts:
        assert entry.train == "trainval"
        if {"train", "val"} <= set(entry.counts):
            assert entry.counts["trainval"] == entry.counts["train"] + entry.counts["val"]


@pytest.mark.parametrize("name", names())
def test_missing_files_are_named_in_one_error(tmp_path, monkeypatch, name: str) -> None:
    def no_network(*args: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr("socket.socket.connect", no_network)
    entry = find(name)
    for split in entry.counts:
        with pytest.raises(UserError) as caught:
            open_split(f"{name}:{tmp_path}", split)
        message = str(caught.value)
        assert message.startswith(f"{entry.title} cannot be opened from {tmp_path}") and "\n" not in message
        for file in (*entry.files.get("", ()), *entry.files.get(split, ())):
            assert file in message
        assert "https://" in message or "pytorch/vision" in message
        assert message.endswith(f"If it is elsewhere: {name}:ROOT")
        assert message.count("download=True") == len(entry.fetch)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in names() if find(name).fetch])
def test_the_download_line_is_python_that_torchvision_takes(name: str) -> None:
    import ast
    import inspect

    from torchvision import datasets

    entry = find(name)
    with pytest.raises(UserError) as caught:
        open_split(f"{name}:nowhere", "test")
    code = str(caught.value).split('python -c "')[1].split('"')[0]
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    for call in calls:
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        inspect.signature(getattr(datasets, call.func.id)).bind(ast.literal_eval(call.args[0]), **keywords)
        assert keywords["download"] is True and call.args[0].value == "nowhere"
    assert len(calls) == len(entry.fetch)


@pytest.mark.parametrize("name", names())
def test_an_unknown_split_names_the_nearest(tmp_path, name: str) -> None:
    with pytest.raises(UserError, match=f"{name} has no split 'tets': did you mean 'test'"):
        open_split(f"{name}:{tmp_path}", "tets")


def test_an_unknown_set_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'flowers102'"):
        find("flowers")
