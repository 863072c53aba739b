"""Talk to a checkpoint or a model: `python experiments/sample.py --help`."""

from pods_jax.commands import sample

if __name__ == "__main__":
    sample()
