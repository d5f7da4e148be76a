"""Pretrain a backbone on images without labels.

python recipes/train.py method=byol+dsa                                    (the embedded Fashion-MNIST)
python recipes/train.py method=simclr data=path/to/images backbone=resnet18 epochs=100
python recipes/train.py method=byol+dsa method.objective.momentum=0.99 method.dsa.nu=0.2
python recipes/train.py -m method=byol,byol+dsa seed=0,1                   (a sweep)
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine

from command import run

import sslkit
from sslkit.training.config import Config

if __name__ == "__main__":
    run(sslkit.pretrain, Config(), __doc__)
