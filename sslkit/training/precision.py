"""The number format of a run."""

import torch


def precision(asked: str, accelerator: str) -> str:
    """`auto`: bf16 on a GPU that has it, else fp32.

    Never on the CPU, even where it has bf16: oneDNN's bf16 weight gradient of a convolution on small maps (torch 2.15,
    AMX, two threads) sometimes reads uninitialised memory, which ends in a NaN. It can still be set explicitly.
    """
    if asked != "auto":
        return asked
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    return "32-true"
