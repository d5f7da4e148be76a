"""The names of shards: patterns are counted before they are spelled, and what is no file is refused."""

import tarfile
from pathlib import Path

import fuzzing
import pytest
from named_pipes import pipe

from sslkit.data.sources.named import open_images, splits
from sslkit.data.sources.shard_files import find
from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("{0..99999999999}.tar", "100,000,000,000"),
        ("{0..999}" * 6, r"1,000,000,000,000,000,000"),
        ("{0..%s}.tar" % ("9" * 40), r"more than 10\^18"),
        ("{a,b,c,d,e,f,g,h,i,j}" * 7 + ".tar", "10,000,000"),
        ("{a,b}" * 99 + ".tar", r"more than 10\^18"),
        ("{0..999999}{9..1}{a,b}.tar", "2,000,000"),  # the second range has no numbers
    ],
)
@pytest.mark.parametrize("place", ["nowhere/", "s3://nowhere/"])
def test_names_are_counted_before_they_are_spelled(place: str, pattern: str, count: str, no_sockets: None) -> None:
    with (
        fuzzing.time_limit(5),
        pytest.raises(UserError, match=f"names {count} shards, and at most 1,000,000 are read: mend its braces"),
    ):
        splits(f"shards:{place}{pattern}")


@pytest.mark.parametrize("named", ["x.tar", "*.tar", "", "{x,y}.tar"])
def test_a_pipe_named_as_a_shard_is_refused(named: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "y.tar", "w"):
        pass
    with pipe(tmp_path / "x.tar"), pytest.raises(UserError, match=r"the shard .*x\.tar: .*a named pipe, not a file"):
        open_images(f"shards:{tmp_path}/{named}", cache=None)


def test_names_that_no_file_can_have_are_one_line() -> None:
    for name in ("a" * 300 + ".tar", "{0..%s}.tar" % ("9" * 300), "~nobody-of-this-name/a.tar"):
        with pytest.raises(UserError, match="cannot look for the shards"):
            splits(f"shards:{name}")


def test_files_that_macos_leaves_beside_shards_are_none(tmp_path: Path) -> None:
    for name in ("a.tar", "deep/b.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).with_name(f"._{Path(name).name}").write_bytes(b"\0\5\26\7")
        with tarfile.open(tmp_path / name, "w"):
            pass
    for form in ("{folder}", "file://{folder}"):
        names = find(form.format(folder=tmp_path))[1]
        assert [name.rpartition("/")[2] for name in names] == ["a.tar", "b.tar"]
