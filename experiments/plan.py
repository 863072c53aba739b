"""Plan a step before the hardware is rented: `python experiments/plan.py --help`."""

from pods_jax.commands import plan

if __name__ == "__main__":
    plan()
