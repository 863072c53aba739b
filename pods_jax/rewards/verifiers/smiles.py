"""Task "smiles": the final answer is the gold's molecule, in any notation: `OCC` is `CCO`.

It needs rdkit (the extra "chemistry").

Molecules are the same if their canonical SMILES are, stereochemistry, charges and isotopes included. The answer is the
marked one (see `extract`), or the reply if it is one word.
"""

import functools
import re
from types import ModuleType

from pods_jax.errors import UserError
from pods_jax.rewards.extract import after_thinking, final_answer
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register

MAX_CHARS = 500

_ATOM = r"(?:\[[^\[\]\s]{1,20}\]|Br|Cl|[BCNOPSFI]|[bcnops])"
_BRANCHES = r"[-=#$:/\\.()]|[0-9]|%[0-9]{2}"
_SMILES = re.compile(rf"{_ATOM}(?:{_ATOM}|{_BRANCHES})*(?<![-=#$:/\\.(])")
_RING = re.compile(r"\[[^\]]*\]|(%[0-9]{2}|[0-9])")
_WRAPPERS = re.compile(r"\\(?:text|mathrm|texttt|ce)\s?\{([^{}]*)\}")


def looks_like_smiles(text: str) -> bool:
    """Whether a text has the form of SMILES: two atoms or more, balanced branches, and closed rings."""
    rings = [ring for ring in _RING.findall(text) if ring]
    closed = all(rings.count(ring) % 2 == 0 for ring in set(rings))
    atoms = re.findall(_ATOM, text)
    return bool(_SMILES.fullmatch(text)) and closed and text.count("(") == text.count(")") and len(atoms) > 1


def check(gold: str) -> None:
    """See `Verifier`."""
    _expected(gold)


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict if the answer is missing or written like the gold; None otherwise."""
    answer = read_answer(output)
    if not answer:
        return no_answer()
    return compared(True, answer) if answer == gold.strip() else None


@register("smiles", quick=quick, check=check, prepare=lambda: _rdkit() and None)
def verify(output: str, gold: str) -> Verdict:
    """Compares two molecules.

    Raises:
      UserError: rdkit is not installed, or the gold is no molecule.
    """
    expected = _expected(gold)
    answer = read_answer(output)
    if not answer:
        return no_answer()
    stated = canonical(answer)
    return Verdict(False, answer, "unparsed") if stated is None else compared(stated == expected, stated)


def read_answer(output: str) -> str:
    """The text of the answer, without LaTeX and Markdown around it; empty if there is none."""
    marked = final_answer(output)
    text = after_thinking(output) if marked is None else marked
    bare = _WRAPPERS.sub(r"\1", text.strip(" \t\r\n`$*")).strip()
    return bare if marked is not None or len(bare.split()) == 1 else ""


def canonical(text: str) -> str | None:
    """The canonical SMILES of a text; None if it is no molecule."""
    chem = _rdkit()
    written = text.isascii() and text.isprintable() and " " not in text and 0 < len(text) <= MAX_CHARS
    molecule = chem.MolFromSmiles(text) if written else None
    return None if molecule is None or not molecule.GetNumAtoms() else chem.MolToSmiles(molecule)


@functools.lru_cache(maxsize=4096)
def _expected(gold: str) -> str:
    molecule = canonical(gold.strip())
    if molecule is None:
        raise UserError(f"smiles: the gold {gold[:80]!r} is no molecule")
    return molecule


@functools.cache
def _rdkit() -> ModuleType:
    try:
        from rdkit import Chem, RDLogger
    except ImportError as error:
        raise UserError("rdkit, which compares molecules, is not installed: pip install -e '.[chemistry]'") from error
    RDLogger.DisableLog("rdApp.*")  # it would log every text that is no molecule
    return Chem
