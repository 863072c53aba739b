"""The loop, evaluation, checkpoints, export, metrics and progress."""

from pods_jax.training.evaluation import evaluate_checkpoint, evaluate_model
from pods_jax.training.export import export_checkpoint
from pods_jax.training.loop import train
from pods_jax.training.reporting import Reporter

__all__ = ["Reporter", "evaluate_checkpoint", "evaluate_model", "export_checkpoint", "train"]
