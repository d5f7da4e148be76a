"""Do metrics order models as fine-tuning does? The steps, in order:

python recipes/benchmarks/ranking/run.py zoo --help           (train the 42 models)
python recipes/benchmarks/ranking/run.py tasks --help         (make the tasks that are parts of the embedded sets)
python recipes/ground_truth.py zoo=... data=...               (fine-tune; README.md has the settings)
python recipes/benchmarks/ranking/run.py study --help         (score, and compare with fine-tuning)
python recipes/benchmarks/ranking/run.py constants --help     (the constants of rank.py and choose.py)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli import dispatch

if __name__ == "__main__":
    dispatch("ranking", __doc__, ("zoo", "tasks", "study", "constants"))
