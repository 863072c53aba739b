"""Task "sciknoweval": by the gold, "choice" for an option, "smiles" for a molecule, "filling" for an equation."""

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import VERIFIERS, Verdict, Verifier, register
from pods_jax.rewards.verifiers.filling import has_arrow
from pods_jax.rewards.verifiers.smiles import looks_like_smiles


def check(gold: str) -> None:
    """See `Verifier`."""
    _verifier(gold).check(gold)


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict of a bounded task; None for molecules that are not written alike, which a worker compares."""
    verifier = _verifier(gold)
    return verifier.verify(output, gold) if verifier.bounded else verifier.quick(output, gold)


@register("sciknoweval", quick=quick, check=check)
def verify(output: str, gold: str) -> Verdict:
    """The verdict of the task that the gold belongs to; its errors too."""
    return _verifier(gold).verify(output, gold)


def _verifier(gold: str) -> Verifier:
    """SMILES have no blanks, and their "=" is a double bond; an equation has coefficients, a plus or open rings."""
    if _is_option(gold):
        return VERIFIERS["choice"]
    if looks_like_smiles(gold.strip()):
        return VERIFIERS["smiles"]
    return VERIFIERS["filling" if has_arrow(gold) else "choice"]


def _is_option(gold: str) -> bool:
    try:
        VERIFIERS["choice"].check(gold)
    except UserError:
        return False
    return True
