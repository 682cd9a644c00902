#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 4 elements, one trial each.
#SBATCH --job-name=demo.token123.1
#SBATCH --array=0-3%2
#SBATCH --output=/shared/ada/results/demo/logs/jobs/0001/%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=3
#SBATCH --gres=gpu:2
#SBATCH --mem=1500M
#SBATCH --time=1-02:03:04
#SBATCH --partition=main
#SBATCH --account='it'\''s mine'
#SBATCH --qos=high
#SBATCH --constraint='avx2&[rack1|rack2]'
#SBATCH --mail-type=END
#SBATCH --comment='two words'
#SBATCH --exclusive

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
# srun does not take --cpus-per-task from the job by itself (Slurm 22.05 and 23.02).
export SRUN_CPUS_PER_TASK=3
# Ranks have the environment of this script, also in a job that was submitted with --export=NONE.
export SLURM_EXPORT_ENV=ALL
# With its tree, Slurm's PMIx lets ranks leave a fence too early: they kill a rank that is still in MPI_Init.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
srun --kill-on-bad-exit=1 /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 0 --count 4 --gate --token token123
code=$?
# The job's own output is removed if it is empty.
[ -s /shared/ada/results/demo/logs/jobs/0001/"$SLURM_ARRAY_TASK_ID".log ] || rm -f /shared/ada/results/demo/logs/jobs/0001/"$SLURM_ARRAY_TASK_ID".log
exit "$code"
