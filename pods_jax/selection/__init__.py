"""Selection of the rollouts of a group to train on. Every file here is imported: a new rule is one file."""

from pods_jax.registry import import_submodules
from pods_jax.selection.rules import RULES, SelectionRule, select
from pods_jax.selection.statistics import selection_statistics

__all__ = ["RULES", "SelectionRule", "select", "selection_statistics"]

import_submodules(__name__)
