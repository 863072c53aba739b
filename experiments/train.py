"""Train a policy: `python experiments/train.py --help`."""

from pods_jax.commands import train

if __name__ == "__main__":
    train()
