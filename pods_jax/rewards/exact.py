"""Task "exact": the output, without blanks around it, is the gold."""

from pods_jax.rewards.verdict import Verdict, compared, register


@register("exact", bounded=True)
def judge(output: str, gold: str) -> Verdict:
    """Compares the stripped strings."""
    answer = output.strip()
    return compared(answer == gold.strip(), answer)
