"""Which published numbers are of older code? Measures today's fingerprints (a minute), and marks the pages by them.

    python recipes/benchmarks/stale.py [PART ...]        (all parts, or some, by their names in fingerprints.json)

No study is run again; each page names the command that does so.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fingerprints
import keys
import torch
from plugins import run as plugins
from results import commit, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    torch.set_num_threads(1)
    names = parser.parse_args().parts or list(fingerprints.parts())
    changed = fingerprints.update(names, (commit() or "")[:8])
    for name, (before, now) in changed.items():
        print(f"{name}: computes something else, key {before or 'none'} -> {now}")
    plugins.write_pages(load(plugins.RESULTS)["runs"])
    print(f"{len(changed)} of {len(names)} parts changed; the pages are marked: git diff {keys.FILE.parent.name}")


if __name__ == "__main__":
    main()
