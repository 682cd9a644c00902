#!/bin/bash
# Sweep demo: array 1, block 0, link 0. 3 agents, taking trials until none is left.
#SBATCH --job-name=demo.token123.1
#SBATCH --array=0-2
#SBATCH --output=/shared/ada/results/demo/logs/jobs/0001/%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=08:00:00
#SBATCH --partition=main

# The agent takes its trials from the sweep's folder. If this job starts again, it runs another agent.
exec /opt/hpcsweep/bin/hpcsweep worker --pull /shared/ada/results/demo --may-go --time-left 28800s --slots 1 --token token123
