"""Which rollouts of a group are trained on. A fork adds a rule with `@register("name")` in one file."""

from pods_jax.selection.rules import RULES, SelectionRule, select

__all__ = ["RULES", "SelectionRule", "select"]
