#!/usr/bin/env bash
# Trains on several GPU nodes: edit the block, then `sbatch experiments/launch/slurm.sh`.
# One task a node drives all of the node's GPUs; the tasks find each other through Slurm.
#SBATCH --ntasks-per-node=1
#SBATCH --signal=TERM@120
#SBATCH --requeue
# ---------------------------------------------------------------- edit here
#SBATCH --job-name=pods
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=12:00:00
CONFIG=configs/demo.py
WORKDIR=$HOME/runs/demo # on a file system that all nodes see
OPTIONS=(--config.mesh.fsdp=8)
# ---------------------------------------------------------------- end of edits
set -euo pipefail

# Before the time is up every task gets SIGTERM, finishes its step and saves; the same job goes on from there.
srun python experiments/train.py --distributed --config "$CONFIG" --workdir "$WORKDIR" "${OPTIONS[@]}"
