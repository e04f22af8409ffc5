#!/usr/bin/env bash
# Records dsa-candidates on a machine with a GPU under nsys: all five variants, ten replays each.
#
#   benchmarks/record_dsa.sh DIRECTORY [extra options of `profkit capture`, e.g. --shape context=1048576]
#
# Leaves DIRECTORY/VARIANT, and beside them what `profkit layers` and `profkit diff` say (layers-VARIANT.txt, diff-*.md,
# diff-*.json); the diffs are printed too. What they should say, and exit with status 0:
#   old to new            changed: source/fill is added, scores and mask go under new names and are faster; the outputs
#                         are equal
#   old to bounded        confirmed: the launches of torch.topk are gone from source/topk
#   old to hoisted        confirmed: as above, and the flags are made once a step, in the source
#   new to one-kernel     confirmed: as above, source/fill is gone, and each consumer has one launch fewer
#   its consumers alone   confirmed, with the gates that exactly one launch is gone from each, by a fusion (flags into
#                         mask)
# Prints each step's exit status, goes on after a failure and exits with the number of failed steps. A capture takes 10
# to 15 s; one that hangs is ended after a minute.
set -uo pipefail

directory=${1:?usage: record_dsa.sh DIRECTORY [options]}
shift
# shellcheck source=benchmarks/recording.sh
. "$(dirname "$0")/recording.sh"

# compare NAME BEFORE AFTER [options of diff]
compare() {
  local name=$1 before=$directory/$2 after=$directory/$3
  shift 3
  step 0 - 60 diff "$before" "$after" "$@"
  step 0 "diff-$name.md" 60 diff "$before" "$after" --format md "$@"
  step 0 "diff-$name.json" 60 diff "$before" "$after" --format json "$@"
}

for variant in old new bounded one-kernel hoisted; do
  step 0 - 60 capture dsa-candidates --variant "$variant" --profiler nsys --replays 10 --no-floor --no-keep-report \
    --force -o "$directory/$variant" "$@"
  step 0 "layers-$variant.txt" 60 layers "$directory/$variant"
done
compare old-new old new
compare old-bounded old bounded
compare old-hoisted old hoisted
compare new-one-kernel new one-kernel
compare new-one-kernel-consumers new one-kernel --layers consumer --expect-removed 1 --expect-fused
finish
