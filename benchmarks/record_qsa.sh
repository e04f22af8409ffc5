#!/usr/bin/env bash
# Records qsa-attention on a machine with a GPU under nsys, under the tables default and sm_90 and with half of the cache
# out of reach (dropped): at 1,024 rows, where sm_90 has a merge and default has none, and the tables at 4 rows. Of an fp8
# cache default and h200 at 64 rows, where both have a merge.
#
#   benchmarks/record_qsa.sh DIRECTORY SECONDS [extra options of `profkit capture`, e.g. --shape dtype=fp8]
#
# Leaves DIRECTORY/rROWS/VARIANT, and beside them what `profkit layers` and `profkit diff` say (rROWS/layers-VARIANT.txt,
# rROWS/diff.txt, rROWS/diff.json, r1024/diff-dropped.txt). No capture is begun that would end after SECONDS, counted from
# the start, if it took as long as the longest so far; it is named as left out and counts as failed. Ten replays are
# recorded, so that a run is small enough to keep. Prints each step's exit status, goes on after a failure and exits with
# the number of failed steps; that diff refutes the dropped cache is no failure.
set -uo pipefail

usage="usage: record_qsa.sh DIRECTORY SECONDS [options]"
directory=${1:?$usage}
seconds=${2:?$usage}
shift 2
# shellcheck source=benchmarks/recording.sh
. "$(dirname "$0")/recording.sh"
mkdir -p "$directory/r1024" "$directory/r64" "$directory/r4"
longest=0

# record ROWS VARIANT OPTIONS…
record() {
  local rows=$1 variant=$2 started=$SECONDS took
  shift 2
  if [ $((SECONDS + longest)) -gt "$seconds" ]; then
    echo "== left out for lack of time: $variant at $rows rows"
    failed=$((failed + 1))
    return
  fi
  step 0 - 60 capture qsa-attention --variant "$variant" --shape "rows=$rows" --profiler nsys --replays 10 --no-floor \
    --no-keep-report --force -o "$directory/r$rows/$variant" "$@"
  took=$((SECONDS - started))
  if [ "$took" -gt "$longest" ]; then longest=$took; fi
}

for point in 1024:default 1024:sm_90 1024:dropped 4:default 4:sm_90; do
  record "${point%%:*}" "${point#*:}" "$@"
done
for variant in default h200; do
  record 64 "$variant" "$@" --shape dtype=fp8
done
for point in 1024:sm_90 64:h200 4:sm_90; do
  rows=${point%%:*}
  after=${point#*:}
  step 0 "r$rows/diff.txt" 60 diff "$directory/r$rows/default" "$directory/r$rows/$after"
  step 0 "r$rows/diff.json" 60 diff "$directory/r$rows/default" "$directory/r$rows/$after" --format json
  for variant in default "$after"; do
    step 0 "r$rows/layers-$variant.txt" 60 layers "$directory/r$rows/$variant"
  done
done
step 1 r1024/diff-dropped.txt 60 diff "$directory/r1024/default" "$directory/r1024/dropped"
finish
