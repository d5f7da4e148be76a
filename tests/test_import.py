"""`import sslkit` is lazy: it loads no heavy package and opens no socket."""

import re
import subprocess
import sys


def test_import_is_lazy_and_offline() -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise RuntimeError('socket opened')\n"
        "socket.socket.connect = refuse\n"
        "import sslkit, evaluation\n"
        "heavy = {'torch', 'numpy', 'timm', 'lightly', 'pytorch_lightning', 'hydra', 'faiss', 'sklearn', 'av'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sslkit_never_imports_evaluation() -> None:
    from pathlib import Path

    import sslkit

    for path in Path(sslkit.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) evaluation", path.read_text(), re.M), path
