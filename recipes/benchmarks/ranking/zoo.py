"""Train the zoo of the ranking study: five families, several objectives, lengths, seeds, plug-ins and sources.

python recipes/benchmarks/ranking/run.py zoo runs/study             (40 minutes on two cores; the same command resumes)
python recipes/benchmarks/ranking/run.py zoo runs/study --list      (prints the commands)
"""

import shlex
import subprocess
import sys
from pathlib import Path

import cli

ZOO = Path(__file__).parents[2] / "zoo.py"
EACH = "experiment=each"  # the settings of recipes/conf/experiment

SETS: tuple[tuple[str, ...], ...] = (
    # ResNets without labels, short and longer, with and without plug-ins, and of a second seed
    ("methods=[simclr,byol,barlow_twins,swav,nnclr,lejepa]", "plugins=[none,guide]", EACH, "epochs=2"),
    ("methods=[vicreg,moco,simsiam]", "plugins=[none]", EACH, "epochs=2"),
    ("methods=[simclr,byol]", "plugins=[none,dsa]", EACH, "epochs=6"),
    ("methods=[nnclr]", "plugins=[none]", EACH, "epochs=6"),
    ("methods=[simclr,densecl]", "plugins=[none]", EACH, "epochs=4", "seeds=[1]"),
    # ViTs
    ("methods=[mae]", "plugins=[none,guide]", EACH, "epochs=3"),
    ("methods=[ijepa,data2vec]", "plugins=[none]", EACH, "epochs=3"),
    # with labels
    ("methods=[supervised]", "plugins=[none]", EACH, "epochs=1"),
    ("methods=[supervised]", "plugins=[none]", EACH, "epochs=4", "seeds=[0,1]"),
    # other sources of images
    ("methods=[simclr,byol]", "plugins=[none]", "data=clipart", "backbone=narrow_resnet", "epochs=10"),
    ("methods=[simclr,barlow_twins]", "plugins=[none]", "data=glyphs", "backbone=narrow_resnet", "epochs=1"),
    # another family of convolutional networks
    ("methods=[simclr,byol]", "plugins=[none]", "backbone=mobilenetv3_small_050", "epochs=3"),
    ("methods=[supervised]", "plugins=[none]", "backbone=mobilenetv3_small_050", "epochs=2"),
)
UNTRAINED = (
    "simclr-fashion_mnist-narrow_resnet-e2-s0",
    "mae-fashion_mnist-narrow_vit-e3-s0",
    "simclr-fashion_mnist-mobilenetv3_small_050-e3-s0",
)
SIDE = "(image_size=32)"  # of the models that are no entries; an entry has its own
WHEELS = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("out", type=Path, help="folder of the entries")
    parser.add_argument("--jobs", default="auto", help="parallel members, as in recipes/zoo.py")
    parser.add_argument("--list", action="store_true", help="print the commands and exit")
    args = parser.parse_args()
    commands = [[sys.executable, str(ZOO), *words, f"out={args.out}", f"jobs={args.jobs}"] for words in SETS]
    if args.list:
        print("\n".join(shlex.join(["python", *command[1:]]) for command in commands))
        return
    failed = [command for command in commands if subprocess.run(command, check=False).returncode]
    for command in failed:
        print(f"failed    {shlex.join(command[1:])}", file=sys.stderr)
    untrained = [f"random:{args.out / name}" for name in UNTRAINED]
    zoo = [str(args.out), *untrained, *(f"{name}{SIDE}" for name in WHEELS)]
    print("models   ", shlex.quote(f"zoo=[{','.join(zoo)}]"))
    sys.exit(1 if failed else 0)
