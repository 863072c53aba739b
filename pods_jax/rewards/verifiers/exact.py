"""Task "exact": the output, without blanks around it, is the gold."""

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import Verdict, compared, register


def check(gold: str) -> None:
    """See `Verifier`."""
    if not gold.strip():
        raise UserError("exact: the gold is empty")


@register("exact", bounded=True, check=check)
def verify(output: str, gold: str) -> Verdict:
    """Compares the stripped strings."""
    answer = output.strip()
    return compared(answer == gold.strip(), answer)
