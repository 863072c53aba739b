"""Task "sciknoweval": "filling" where the gold is a chemical equation, "choice" where it is an option."""

from pods_jax.rewards.verdict import Verdict, register
from pods_jax.rewards.verifiers import choice, filling


def check(gold: str) -> None:
    """See `Verifier`."""
    _rule(gold).check(gold)


@register("sciknoweval", bounded=True, check=check)
def judge(output: str, gold: str) -> Verdict:
    """The verdict of the task that the gold belongs to; its errors too."""
    return _rule(gold).judge(output, gold)


def _rule(gold: str):
    return filling if filling.has_arrow(gold) else choice
