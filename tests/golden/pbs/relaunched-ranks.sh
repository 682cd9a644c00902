#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 1 element, one trial each.
#PBS -N demo.token123.1
#PBS -J 0-1:2
#PBS -l select=1:ncpus=2:mpiprocs=2:ompthreads=1
#PBS -W umask=022
#PBS -j oe
#PBS -k oed
#PBS -o '/shared/ada/results/demo/logs/jobs/0001/^array_index^.log'
#PBS -m n
#PBS -r y

# A job begins in the home folder, with what the login files set: the variables of the submission come back.
. /shared/ada/results/demo/jobs/env-0123456789ab.sh || exit 4
# Names with `_`: variables of the submission may have the others.
# PBS signals every process of the job: this shell stays until its worker has written down how it ended.
_code=0 _link=0 _meet=0
trap : TERM

# The element finds its trial by its index; what it runs is in the sweep's folder, not here.
run() {
  # MPI is wired up once a launch, so another attempt takes another one. A worker asks for it by this file.
  export HPCSWEEP_AGAIN=/shared/ada/results/demo/meet/"$PBS_JOBID".again
  # The walltime of a trial holds for all of its launches together.
  HPCSWEEP_BEGAN=$(date +%s)
  export HPCSWEEP_BEGAN
  for _ in $(seq 3); do
    # The word under which the ranks of this launch meet.
    _meet=$((_meet + 1))
    export HPCSWEEP_MEET="$PBS_JOBID.$$.$_meet"
    /opt/hpcsweep/bin/hpcsweep launch --ranks 2 -- /bin/bash /shared/ada/results/demo/jobs/env-0123456789ab.sh /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 0 --count 1 --gate --index "${PBS_ARRAY_INDEX:-0}" --job "$PBS_JOBID" --link "$_link"
    _code=$?
    rm "$HPCSWEEP_AGAIN" 2>/dev/null || break
  done
}
run
# The job's own output is kept only when there is any.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log
exit "$_code"
