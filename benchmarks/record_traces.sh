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
# shellcheck source=benchmarks/recording.sh
. "$(dirname "$0")/recording.sh"

# record WORKLOAD PROFILER INTO VARIANT [options for this one]
record() {
  local workload=$1 profiler=$2 into=$3 variant=$4
  shift 4
  step 0 - 120 capture "$workload" --variant "$variant" --profiler "$profiler" --force -o "$directory/$into/$variant" "$@" \
    "${options[@]}"
}

step 0 - 120 doctor
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
finish
