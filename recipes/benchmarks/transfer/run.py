"""Effects of pretraining on detection, and on features of patches.

python recipes/benchmarks/transfer/run.py detection --help
python recipes/benchmarks/transfer/run.py patches --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli import dispatch

if __name__ == "__main__":
    dispatch("transfer", __doc__, ("detection", "patches"))
