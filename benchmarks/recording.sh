# What the scripts that record have in common; sourced by them, after `directory` is set.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$directory"
failed=0

# step EXPECTED_STATUS OUTPUT LIMIT_SECONDS ARGUMENTS…: one call of profkit. OUTPUT is a file in the directory, - the
# terminal. A call that hangs is ended, and `failed` counts those that end with another status.
step() {
  local expected=$1 output=$2 limit=$3 started=$SECONDS status
  shift 3
  echo "== $*"
  if [ "$output" = - ]; then output=/dev/stdout; else output="$directory/$output"; fi
  timeout --foreground --signal=TERM --kill-after=10 "$limit" "$python" -m profkit.cli "$@" > "$output"
  status=$?
  echo "-- exit status $status after $((SECONDS - started)) s"
  if [ "$status" -ne "$expected" ]; then failed=$((failed + 1)); fi
}

# finish: the sizes of what was recorded, and the exit status of the script.
finish() {
  find "$directory" -name '*.sqlite' -size +0 -exec ls -l {} + | awk '{print $5, $NF}'
  echo "failed steps: $failed (after $SECONDS s)"
  exit "$failed"
}
