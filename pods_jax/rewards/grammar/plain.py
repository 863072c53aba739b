r"""The cheapest layer: answers that are one plain rational number, read by one regular expression.

Integers, decimals, thousands with commas, `a/b` and `\frac{a}{b}`, with a sign, dollars around them and a full stop
after them. Whatever carries a unit, a percent sign or anything else is left to the parser.
"""

import re
from fractions import Fraction

MAX_CHARS = 64

_PLAIN = re.compile(
    r"\$?(?P<sign>[-+−]?)(?:"
    r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?P<decimals>\.[0-9]+)?(?:/(?P<over>[0-9]+))?"
    r"|\\[dt]?frac\{(?P<sign2>-?)(?P<above>[0-9]+)\}\{(?P<below>[0-9]+)\})\.?\$?"
)


def plain_number(text: str) -> Fraction | None:
    """The number if the text is nothing but one, in the forms above; None otherwise."""
    match = _PLAIN.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        return None
    numerator = match["above"] or match["number"].replace(",", "") + (match["decimals"] or "")
    denominator = int(match["below"] or match["over"] or 1)
    negative = (match["sign"] in ("-", "−")) != bool(match["sign2"])
    return Fraction(numerator) / denominator * (-1 if negative else 1) if denominator else None
