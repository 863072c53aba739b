r"""Task "choice": one option letter, or yes/no (which equals true/false).

The answer is the marked one (see `extract`; "option is", "choice:", "the right one is" and "answer must be" are markers
too). It is read from its start: `B`, `(B)`, `B: a weak acid`, `\text{B}`, "option B", "B because ..". Without a marker,
the answer is a reply of one line that is an option ("B) 3.2 g"), "Option B is correct", "B would be the best one", or
"Answer B".

These are refused: a question, a letter that begins a word ("Benzene"), an article ("A base"), and two options, whatever
stands between them ("A or B", "AB", "A. B. C.", "B -> C", "B vs A", "A; wait, B"). A second option does not count if it
is withdrawn ("B, not C", "B. C is wrong"), or stands in a reason ("B because C ..") or a name ("B) vitamin C").
"""

import re

from pods_jax.errors import UserError
from pods_jax.rewards.extract import HASHES, PHRASE, after_phrase, after_thinking, final_answer, following
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register

_WORDS = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_WRAPPERS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed|textit)\s{0,2}\{|\\[()\[\]]|[${}*\"'`\[\]]")
_LETTER = re.compile(
    r"(?:(?:the\s)?(?:correct\s)?(?:option|choice|answer)\s)?(?:is\s)?"
    r"\(?(?P<letter>[A-Z]|[a-z](?=\W*$))(?![^\s.,:;!?)])\)?(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_WORD = re.compile(r"(?P<word>yes|no|true|false)\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_HEDGE = r"(?:actually|also|and|but|maybe|no|or|perhaps|possibly|wait)\b"
_ANOTHER = re.compile(
    r"(?:\s*[,/&;+]\s*|[\s.,?]*\b(?:or|and)\s+(?:maybe\s|perhaps\s|possibly\s)?|\s+)"
    r"\(?(?!I\s[a-z])(?:[A-Z]|yes|no|true|false)\)?(?![\w'’])",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    rf"[\s,.;:?!(]{{1,8}}(?:{_HEDGE}[\s,.;:?!(]{{1,8}}){{1,4}}(?-i:[A-HJ-Z])\)?(?![\w'’])", re.IGNORECASE
)
_NO_OPTION = re.compile(  # a bond, a quantity, a name
    r"\b[CHNOFPSK](?:[-=≡–][CHNOFPSK])+\b|(?<![\w.])[0-9][0-9.]*\s?°?\s?[A-Za-z]\b"
    r"|\b(?i:vitamin|hepatitis|point|type|group|class|figure|compound|element|sample|substance|reaction|beaker|gas|metal"
    r"|molecule|atom|tube|step|line|side|city|plan|factor|phase|state|curve|reagent|product|structure|set|box)\s[A-Z]\b"
)
_WITHDRAWN = re.compile(
    r"\b(?:not|rather\sthan|instead\sof|unlike)\s(?:(?:the|option|choice|answer)\s){0,2}\(?[A-Z]\)?(?![\w'’])"
    r"|\b(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s)?\(?[A-Z]\)?\s(?:is|was)\s"
    r"(?:incorrect|wrong|false|not\s(?:correct|right|true)|a\s(?:common\s)?distractor)\b"
)
_REASON = re.compile(r"\b(?:because|since|due\sto|as\s(?:it|they|the|this|that)|given)\s", re.IGNORECASE)
_PROSE = (
    r"\s(?!(?:because|since|as|is|was|are|would|must|should|due|or|and|but|vs|versus|then|to|also|not|plus)\b)[a-z]"
)
_LARGE = rf"(?:[B-HJ-Z]|[AI](?!{_PROSE}))(?![\w'’])"
_SMALL = r"[a-h](?=\W*$|\s*[^\w\s'’-]|\s+[-–]|\s(?:vs|versus|or|and|then)\b)"
_MENTION = re.compile(rf"(?<![\w'’])(?:{_LARGE}|{_SMALL}|(?i:yes|no|true|false)(?=\W*$|\s*[^\w\s'’-]))")
_NEXT = re.compile(
    rf"[^\w(]{{0,40}}(?:(?:not|then|rather|{_HEDGE})[^\w(]{{1,20}}){{0,4}}"
    r"(?:\((?-i:[A-Z])\)|(?:(?-i:[A-HJ-Za-h])|yes|no|true|false)(?=\W*$|\s*[.,;:!?)/|&\n]|\s[-=–]*>"
    r"|\s(?:or|and|vs)\b|\s(?:is|must\sbe|would\sbe|should\sbe|seems)\s(?!wrong|incorrect|false|not)))",
    re.IGNORECASE,
)
_REJECTED = re.compile(
    r"\W*(?:(?:is|was|would|must|should|could|can|does)(?:n['’]t\b|\s{0,3}not\b)"
    r"|(?:is|was|seems|(?:would|must|should|could)\sbe)\s+(?:incorrect|wrong|false)\b)"
    r"|[^.!?\n]*\?",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"\s(?!because|since|as|is|would|must|should|due|which|for|with|based|that|in|given)[a-z]")
_UNMARKED = re.compile(
    r"\(?[A-Z][).:](?!\w)|(?:the\s)?(?:option|answer|choice)\s+\(?[A-Z]\)?(?!\w)|\W*[A-Z]\W*$"
    r"|\(?[A-Z]\)?\s(?:is|seems|(?:would|must|should)\sbe)\s(?:the\s)?(?:correct|right|best|answer)\b"
    r"(?![^.!?\n]*\b(?:if|unless|had|were)\b)",
    re.IGNORECASE,
)
_CLAIM = re.compile(r"\b([A-Z])\)?\s(?:is|seems|(?:would|must|should)\sbe)\s(?:the\s)?(?:correct|right|best|answer)\b")
_PHRASE = re.compile(
    r"(?<!wrong\s)(?<!incorrect\s)\b(?:(?:option|choice|(?:right|correct|best)\sone)(?:\s{1,3}is\b|\s{0,3}:)"
    r"|(?:answer|option|choice|(?:right|correct|best)\sone)\s{1,3}(?:would|must|should|will)\sbe\b)(?!\s{1,3}not\b)",
    re.IGNORECASE,
)
_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_MAX_CHARS = 2_000


def check(gold: str) -> None:
    """See `Verifier`."""
    _expected(gold)


@register("choice", bounded=True, check=check)
def verify(output: str, gold: str) -> Verdict:
    """Compares two options.

    Raises:
      UserError: the gold is not one letter, yes, no, true or false.
    """
    expected = _expected(gold)
    stated = read_option(output)
    return no_answer() if stated is None else compared(stated == expected, stated)


def _expected(gold: str) -> str:
    option = _option(gold)
    if option is None:
        raise UserError(f"choice: the gold {gold[:80]!r} is neither a letter nor yes/no/true/false")
    return option


def read_option(output: str) -> str | None:
    """The option of an output: an upper-case letter, "yes" or "no"; None if it states none."""
    output = output.translate(_FULL_WIDTH)
    reply = after_thinking(output)
    marked = final_answer(output) or after_phrase(reply, _PHRASE) or ""
    return None if _NEXT.match(_after(reply, marked)) else _option(marked or _unmarked(output))


def _after(reply: str, marked: str) -> str:
    """The text after an answer that "####" or a phrase marks; such an answer ends with its line or sentence."""
    rests = (following(reply, pattern) for pattern in (HASHES, PHRASE, _PHRASE))
    return next((rest[len(marked) :] for rest in rests if marked and rest and rest.startswith(marked)), "")


def _unmarked(output: str) -> str:
    """The reply, if it is one line that states an option and nothing else."""
    text = after_thinking(output)
    line = " ".join(text.split()) if len(text.split(maxsplit=2)) <= 2 else text
    if "\n" in line or len(line) > _MAX_CHARS or len(set(_CLAIM.findall(line))) > 1:
        return ""
    bare = _WRAPPERS.sub("", line).strip()
    return line if _UNMARKED.match(bare) or bare.strip(" .!").lower() in _WORDS else ""


def _option(text: str) -> str | None:
    bare = _WRAPPERS.sub("", text[:_MAX_CHARS]).strip(" \t\r\n.:")
    match = _WORD.match(bare) or _LETTER.match(bare)
    if match is None or _names_another(match["rest"]) or _REJECTED.match(match["rest"]):
        return None
    if match.re is _WORD:
        return _WORDS[match["word"].lower()]
    letter = match["letter"]
    article = letter in ("A", "I") and bare.startswith(letter) and _ARTICLE.match(match["rest"])
    return None if article else letter.upper()


def _names_another(rest: str) -> bool:
    """Whether the text after an option offers another one. A withdrawn option, or one in a reason, does not count."""
    rest = _NO_OPTION.sub(" ", rest)
    if _ANOTHER.match(rest) or _HEDGED.search(rest):
        return True
    said = _REASON.split(_WITHDRAWN.sub(" ", rest), maxsplit=1)[0]
    return bool(_MENTION.search(said))
