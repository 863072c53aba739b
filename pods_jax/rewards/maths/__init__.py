"""Final answers in mathematics: LaTeX or plain text -> a small tree -> equality. Nothing is run or simplified."""

from pods_jax.rewards.maths.compare import equivalent
from pods_jax.rewards.maths.parse import Unparsable, parse
from pods_jax.rewards.maths.rational import plain_number

__all__ = ["Unparsable", "equivalent", "parse", "plain_number"]
