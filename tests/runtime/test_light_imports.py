"""Commands do not import what they do not use, and the libraries that are spared imports answer as always."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recipes.installed import programs

COMMAND = """
import atexit, json, runpy, sys
atexit.register(lambda: print("\\n" + json.dumps(sorted(sys.modules)), file=sys.__stderr__))
from sslkit.cli import process
process.prepare()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
FOR_NOTHING = (
    "torch._dynamo",
    "torch._inductor",
    "sympy",
    "torchmetrics",
    "pytorch_lightning",
    "wandb",
    "scipy.signal",
)


def imported(tmp_path: Path, name: str, *words: str) -> set[str]:
    """The modules that a command has imported by its end."""
    path = programs()[name]
    start = f"import sys; sys.argv = {[str(path), *words]!r}; sys.path.insert(0, {str(path.parent)!r})\n"
    ended = subprocess.run([sys.executable, "-c", start + COMMAND], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return set(json.loads(ended.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("images") / "noise.npz"
    y = np.arange(60) % 3
    x = (rng.integers(0, 128, (60, 8, 8, 1)) + 40 * y[:, None, None, None]).astype(np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=255 - x, y_test=y)
    return str(path)


def test_commands_import_nothing_for_nothing(images: str, tmp_path: Path) -> None:
    train = "train", "method=byol+dsa", f"data={images}", "epochs=1", "batch_size=16", "name=net", "out=zoo"
    trained = imported(tmp_path, *train, "trainer.logger=tensorboard", "eval.tsne=0")
    assert "lightning_fabric" in trained and not trained & {*FOR_NOTHING, "sklearn", "scipy.stats", "pandas"}
    evaluate = "evaluate", "checkpoint=zoo/net", f"data={images}", "protocols=[knn]", "pictures=false"
    evaluated = imported(tmp_path, *evaluate)
    assert "timm" in evaluated and not evaluated & {*FOR_NOTHING, "sklearn", "scipy.ndimage", "pandas", "matplotlib"}
    rank = "rank", "zoo=zoo", f"data={images}"
    imported(tmp_path, *rank)
    warm = imported(tmp_path, *rank)
    assert "timm" in warm and not warm & {*FOR_NOTHING, "sklearn", "scipy.stats", "pandas"}


def run(code: str) -> None:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_libraries_answer_as_without_it() -> None:
    run("""
import sys
from sslkit.runtime.light_imports import light_imports

before = list(sys.meta_path)
with light_imports(), light_imports():
    import lightning_fabric, timm, torch
    from lightning_fabric import wrappers
    from lightning_fabric.utilities import imports
    from torchvision.ops import roi_align

    net = torch.nn.Linear(2, 2)
    assert not wrappers.is_wrapped(net) and wrappers._unwrap_compiled(net) == (net, None)
assert sys.meta_path == before
assert not {"torch._dynamo", "torch._dynamo.utils", "torchmetrics", "wandb"} & set(sys.modules)
assert imports._TORCHMETRICS_GREATER_EQUAL_1_0_0 and imports._TORCH_GREATER_EQUAL_2_6

import timm.utils.summary
import torchmetrics
try:
    import wandb
    assert timm.utils.summary.wandb.init is wandb.init
except ImportError:
    pass
assert torchmetrics.Accuracy("binary")(torch.tensor([1, 0]), torch.tensor([1, 1])) == 0.5
assert sys.modules["torchvision.ops.roi_align"].is_compile_supported("cpu") in (True, False)
compiled = torch.compile(net, backend="eager")
assert wrappers._unwrap_compiled(compiled)[0] is net
assert torch.allclose(compiled(torch.ones(1, 2)), net(torch.ones(1, 2)))
from pytorch_lightning import LightningModule, Trainer
""")


def test_optimisers_compute_the_same_before_and_after_the_compiler_is_imported() -> None:
    run("""
import sys
from sslkit.runtime.light_imports import light_imports

with light_imports():
    import torch

def trained(kind):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = kind(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    assert torch.is_grad_enabled() and net.weight.requires_grad
    return net.weight.detach()

kinds = torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam
first = [trained(kind) for kind in kinds]
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert all(torch.equal(trained(kind), weight) for kind, weight in zip(kinds, first))
assert torch.optim.Optimizer.zero_grad.__wrapped__.__dict__["__dynamo_disable"].__module__.startswith("torch")
""")
