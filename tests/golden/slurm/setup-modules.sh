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
  for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh "${MODULESHOME:-/usr/share/modules}/init/bash"; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init"; break; fi
  done
fi
module load cuda/12.4 || fail 'module load cuda/12.4'
module load 'my module'\''s' || fail 'module load my module'\''s'
source /etc/profile
export A="$HOME"
cd / && umask 077
trap - ERR EXIT
exec "$@"
