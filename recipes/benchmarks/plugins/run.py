"""Does a prior, or DSA, help every objective?

python recipes/benchmarks/plugins/run.py guide --help        (+guide, +dsa and their controls, every objective)
python recipes/benchmarks/plugins/run.py ablation --help     (parts and priors of DSA, BYOL and SimCLR)
python recipes/benchmarks/plugins/run.py default --help      (what +dsa and +adc do without options, on held-out images)
python recipes/benchmarks/plugins/run.py study --help        (which plug-in, with which prior, helps what; not run yet)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli import dispatch

if __name__ == "__main__":
    dispatch("plugins", __doc__, ("guide", "ablation", "default", "study"))
