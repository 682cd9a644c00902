#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 1 element, one trial each.
#SBATCH --job-name=demo.token123.1
#SBATCH --array=0-0
#SBATCH --output='/shared/ada/it'\''s 100%% "odd" $(date) `id` \ {{ a }} #;&|*/results/demo/logs/jobs/0001/%a.log'
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
exec /opt/hpcsweep/bin/hpcsweep worker --sweep '/shared/ada/it'\''s 100% "odd" $(date) `id` \ {{ a }} #;&|*/results/demo' --wave 1 --first 0 --count 1 --gate --token token123 --job-time unlimited
