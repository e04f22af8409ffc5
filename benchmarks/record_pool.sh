#!/usr/bin/env bash
# Records a pool of independent captures of dcp-combine, eager and fused in turns, on a machine with a GPU.
#
#   benchmarks/record_pool.sh DIRECTORY PAIRS SECONDS [extra options of `profkit capture`, e.g. --profiler torch]
#
# Leaves DIRECTORY/{eager,fused}/PAIR/0. No repetition is begun that would end after SECONDS; the same command goes on
# where it stopped, in as many sittings as it takes. A repetition that hangs is ended a minute after SECONDS, and those
# before it stay. Prints what profkit prints: a line when a repetition begins, one when it has ended, and a summary.
set -uo pipefail

usage="usage: record_pool.sh DIRECTORY PAIRS SECONDS [options]"
directory=${1:?$usage}
pairs=${2:?$usage}
seconds=${3:?$usage}
shift 3
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

timeout --foreground --signal=TERM --kill-after=15 "$((seconds + 60))" \
  "$python" -m profkit.cli capture dcp-combine --variant eager --against fused --pairs "$pairs" \
  --stop-after "$seconds" -o "$directory" "$@"
status=$?
echo "-- exit status $status after $SECONDS s; $(find "$directory" -path '*/0/run.json' | wc -l) of $((2 * pairs)) repetitions"
exit "$status"
