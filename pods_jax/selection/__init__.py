"""Which rollouts of a group are trained on. Every file here is imported: a new rule is one file."""

from pods_jax.registry import import_submodules
from pods_jax.selection.rules import RULES, SelectionRule, select

__all__ = ["RULES", "SelectionRule", "select"]

import_submodules(__name__)
