"""Task "sciknoweval": by the gold, "choice" for an option, "smiles" for a molecule, "filling" for anything else."""

from types import ModuleType

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import Verdict, register
from pods_jax.rewards.verifiers import choice, filling, smiles


def check(gold: str) -> None:
    """See `Verifier`."""
    _rule(gold).check(gold)


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict of a bounded task; None for molecules that are not written alike, which a worker compares."""
    rule = _rule(gold)
    return smiles.quick(output, gold) if rule is smiles else rule.judge(output, gold)


@register("sciknoweval", quick=quick, check=check)
def judge(output: str, gold: str) -> Verdict:
    """The verdict of the task that the gold belongs to; its errors too."""
    return _rule(gold).judge(output, gold)


def _rule(gold: str) -> ModuleType:
    """SMILES have no blanks, and their "=" is a double bond; an equation has coefficients, a plus or open rings."""
    if _is_option(gold):
        return choice
    if smiles.looks_like_smiles(gold.strip()):
        return smiles
    return filling if filling.has_arrow(gold) else choice


def _is_option(gold: str) -> bool:
    try:
        choice.check(gold)
    except UserError:
        return False
    return True
