"""Task "sciknoweval": as "choice" if the gold is an option, "smiles" if a molecule, "filling" if an equation."""

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import VERIFIERS, Verdict, Verifier, register
from pods_jax.rewards.verifiers.filling import has_arrow
from pods_jax.rewards.verifiers.smiles import looks_like_smiles


def check(gold: str) -> None:
    """See `Verifier`."""
    _verifier(gold).check(gold)


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict of a bounded task; None for two molecules that are written differently, which a worker compares."""
    verifier = _verifier(gold)
    return verifier.verify(output, gold) if verifier.bounded else verifier.quick(output, gold)


@register("sciknoweval", quick=quick, check=check)
def verify(output: str, gold: str) -> Verdict:
    """The verdict of the task that the gold belongs to. It raises the errors of that task."""
    return _verifier(gold).verify(output, gold)


def _verifier(gold: str) -> Verifier:
    """The verifier for a gold.

    SMILES are tried first, since "=" is a double bond in them. An equation does not look like SMILES: it has blanks,
    coefficients, a plus or open rings.
    """
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
