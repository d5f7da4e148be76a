#!/usr/bin/env bash
# The tests that compute numbers, once on each of two other code paths of the numerical libraries:
#   generic   no more than SSE4.2, MKL's path that is the same on every x86 processor
#   avx2      what a processor without AVX-512 takes
# Results may differ between processors in their last digits, verdicts may not. Needs an x86 processor.
#
#   tests/on_other_processors.sh [ARGUMENTS OF PYTEST]     such as -n 2, -x, -k knn
#   PATHS=generic tests/on_other_processors.sh             one of them alone
#
# Exit status 1 if the tests fail on a path; both are run in any case.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export OMP_WAIT_POLICY=passive PYTHONPATH=.

tests=(
  tests/evaluation/features/test_table.py
  tests/evaluation/learners/test_episode_solvers.py
  tests/evaluation/learners/test_episodes.py
  tests/evaluation/learners/test_fitted_head.py
  tests/evaluation/learners/test_linear_heads.py
  tests/numerics/test_logistic.py
  tests/numerics/test_neighbours.py
  tests/evaluation/protocols/test_crowding.py
  tests/evaluation/protocols/test_few_shot.py
  tests/evaluation/protocols/test_knn.py
  tests/evaluation/protocols/test_lidar.py
  tests/evaluation/protocols/test_linear.py
  tests/evaluation/protocols/test_linear_overlap.py
  tests/evaluation/ranking/truth/test_agreement.py
  tests/evaluation/ranking/choice/test_beliefs.py
  tests/evaluation/ranking/test_consensus.py
  tests/evaluation/ranking/choice/test_layers.py
  tests/evaluation/ranking/truth/test_paired_agreement.py
  tests/evaluation/ranking/test_rank.py
  tests/evaluation/ranking/test_resampling.py
  tests/evaluation/ranking/choice/test_rounds.py
  tests/evaluation/ranking/test_scoring.py
  tests/evaluation/ranking/inputs/test_source_heads.py
  tests/evaluation/ranking/inputs/test_source_marks.py
  tests/evaluation/results/test_choice.py
  tests/evaluation/results/test_comparison.py
  tests/evaluation/results/test_measures.py
  tests/evaluation/results/test_statistics.py
  tests/evaluation/transferability
  tests/evaluation/transferability/test_eigenbasis.py
  tests/evaluation/transferability/test_mixtures.py
  tests/evaluation/transferability/test_scatter.py
  tests/layers/test_queue.py
  tests/layers/test_teacher.py
  tests/objectives
  tests/priors
  tests/regularizers
  tests/composition/test_balance.py
  tests/numerics/test_accuracy.py
  tests/numerics/test_diagnostics.py
  tests/priors/test_targets.py
)
# They start processes, build large networks or run to convergence: minutes, for no other numbers.
left_out=(
  --ignore=tests/regularizers/dsa/test_dsa_ranks.py
  --deselect=tests/objectives/test_moco.py::test_local_batch_norm_sees_the_keys_in_the_drawn_order
  --deselect=tests/objectives/test_moco.py::test_without_a_common_generator_there_is_no_common_permutation
  --deselect=tests/objectives/test_moco.py::test_synchronised_or_evaluated_batch_norm_needs_no_shuffling
  --deselect=tests/evaluation/protocols/test_linear.py::test_scales
  --deselect=tests/priors/test_priors.py::test_clip_from_a_local_file_is_the_model_called_directly
  --deselect=tests/evaluation/ranking/test_scoring.py::test_time_and_memory_are_measured
  --deselect=tests/evaluation/ranking/test_scoring.py::test_a_module_is_there_after_import_evaluation
)

# The features of this processor that numpy has code for and whose names begin with one of the arguments: it warns of
# others, and its names differ between versions.
numpy_features() {
  python - "$@" <<'PYTHON'
import sys
try:
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
except ImportError:
    from numpy.core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(*(name for name in __cpu_dispatch__ if __cpu_features__.get(name) and name.startswith(tuple(sys.argv[1:]))))
PYTHON
}

# run_path NAME VARIABLE=VALUE ... -- ARGUMENTS OF PYTEST
run_path() {
  local name=$1 variables=()
  shift
  while [ "$1" != -- ]; do
    variables+=("$1")
    shift
  done
  shift
  echo "== tests on the code path $name: ${variables[*]}"
  if env "${variables[@]}" python -m pytest "${tests[@]}" "${left_out[@]}" "$@"; then
    verdicts+=("$name: passed")
  else
    verdicts+=("$name: FAILED")
    failed=1
  fi
}

verdicts=() failed=0
machine=$(uname -m)
if [ "$machine" != x86_64 ] && [ "$machine" != AMD64 ]; then
  echo "The processor is $machine: the variables of these paths change nothing on it, so no test is run."
  exit 0
fi

wanted() { [[ " ${PATHS:-generic avx2} " == *" $1 "* ]]; }

wanted generic && run_path generic MKL_CBWR=COMPATIBLE MKL_ENABLE_INSTRUCTIONS=SSE4_2 ATEN_CPU_CAPABILITY=default \
  ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem FAISS_OPT_LEVEL=generic \
  NPY_DISABLE_CPU_FEATURES="$(numpy_features '')" -- "$@"

if ! wanted avx2; then
  verdicts+=("avx2: not asked for")
elif python -c "import torch; raise SystemExit(torch.backends.cpu.get_cpu_capability() == 'DEFAULT')"; then
  run_path avx2 MKL_CBWR=AVX2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell \
    FAISS_OPT_LEVEL=avx2 NPY_DISABLE_CPU_FEATURES="$(numpy_features AVX512 X86_V4)" -- "$@"
else
  verdicts+=("avx2: not run, the processor has no AVX2")
fi

echo "== tests on other code paths"
printf '%s\n' "${verdicts[@]}"
exit "$failed"
