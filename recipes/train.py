"""Pretrain a backbone on images or videos without labels.

python recipes/train.py method=byol+dsa                                    (the embedded Fashion-MNIST)
python recipes/train.py method=simclr data=path/to/images backbone=resnet18 epochs=100
python recipes/train.py method=byol+dsa method.objective.momentum=0.99 method.dsa.nu=0.2
python recipes/train.py method=byol+dsa data=video:path/to/videos data.frames=16 data.clips=2   (v-BYOL + DSA)
python recipes/train.py method=byol data=path/to/images init=efficientnet_lite0    (start from pretrained weights)
python recipes/train.py method=byol eval.protocols=[knn,retrieval] eval.data=[clipart,path/to/labelled]    (as judges)
python recipes/train.py -m method=byol,byol+dsa seed=0,1                   (a sweep)
"""

from pathlib import Path
from typing import Any

from sslkit.cli.command import run

import sslkit
from sslkit.training.config import Config


def train(config: dict[str, Any]) -> None:
    if config["eval"]["protocols"] is None:
        sslkit.pretrain(config)  # imported only when it is called
        return
    from evaluation.judging.evaluators import of_run

    sslkit.pretrain(config, evaluators=of_run(config))


if __name__ == "__main__":
    run(train, Config(), __doc__, Path(__file__).with_name("conf"))
