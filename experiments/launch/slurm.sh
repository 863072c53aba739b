#!/usr/bin/env bash
# Trains on several GPU nodes: edit the block, then `sbatch experiments/launch/slurm.sh`.
# One task a node drives all of the node's GPUs; the tasks find each other through Slurm.
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
# ---------------------------------------------------------------- edit here
#SBATCH --job-name=pods
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=12:00:00
# Seconds before the end of the time: more than a step takes, an evaluation and a checkpoint.
#SBATCH --signal=TERM@600
CONFIG=configs/demo.py
WORKDIR=$HOME/runs/demo # on a file system that all nodes see
OPTIONS=(--config.mesh.fsdp=8)
# ---------------------------------------------------------------- end of edits
set -euo pipefail

# Every task gets the signal, finishes its step, saves, and ends with this code. Slurm takes a job whose script ends with
# 0 for completed, and starts none again whose script failed, so the script asks for it.
STOPPED=75
# A job that is preempted gets SIGTERM as well; the shell outlives it, to see how the tasks end.
trap : TERM

code=0
# srun does not take --cpus-per-task over from sbatch. A task that fails ends the others.
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1 \
  python experiments/train.py --distributed --stopped-exit-code "$STOPPED" \
  --config "$CONFIG" --workdir "$WORKDIR" "${OPTIONS[@]}" || code=$?
if [[ $code == "$STOPPED" ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
