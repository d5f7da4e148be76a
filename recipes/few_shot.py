"""Evaluate few-shot episodes on the frozen features of a backbone.

python recipes/few_shot.py checkpoint=runs/zoo/NAME data=glyphs                       (5-way, 1 and 5 shot)
python recipes/few_shot.py checkpoint=[runs/zoo/A,runs/zoo/B] data=cub2011 root=data n_way=20 k_shot=[5]
"""

from evaluation.judging.command_line import run_protocol

if __name__ == "__main__":
    run_protocol("few_shot", __doc__)
