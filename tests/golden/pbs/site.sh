#!/usr/bin/bash
# Sweep demo: array 1, block 0, link 0. 7 elements, one trial each.
#PBS -N demo.token123.1
#PBS -J 0-6%5
#PBS -l select=1:ncpus=1:mpiprocs=1:ompthreads=1:gpus=1:gpu_type=a100
#PBS -l walltime=02:00:00
#PBS -q workq
#PBS -A physics
#PBS -W umask=022
#PBS -j oe
#PBS -k oed
#PBS -o '/shared/ada/results/demo/logs/jobs/0001/^array_index^.log'
#PBS -m n
#PBS -r y
#PBS -p 7

# A job begins in the home folder with the variables of a login shell. This restores those of the submission.
# Another user can put a file there where the folder above the sweep is open to others.
[ -O /shared/ada/results/demo/jobs/env-0123456789ab.sh ] || { echo "the environment of the submission is not yours" >&2; exit 4; }
. /shared/ada/results/demo/jobs/env-0123456789ab.sh || exit 4
# Names begin with `_`, because variables of the submission may have other names.
# PBS signals every process of the job. This shell stays until its worker has recorded the end.
_code=0 _link=0 _meet=0
trap : TERM

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
run() {
  # The name of this launch, by which its ranks meet.
  _meet=$((_meet + 1))
  export HPCSWEEP_MEET="$PBS_JOBID.$$.$_meet"
  mpiexec --bind-to none -x 'A=two words' /usr/bin/bash /shared/ada/results/demo/jobs/env-0123456789ab.sh /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 0 --count 7 --gate --token token123 --index "${PBS_ARRAY_INDEX:-0}" --job "$PBS_JOBID" --link "$_link"
  _code=$?
}
run
# The job's own output is removed if it is empty.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$PBS_ARRAY_INDEX".log
exit "$_code"
