"""Evaluate a frozen backbone with the linear probe.

python recipes/linear_eval.py checkpoint=runs/zoo/NAME data=fashion_mnist
python recipes/linear_eval.py checkpoint=runs/zoo/NAME data=imagenet root=data recipe=grid
python recipes/linear_eval.py checkpoint=runs/zoo/NAME data=path/to/images recipe=simclr90    (augmented views)
"""

from evaluation.judging.command_line import run_protocol

if __name__ == "__main__":
    run_protocol("linear", __doc__)
