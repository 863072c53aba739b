"""Export a run's checkpoint: `python experiments/export.py --help`."""

from pods_jax.commands import export

if __name__ == "__main__":
    export()
