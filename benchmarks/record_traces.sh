#!/usr/bin/env bash
# Records the shipped workload on a machine with a GPU: dcp-combine, every variant under nsys, two under torch.profiler.
#
#   benchmarks/record_traces.sh DIRECTORY [extra options of `profkit capture`, e.g. --replays 20]
#
# Leaves DIRECTORY/nsys/VARIANT and DIRECTORY/torch/VARIANT, prints each step's exit status, goes on after a failure
# and exits with the number of failed steps. Each capture takes 10 to 30 s and is cut off after two minutes.
set -uo pipefail

directory=${1:?usage: record_traces.sh DIRECTORY [options]}
shift
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

step doctor
for variant in eager fused hoisted hoisted-pack dropped; do
  step capture dcp-combine --variant "$variant" --profiler nsys --force -o "$directory/nsys/$variant" "$@"
done
for variant in eager fused; do
  step capture dcp-combine --variant "$variant" --profiler torch --force -o "$directory/torch/$variant" "$@"
done
echo "failed steps: $failed"
exit "$failed"
