"""Evaluate a run's checkpoint: `python experiments/evaluate.py --help`."""

from pods_jax.commands import evaluate

if __name__ == "__main__":
    evaluate()
