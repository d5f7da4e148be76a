"""The processes of one training: this one alone, or those that torchrun started.

All ranks do the same calls: each trains on its part of every batch (`loop.fit`) and scores its part of the images
(`classifier.predict`); rank 0 alone claims and records runs (`recorded.py`), writes checkpoints, and tests detectors
and classifiers of clips. An error on one rank ends its process, and torchrun then ends the others.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch.distributed as dist

from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import world_size


@contextmanager
def process_group(runtime: Runtime) -> Iterator[Runtime]:
    """Join the processes that torchrun started, for the block; yield the runtime with this process's device.

    With several processes "auto" is the GPU of LOCAL_RANK, if there is one.
    A block inside another one joins the same group. Raises UserError for an unavailable device.
    """
    device = device_of(runtime.device)
    ranks = int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1
    inside = dist.is_available() and dist.is_initialized()
    if ranks == 1 or (inside and world_size() == 1):  # the first alone, as an evaluator of a training
        yield replace(runtime, device=device)
        return
    from sslkit.runtime.processes import fabric_on  # imports Fabric

    fabric = fabric_on(device, ranks=ranks, precision="float32")
    fabric.launch()
    yield replace(runtime, device=fabric.device)
    if not inside:  # not after an error: the others may wait in the group, and torchrun ends them with this process
        dist.destroy_process_group()
