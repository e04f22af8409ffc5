#!/usr/bin/env bash
# Records mla-step on a machine with a GPU under nsys: single captures of hoisted, hoisted-pack and dropped, then eager
# and fused in turns.
#
#   benchmarks/record_mla_step.sh DIRECTORY PAIRS SECONDS [extra options of `profkit capture`, e.g. --shape rows=104]
#
# Leaves DIRECTORY/single/VARIANT and DIRECTORY/pairs/{eager,fused}/PAIR/0, and beside them what `profkit layers` and
# `profkit diff` say (layers-VARIANT.txt, diff.txt, diff.json, diff-dropped.txt). No pair's capture is begun that would
# end after SECONDS, counted from the start; a capture that hangs is ended. The same command goes on with the pairs where it
# stopped. Ten replays are recorded, so that a run is small enough to keep. Prints each step's exit status, goes on after a
# failure and exits with the number of failed steps; that diff refutes the dropped mask is no failure.
set -uo pipefail

usage="usage: record_mla_step.sh DIRECTORY PAIRS SECONDS [options]"
directory=${1:?$usage}
pairs=${2:?$usage}
seconds=${3:?$usage}
shift 3
# shellcheck source=benchmarks/recording.sh
. "$(dirname "$0")/recording.sh"

for variant in hoisted hoisted-pack dropped; do
  step 0 - 60 capture mla-step --variant "$variant" --profiler nsys --replays 10 --no-floor --no-keep-report --force \
    -o "$directory/single/$variant" "$@"
done
left=$((seconds - SECONDS))
step 0 - "$((left + 45))" capture mla-step --variant eager --against fused --profiler nsys --pairs "$pairs" --replays 10 \
  --stop-after "$left" -o "$directory/pairs" "$@"

step 0 diff.txt 60 diff "$directory/pairs" --expect-removed 8
step 0 diff.json 60 diff "$directory/pairs" --expect-removed 8 --format json
step 1 diff-dropped.txt 60 diff "$directory/pairs/eager/0/0" "$directory/single/dropped"
for variant in eager fused; do
  step 0 "layers-$variant.txt" 60 layers "$directory/pairs/$variant/0/0"
done
for variant in hoisted hoisted-pack dropped; do
  step 0 "layers-$variant.txt" 60 layers "$directory/single/$variant"
done
finish
