"""English around one number, for verifiers of numeric answers: a unit after it, or a sentence that states it.

No word may change the number. So the words after it must have the form of a unit, and none of them may negate, hedge,
compare, calculate or be a number itself.
"""

import itertools
import re
from fractions import Fraction

from pods_jax.rewards.grammar.units import UNIT_NAMES
from pods_jax.rewards.grammar.words import listed

MAX_UNIT_WORDS = 8
MAX_SENTENCE_CHARS = 200


_CARDINALS = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand"
)
_ORDINALS = listed(
    "first third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth "
    "ninetieth hundredth thousandth"
)
_NUMBER_WORDS = (
    {word + end for word in (*_CARDINALS, *_ORDINALS) for end in ("", "s", "es")}
    | {word[:-1] + "ies" for word in _CARDINALS if word.endswith("ty")}
    | listed(
        "nil none no half halves quarter quarters double doubles triple triples twice thrice dozen dozens score scores "
        "gross k pi tau googol googols lakh lakhs crore crores mille myriad myriads"
    )
)
_ILLION = re.compile(r"[a-z]*illi(?:on|ard)(?:s|th|ths)?")
_CHANGING = listed(
    # negate
    "not never neither nor nothing wrong incorrect incorrectly false invalid untrue negative minus opposite except "
    "excluding unlike unlikely cannot can't nowhere hardly barely impossible error "
    # hedge, offer a choice, or depend
    "about almost nearly approximately approx around roughly circa maybe perhaps possibly probably likely could may "
    "might would should guess guesses think believe assume suppose or and either but if unless otherwise instead "
    "alternatively versus vs wait actually unknown undefined unsure uncertain somewhere "
    # compare
    "more less fewer greater smaller larger bigger higher lower than over under above below between within least most "
    "maximum minimum bound up until "
    # calculate
    "plus times divided multiplied added subtracted increased decreased squared cubed tripled doubled halved power "
    "powers exponent factorial root roots sqrt reciprocal inverse inverted modulo mod choose log sum "
    "difference product quotient remainder integral derivative infinity infinite imaginary complex raised "
    # write in another way
    "point dot decimal comma digit digits base binary octal hex hexadecimal ternary radix reversed backwards rounded "
    "followed equals equal x i"
)
_NOUNS = UNIT_NAMES.keys() | listed(
    "people children men women feet teeth mice geese fish sheep deer cattle yen yuan celsius fahrenheit kelvin "
    "kb mb gb tb rpm am pm o'clock mm cm m km in ft yd mi g mg kg lb oz s min mins h ml l"
)
_AFTER_UNIT = listed(
    "of per for from in at on by with during after before away apart to through among across toward towards each every "
    "total altogether overall left remaining old long tall wide high deep early late a an daily weekly monthly yearly "
    "now today tomorrow yesterday"
)
_CLAUSE = listed(
    "because since so as that this these those which what who when where how why is are was were be been it she he "
    "they we you has have had do does did the remains"
)
_WORD = re.compile(r"/?[^\W\d_]+(?:[-'][^\W\d_]+)*'?")
_NUMBER = re.compile(r"-?\$?-?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?%?")
_PREPOSITIONS = listed("of from to by in at for on with into out off per as during before after through since till")


def is_unit(words: str, value: Fraction = Fraction(2)) -> bool:
    """Whether the words after a number are a unit, perhaps with an addition: "miles", "cups of feed", "per day".

    A unit is known by name, or any plural; after a `value` of at most 1, any singular too.
    """
    parts = words.replace("/", " /").split()
    head = _head(parts)
    tail = _without_measure(parts[len(head) :]) if head else parts
    if len(parts) > MAX_UNIT_WORDS or not all(map(is_harmless, (*head, *tail))) or any(map(_is_large_letter, head)):
        return False
    return not head or (_CLAUSE.isdisjoint(map(str.lower, head)) and _is_noun(head[-1].lower(), abs(value)))


def _without_measure(tail: list[str]) -> list[str]:
    """The words without a leading "per" and its measure, as in "per dozen" and "per thousand people"."""
    return tail[2:] if tail and tail[0].lower() == "per" else tail


def stated_number(sentence: str) -> str | None:
    """The number of a sentence that states exactly one, such as "She makes $18 every day."; None for other texts."""
    text = sentence.replace("’", "'").strip()
    numbers = list(_NUMBER.finditer(text))
    if len(text) > MAX_SENTENCE_CHARS or len(numbers) != 1:
        return None
    before = text[: numbers[0].start()].split()
    after = text[numbers[0].end() :]
    return numbers[0][0] if before and _leads_to_number(before) and is_unit(after.removesuffix(".")) else None


def _leads_to_number(words: list[str]) -> bool:
    plain = [word.lower().rstrip(",:") for word in words]
    return all(map(is_harmless, plain)) and (plain[-1] not in _PREPOSITIONS or plain[-2:] == ["total", "of"])


def is_harmless(word: str) -> bool:
    """Whether a word, perhaps with "/" before it, does not change a number beside it."""
    if not _WORD.fullmatch(word) or any(map(str.isnumeric, word)):  # "½" is a letter to `re`
        return False
    whole = word.lower().strip("/'")
    return not whole.endswith("n't") and not any(
        part in _CHANGING or part in _NUMBER_WORDS or _ILLION.fullmatch(part) for part in (whole, *whole.split("-"))
    )


def _head(parts: list[str]) -> list[str]:
    """The words before the first word that may follow a unit."""
    return list(itertools.takewhile(lambda part: part[0] != "/" and part.lower() not in _AFTER_UNIT, parts))


def _is_large_letter(word: str) -> bool:
    """Whether a word is K, M or B: "5 K" may be thousands, "5 M" millions and "5 B" billions."""
    return len(word) == 1 and word.isupper() and word != "L"


def _is_noun(word: str, value: Fraction) -> bool:
    plural = len(word) > 2 and word.endswith("s") and not word.endswith(("ss", "us", "is", "'s"))
    return plural or word in _NOUNS or value <= 1
