#!/bin/bash
# Prepares the environment of a trial of sweep demo, then becomes its command.
# Every rank runs it, in the trial's working folder; its output is in the trial's log.
set -e
fail() {
  trap - ERR EXIT
  echo "the set-up failed at: $1" | tee "${HPCSWEEP_REASON:-/dev/null}" >&2
  exit "${2:-1}"
}
trap 'fail "$BASH_COMMAND"' ERR
# If a sourced file is missing, the shell ends without ERR, and `exit 0` would look like the command's end.
trap 'code=$?; fail "$BASH_COMMAND" $((code > 0 ? code : 1))' EXIT
if ! type module >/dev/null 2>&1; then
  # shellcheck disable=SC1090,SC1091
  . '/opt/my modules/init/bash'
fi
module load gcc/12 || fail 'module load gcc/12'
module load cuda/12.4 || fail 'module load cuda/12.4'
trap - ERR EXIT
exec "$@"
