#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 1 element, one trial each.
#PBS -N demo.token123.1
#PBS -J 0-1:2
#PBS -l select=1:ncpus=1:mpiprocs=1:ompthreads=1
#PBS -W umask=022
#PBS -j oe
#PBS -k oed
#PBS -o '/shared/ada/results/demo/logs/jobs/0001/^array_index^.log'
#PBS -m n
#PBS -r y

# A job begins in the home folder with the variables of a login shell. This restores those of the submission.
# Another user can put a file there where the folder above the sweep is open to others.
[ -O /shared/ada/results/demo/jobs/env-0123456789ab.sh ] || { echo "the environment of the submission is not yours" >&2; exit 4; }
. /shared/ada/results/demo/jobs/env-0123456789ab.sh || exit 4
# Names begin with `_`, because variables of the submission may have other names.
# PBS signals every process of the job. This shell stays until its worker has recorded the end.
_code=0 _link=0
trap : TERM

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
run() {
  /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 0 --count 1 --gate --token token123 --index "${PBS_ARRAY_INDEX:-0}" --job "$PBS_JOBID" --link "$_link"
  _code=$?
}
run
# The job's own output is removed if it is empty.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log
exit "$_code"
