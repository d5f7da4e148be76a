"""Pickles of arrays and plain values are read, and nothing else that a pickle may hold is run."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from sslkit.data.published import _plain_pickle
from sslkit.errors import UserError

BATCH = {"data": np.arange(12, dtype=np.uint8).reshape(2, 6), "coarse_labels": [3, 1], "coarse_label_names": ["a", "é"]}
# As Python 2 writes {'data': array([[1, 2], [3, 4]], dtype=uint8), 'labels': [0, 5]} with protocol 2.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87"
    b"Rq\x05(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff"
    b"\xff\xffK\x00tb\x89U\x04\x01\x02\x03\x04tbU\x06labelsq\x08]q\t(K\x00K\x05eu."
)


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_what_the_published_files_hold_is_read(protocol: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(pickle.dumps(BATCH, protocol))
    found = _plain_pickle.load_plain(tmp_path / "x")
    assert found.keys() == BATCH.keys() and found["coarse_labels"] == [3, 1] and found["coarse_label_names"][1] == "é"
    assert found["data"].dtype == np.uint8 and (found["data"] == BATCH["data"]).all()


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(PYTHON_2)
    found = _plain_pickle.load_plain(tmp_path / "x")
    assert found["data"].tolist() == [[1, 2], [3, 4]] and found["data"].dtype == np.uint8
    assert found["labels"] == [0, 5]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("kind", ["touch", "system", "eval", "import", "codec", "path", "number"])
def test_anything_else_is_refused_and_not_run(kind: str, protocol: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    owned = tmp_path / "owned"
    import codecs

    content = {
        "touch": lambda: Call(Path.touch, owned),
        "system": lambda: Call(os.system, f"touch {owned}"),
        "eval": lambda: Call(eval, f"open({str(owned)!r}, 'w')"),
        "codec": lambda: Call(codecs.encode, "x", "rot13"),
        "path": lambda: owned,
        "number": lambda: np.testing.assert_equal,
        "import": lambda: 0,
    }[kind]()
    text = pickle.dumps({"data": BATCH["data"], "labels": [content]}, protocol)
    (tmp_path / "x").write_bytes(b"cantigravity\nfly_to\n." if kind == "import" else text)
    with pytest.raises(UserError, match="is not a pickle of plain values and arrays") as error:
        _plain_pickle.load_plain(tmp_path / "x")
    assert not owned.exists() and "antigravity" not in sys.modules and "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"junk", PYTHON_2[:80], PYTHON_2[:-1], b"\x80\x02.", b"\x80\xff."])
def test_a_damaged_file_is_one_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match="x is not a pickle of plain values and arrays"):
        _plain_pickle.load_plain(tmp_path / "x")
    with pytest.raises(UserError, match=r"cannot read .*y: No such file"):
        _plain_pickle.load_plain(tmp_path / "y")


def test_fc100_reads_by_it(tmp_path: Path) -> None:
    from sslkit.data.published import fc100

    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps(Call(Path.touch, tmp_path / "owned")))
    with pytest.raises(UserError, match="meta is not a pickle of plain values"):
        fc100._unpickle(tmp_path, "meta")
    assert not (tmp_path / "owned").exists()
