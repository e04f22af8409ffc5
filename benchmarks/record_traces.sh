#!/usr/bin/env bash
# Records the shipped workloads on a machine with a GPU: every variant of dcp-combine and the pair of dcp-ag-rs under
# nsys, the pair of dcp-combine under torch.profiler too.
#
#   benchmarks/record_traces.sh DIRECTORY [extra options of `profkit capture`, e.g. --replays 20]
#
# Leaves DIRECTORY/nsys/VARIANT, DIRECTORY/nsys-ag-rs/VARIANT and DIRECTORY/torch/VARIANT; eager and fused of nsys/ also
# hold the step's times traced as a whole graph. Prints each step's exit status, goes on after a failure and exits with
# the number of failed steps. Each capture takes 10 to 30 s and is cut off after two minutes.
set -uo pipefail

directory=${1:?usage: record_traces.sh DIRECTORY [options]}
shift
options=("$@")
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
failed=0

step() {
  local started=$SECONDS status
  echo "== $*"
  timeout --signal=TERM --kill-after=10 120 "$python" -m profkit.cli "$@"
  status=$?
  echo "-- exit status $status after $((SECONDS - started)) s"
  if [ "$status" -ne 0 ]; then failed=$((failed + 1)); fi
}

# record WORKLOAD PROFILER INTO VARIANT [options for this one]
record() {
  local workload=$1 profiler=$2 into=$3 variant=$4
  shift 4
  step capture "$workload" --variant "$variant" --profiler "$profiler" --force -o "$directory/$into/$variant" "$@" \
    "${options[@]}"
}

step doctor
for variant in eager fused; do
  record dcp-combine nsys nsys "$variant" --graph-level
done
for variant in fused-planar fused-padded hoisted hoisted-pack dropped; do
  record dcp-combine nsys nsys "$variant"
done
for variant in eager fused; do
  record dcp-ag-rs nsys nsys-ag-rs "$variant"
  record dcp-combine torch torch "$variant"
done
echo "failed steps: $failed (after $SECONDS s)"
exit "$failed"
