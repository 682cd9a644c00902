#!/usr/bin/bash
# Sweep demo: array 1, block 0, link 0. 7 elements, one trial each.
#SBATCH --job-name=demo.token123.1
#SBATCH --array=0-6%5
#SBATCH --output=/shared/ada/results/demo/logs/jobs/0001/%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --time=02:00:00
#SBATCH --partition=main
#SBATCH --account=physics
#SBATCH --qos=normal
#SBATCH --export=NONE

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
# srun does not take --cpus-per-task from the job by itself (Slurm 22.05 and 23.02).
export SRUN_CPUS_PER_TASK=1
# Ranks have the environment of this script, also in a job that was submitted with --export=NONE.
export SLURM_EXPORT_ENV=ALL
mpiexec --bind-to none -x 'A=two words' /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 0 --count 7 --gate --token token123 --job-time unlimited
code=$?
# The job's own output is removed if it is empty.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$SLURM_ARRAY_TASK_ID".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$SLURM_ARRAY_TASK_ID".log
exit "$code"
