#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 1 agent, taking trials until none is left.
#PBS -N demo.token123.1
#PBS -J 0-1:2
#PBS -l select=1:ncpus=3:mpiprocs=1:ompthreads=3
#PBS -l walltime=08:00:00
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
_code=0
trap : TERM

# The agent finds what it runs in the sweep's folder; begun again, it is another agent.
/opt/hpcsweep/bin/hpcsweep worker --pull /shared/ada/results/demo --may-go --time-left 28800s --slots 3
_code=$?
# The job's own output is kept only when there is any.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log
exit "$_code"
