#!/bin/bash
# Sweep demo: array 2, block 0, link 1. 2 elements, one trial each.
#SBATCH --job-name=demo.token123.2
#SBATCH --array=0-1
#SBATCH --output=/shared/ada/results/demo/logs/jobs/0002/%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1

# The element finds its trial by its index. The trial's command is in the sweep's folder, not here.
exec /opt/hpcsweep/bin/hpcsweep worker --sweep /shared/ada/results/demo --wave 1 --first 2 --count 2 --gate --token token123 --job-time unlimited
