"""A pretended GPU: tensors that behave as if they were on cuda:0 while their numbers are in the CPU's memory.

    with Pretended() as gpu:
        model.to("cuda")
        step()
    gpu.faults    what CUDA would refuse: operations that mix devices, .numpy() of a GPU tensor, a CPU generator, ...
    gpu.waits     what makes the host wait for the device
    gpu.launches  operations on the device by name; gpu.bytes: what they read and write; gpu.places: launches by line

Results are real numbers, so that whole runs work, and code that depends on data. Not pretended: kernels that a GPU
lacks, its number formats and their autocast (that of the CPU is used), races, memory, and other threads than this one.
Nothing here was held against a real GPU yet; `recipes/benchmarks/gpu/run.py sync` lists the waits that one has.
"""

from pretended_device.device import Pretended as Pretended
from pretended_device.seen import Seen as Seen
