#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 1 element, one trial each.
#SBATCH --job-name=demo.token123.1
#SBATCH --array=0-0
#SBATCH --output=/shared/ada/results/demo/logs/jobs/0001/%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
# srun does not take --cpus-per-task from the job by itself (Slurm 22.05 and 23.02).
export SRUN_CPUS_PER_TASK=1
# Ranks have the environment of this script, also in a job that was submitted with --export=NONE.
export SLURM_EXPORT_ENV=ALL
# MPI connects ranks once in a launch, so another attempt needs another launch. A worker asks for it with this file.
export HPCSWEEP_AGAIN=/shared/ada/results/demo/meet/"$SLURM_JOB_ID".again
# The walltime holds for all launches together.
HPCSWEEP_BEGAN=$(date +%s)
export HPCSWEEP_BEGAN
for _ in $(seq 3); do
  srun --kill-on-bad-exit=1 --mpi=pmix /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 0 --count 1 --gate --token token123 --job-time unlimited
  code=$?
  rm "$HPCSWEEP_AGAIN" 2>/dev/null || break
done
# The job's own output is removed if it is empty.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$SLURM_ARRAY_TASK_ID".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$SLURM_ARRAY_TASK_ID".log
exit "$code"
