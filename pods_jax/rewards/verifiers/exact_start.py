"""Task "exact_start": the output up to its first semicolon, without blanks around it, is the gold."""

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import Verdict, compared, register

END = ";"


def check(gold: str) -> None:
    """See `Verifier`."""
    if not gold.strip() or END in gold:
        raise UserError(f"exact_start: the gold is empty or holds a semicolon: {gold!r}")


@register("exact_start", bounded=True, check=check)
def verify(output: str, gold: str) -> Verdict:
    """Compares the stripped strings; an output without a semicolon counts as a whole."""
    answer = output.partition(END)[0].strip()
    return compared(answer == gold.strip(), answer)
