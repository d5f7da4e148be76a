"""`import sslkit` is lazy: it loads no heavy package and opens no socket."""

import subprocess
import sys


def test_import_is_lazy_and_offline() -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise RuntimeError('socket opened')\n"
        "socket.socket.connect = refuse\n"
        "import sslkit, evaluation\n"
        "heavy = {'torch', 'numpy', 'timm', 'lightly', 'pytorch_lightning', 'hydra', 'faiss', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sslkit_never_imports_evaluation() -> None:
    from pathlib import Path

    import sslkit

    for path in Path(sslkit.__file__).parent.rglob("*.py"):
        words = path.read_text().split()
        pairs = set(zip(words, words[1:], strict=False))
        assert not {("import", "evaluation"), ("from", "evaluation")} & pairs, path
