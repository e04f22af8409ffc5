#!/usr/bin/env bash
# Records dcp-combine (or WORKLOAD, e.g. dcp-ag-rs) between real ranks, eager and fused in turns, a GPU a rank.
#
#   benchmarks/record_ranks.sh DIRECTORY RANKS PAIRS SECONDS [extra options of `profkit capture`]
#
# First checks every rank's results against attention over the whole KV cache, eagerly and in a graph; then captures
# PAIRS repetitions of either arm under nsys (under torch.profiler where that fails) into DIRECTORY/runs/ARM/PAIR/RANK,
# beginning none that would end after SECONDS; then writes what `profkit diff` and `profkit layers` say of them. Goes on
# after a failure, shows the end of every log that a failure left, and exits with the number of failed steps.
# RANKS=1 rehearses it on one GPU, which exchanges with itself. NVLink multicast stays off.
set -uo pipefail

usage="usage: record_ranks.sh DIRECTORY RANKS PAIRS SECONDS [options]"
directory=${1:?$usage}
ranks=${2:?$usage}
pairs=${3:?$usage}
seconds=${4:?$usage}
shift 4
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
workload=${WORKLOAD:-dcp-combine}
variants=(eager fused fused-planar fused-padded ag-rs/eager ag-rs/fused)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} NVSHMEM_DISABLE_NVLS=${NVSHMEM_DISABLE_NVLS:-1}
export TORCH_SYMM_MEM_DISABLE_MULTICAST=${TORCH_SYMM_MEM_DISABLE_MULTICAST:-1} NCCL_DEBUG=${NCCL_DEBUG:-WARN}
mkdir -p "$directory"
failed=0

# step LIMIT FILE COMMAND…: what it prints goes to FILE and to the terminal.
step() {
  local limit=$1 file=$directory/$2 started=$SECONDS status
  shift 2
  echo "== ${*##*/}"
  timeout --signal=TERM --kill-after=10 "$limit" "$@" > >(tee "$file") 2>&1
  status=$?
  echo "-- exit status $status after $((SECONDS - started)) s"
  if [ "$status" -ne 0 ]; then failed=$((failed + 1)); fi
  return "$status"
}

profkit() { # LIMIT FILE arguments…
  local limit=$1 file=$2
  shift 2
  step "$limit" "$file" "$python" -m profkit.cli "$@"
}

# All ranks of the check at once; the first output is rank 0's.
check() {
  local port rank pids=() status=0
  port=$("$python" -c 'from profkit.capture.workers import free_port; print(free_port())') || return 1
  echo "== every rank's heads against attention over the whole KV cache"
  for ((rank = 0; rank < ranks; rank++)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      timeout --signal=TERM --kill-after=5 90 "$python" "$root/tests/kernels/dcp_rank.py" bf16 "${variants[@]}" \
      > "$directory/check.$rank.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  tail -n 20 "$directory"/check.*.log
  echo "-- exit status $status after $SECONDS s"
  return "$status"
}

capture() { # PROFILER PAIRS SECONDS extra…
  local profiler=$1 count=$2 limit=$3
  shift 3
  profkit "$((limit + 90))" "capture.$profiler.txt" capture "$workload" --variant eager --against fused \
    --pairs "$count" --nproc "$ranks" --shape exchange=distributed --profiler "$profiler" --replays 10 \
    --rank-timeout 80 --stop-after "$limit" -o "$directory/runs.$profiler" "$@"
}

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
nvidia-smi topo -m 2>/dev/null | head -n $((ranks + 1))
"$python" -c 'import torch
print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version(), "GPUs", torch.cuda.device_count())'

check || failed=$((failed + 1))
used=nsys
if ! capture nsys "$pairs" "$seconds" "$@"; then
  for log in "$directory"/runs.nsys/*/*.log; do
    [ -e "$log" ] && { echo "== the end of $log"; tail -n 40 "$log"; }
  done
  if ! ls "$directory"/runs.nsys/fused/*/0/run.json >/dev/null 2>&1; then
    used=torch
    # Few, and no floor: what is left of the time goes into an answer.
    capture torch "$((pairs < 3 ? pairs : 3))" "$((seconds / 2))" --no-floor
    for log in "$directory"/runs.torch/*/*.log; do
      [ -e "$log" ] && { echo "== the end of $log"; tail -n 40 "$log"; }
    done
  fi
fi
profkit 60 diff.txt diff "$directory/runs.$used" --expect-removed 8
for format in md json; do
  profkit 60 "diff.$format" diff "$directory/runs.$used" --expect-removed 8 --format "$format" >/dev/null
done
for arm in eager fused; do
  profkit 60 "layers.$arm.txt" layers "$directory/runs.$used/$arm/0" | tail -n 30
  profkit 60 "layers.$arm.json" layers "$directory/runs.$used/$arm/0" --format json >/dev/null
done
du -sh "$directory"/runs.*
echo "failed steps: $failed (after $SECONDS s)"
exit "$failed"
