"""Pilot-Commit paper, Polaris-53K with Qwen3-14B.

    python experiments/train.py --config configs/pilot_commit/polaris_14b.py:pilot_commit --workdir runs/polaris_14b_pc

Published, millions of rollouts generated until the target accuracy: `:pilot_commit` 2.2, `:grpo` 4.1, `:dapo` 4.9.
No script of this run was released, nor the number of GPUs. All but the model and n comes, with the arguments, from
configs/pilot_commit/polaris_4b.py.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module

POLARIS = load_module(Path(__file__).with_name("polaris_4b.py"))
METHODS = POLARIS.METHODS


def get_config(argument: str = "pilot_commit") -> ConfigDict:
    c = POLARIS.get_config(argument)
    c.model.path = "Qwen/Qwen3-14B"  # [paper]
    return c
