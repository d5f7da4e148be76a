"""How fast are views, files and metrics?

python recipes/benchmarks/speed/run.py views --help      (two views of decoded images, beside lightly)
python recipes/benchmarks/speed/run.py files --help      (JPEG files to two views, beside lightly and torchvision)
python recipes/benchmarks/speed/run.py metrics --help    (every transferability metric)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli import dispatch

if __name__ == "__main__":
    dispatch("speed", __doc__, ("views", "files", "metrics"))
