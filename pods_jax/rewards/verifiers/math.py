r"""Task "math": the final answer equals the gold: numbers, formulas, lists, tuples, sets, intervals, equations, words.

Plain rationals are compared where the caller stands. The rest is parsed and compared in a worker process (see
`grammar`): by tree, then exactly, then numerically to 38 digits or more at several points; nothing is run.
An answer or a gold outside of the grammar is right only if it is written like the other one, layout aside.
"""

import functools

from pods_jax.errors import UserError
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.grammar import Unparsable, equivalent, parse, plain_number
from pods_jax.rewards.grammar.nodes import Node, Quantity
from pods_jax.rewards.grammar.tokens import tokenize
from pods_jax.rewards.quantities import stated_number
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict, if the answer is missing, written like the gold, or both are plain rationals; None otherwise."""
    answer = final_answer(output)
    if answer is None:
        return no_answer()
    return quick_comparison(answer, gold.strip())


def quick_comparison(answer: str, gold: str) -> Verdict | None:
    """As `quick`, for an answer that was found."""
    if answer == gold:
        return compared(True, answer)
    stated, expected = plain_number(answer), plain_number(gold)
    return None if stated is None or expected is None else compared(stated == expected, str(stated))


def check(gold: str) -> None:
    """A gold must be extracted whole out of a box, and be equal to itself by the rule that answers are compared by."""
    if final_answer(f"\\boxed{{{gold}}}") != checked(gold).strip():
        raise UserError(f"math: the gold {gold[:80]!r} has unbalanced braces")
    if not compare(gold, gold).correct:
        raise UserError(f"math: the gold {gold[:80]!r} cannot be read")


@register("math", quick=quick, check=check)
def verify(output: str, gold: str) -> Verdict:
    """Compares the final answer with the gold; docs/rewards.md lists the conventions.

    Raises:
      UserError: if the gold is empty.
    """
    expected = checked(gold).strip()
    answer = final_answer(output)
    return no_answer() if answer is None else quick_comparison(answer, expected) or compare(answer, gold)


def checked(gold: str) -> str:
    """The gold, if it is not empty."""
    if not gold.strip():
        raise UserError("math: the gold is empty")
    return gold


def compare(answer: str, gold: str) -> Verdict:
    """The verdict on a final answer that the cheap layer leaves open."""
    expected = _parsed_gold(gold)
    stated = parsed(answer) or (None if isinstance(expected, Quantity) else _stated(answer))
    if stated is None or expected is None:
        same = written_alike(answer, gold)
        return Verdict(same, answer, "match" if same else "unparsed")
    return compared(equivalent(expected, stated), answer)


def parsed(text: str) -> Node | None:
    """The tree of a text; None if it is outside of the grammar."""
    try:
        return parse(text)
    except Unparsable:
        return None


_parsed_gold = functools.lru_cache(maxsize=4096)(parsed)  # the rollouts of a prompt have the same one


def _stated(sentence: str) -> Node | None:
    """The one number of a sentence, without its unit."""
    number = stated_number(sentence)
    return parsed(number) if number else None


def written_alike(answer: str, gold: str) -> bool:
    """Whether two texts have the same tokens, words in any case."""
    return _spelling(answer) == _spelling(gold) != []


def _spelling(text: str) -> list[str]:
    try:
        return [token.text.lower() if len(token.text) > 1 else token.text for token in tokenize(text)]
    except Unparsable:
        return []
