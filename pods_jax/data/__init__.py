"""Data sets, prompts and tokenizers."""

from pods_jax.data import addition, gsm8k, reasoning_gym
from pods_jax.data.examples import DATASETS, Dataset, Example, register
from pods_jax.data.stream import PromptStream

__all__ = ["DATASETS", "Dataset", "Example", "PromptStream", "addition", "gsm8k", "reasoning_gym", "register"]
