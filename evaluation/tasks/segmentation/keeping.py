"""Keep a linear classifier of patches with its backbone as an entry that predicts masks."""

from pathlib import Path

from torch import Tensor, nn

from evaluation.results.records import run_id
from evaluation.results.result import Result
from evaluation.tasks.detection.keeping import card_of_data
from evaluation.tasks.segmentation.judge import Opened
from evaluation.tuning.keeping import MODELS, card_of_accuracy, check_keepable, keep_network
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank
from sslkit.zoo.heads import SEGMENTER, Head


def keep_segmenter(opened: Opened, weight: Tensor, bias: Tensor, result: Result, runtime: Runtime) -> list[str]:
    """Keep the classifier (K, F), (K,) in MODELS below `out`, and return its folder; of no network that no entry holds.

    result: on the test images.
    """
    try:
        check_keepable(opened.model)
    except UserError as error:
        runtime.say(f"not kept: {error}")
        return []
    run = run_id({"digests": result.digests, "recipe": result.recipe, "seeds": result.seeds, "grid": list(opened.grid)})
    folder = Path(MODELS) / name_of(f"{opened.model.name}-{result.protocol}-{run[:8]}")
    if rank() == 0:
        layer = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
        layer.weight, layer.bias = (nn.Parameter(tensor, requires_grad=False) for tensor in (weight, bias))
        estimate = {"value": result.value, "interval": result.interval, "n": len(opened.test)}
        about = {
            "classes": list(opened.test.classes),
            "blocks": opened.look.blocks,
            "scales": list(opened.look.scales),
            "data": opened.train.name,
            "made": f"a linear classifier of the features as they are, {result.recipe}, {len(opened.train):,} images",
            "measured": card_of_accuracy(result.metric, estimate, f"test images of {opened.test.name}"),
        }
        how = {"config": {"protocol": result.protocol, "recipe": result.recipe}, "epochs": 0, "seed": runtime.seed}
        state, data = opened.model.backbone.export(), card_of_data(opened.train)
        entry = keep_network(Path(runtime.out) / folder, opened.model, state, data=data, **how)
        entry.keep_part(Head.from_layers(SEGMENTER, nn.Sequential(layer), {}), about)
    return [str(folder)]
