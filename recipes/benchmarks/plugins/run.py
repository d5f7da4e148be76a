"""Which plug-in, with which prior, helps which objective?

python recipes/benchmarks/plugins/run.py study --help        (every plug-in and prior, on test images)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli import dispatch

if __name__ == "__main__":
    dispatch("plugins", __doc__, ("study",))
