"""Final answers in mathematics: LaTeX or plain text -> a small tree -> equality. Nothing is run or simplified."""

from pods_jax.rewards.grammar.equality import equivalent
from pods_jax.rewards.grammar.parse import Unparsable, parse
from pods_jax.rewards.grammar.plain import plain_number

__all__ = ["Unparsable", "equivalent", "parse", "plain_number"]
