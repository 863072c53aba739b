"""Data sets, the stream of prompts, and tokenizers. Every file here is imported: a new data set is one file."""

from pods_jax.data.examples import DATASETS, Dataset, Example, columns_of, register
from pods_jax.data.stream import PromptStream
from pods_jax.registry import import_submodules

__all__ = ["DATASETS", "Dataset", "Example", "PromptStream", "columns_of", "register"]

import_submodules(__name__)
