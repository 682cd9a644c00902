#!/bin/bash
# Prepares the environment of a trial of sweep demo, then becomes its command.
# Every rank runs it, in the trial's working folder; its output is in the trial's log.
# The lines below see no arguments, and cannot change what is run at the end.
readonly hpcsweep_command=("$@")
set --
set -e
hpcsweep_failed() {
  # After `set +e` nothing fails.
  case $- in *e*) ;; *) return 0 ;; esac
  trap - ERR EXIT
  local what=$1 line=${BASH_LINENO[${#BASH_LINENO[@]} - 2]} lines
  if [ "${BASH_SOURCE[1]}" != "$0" ]; then
    # A line of somebody else's file: first that of this script which has sourced it.
    mapfile -t -s $((line - 1)) -n 1 lines <"$0"
    what="${lines[0]} (${BASH_SOURCE[1]}, line ${BASH_LINENO[0]}: $1)"
  fi
  hpcsweep_say "$what" 1
}
hpcsweep_say() {
  trap - ERR EXIT
  echo "the set-up failed at: $1" >&2
  echo "the set-up failed at: $1" >"${HPCSWEEP_REASON:-/dev/null}"
  exit "$2"
}
trap 'hpcsweep_failed "$BASH_COMMAND"' ERR
# If a sourced file is missing, the shell ends without ERR, and `exit 0` would look like the command's end.
trap 'code=$?; hpcsweep_say "$BASH_COMMAND" $((code > 0 ? code : 1))' EXIT
if ! type module >/dev/null 2>&1; then
  # shellcheck disable=SC1090,SC1091
  . '/opt/my modules/init/bash'
fi
hpcsweep_load() {
  local before=${LOADEDMODULES:-} file said code=0
  file=$(mktemp)
  module load "$1" 2>"$file" || code=1
  said=$(<"$file")
  rm -f "$file"
  [ -z "$said" ] || echo "$said" >&2
  # Modules 3.2 leaves with 0, too, when there is no such module.
  [[ ${LOADEDMODULES:-} != "$before" || $said != *ERROR* ]] || code=1
  [ "$code" -eq 0 ] || hpcsweep_say "module load $1" 1
}
hpcsweep_load gcc/12
hpcsweep_load cuda/12.4
trap - ERR EXIT
unset -f exec
exec "${hpcsweep_command[@]}"
