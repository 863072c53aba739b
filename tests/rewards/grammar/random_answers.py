"""Random answers that mostly parse, and random texts over the words of the grammar that mostly do not."""

import random

LETTERS = list("abcfghiekmnptxyzABCI")
NUMBERS = ["0", "1", "2", "3", "7", "12", "200", "0.5", ".25", "1,234", "10^{30}", "1e5", "1e9999", "101_2",
           r"2\frac{1}{3}", r"0.1\overline{6}", r"50\%", r"60^\circ"]  # fmt: skip
CONSTANTS = [r"\pi", "e", "i", r"\infty", r"\alpha", "x_1", r"x_{\text{max}}", r"\bar z", "f(0)", "x'", r"\dot{x}", "½"]
ONE = [r"\sqrt{%s}", r"\sqrt[3]{%s}", "(%s)!", "|%s|", r"\lfloor %s \rfloor", "-%s", "(%s)", "[%s]", "x(%s)", "%s^2",
       r"\left(%s\right)", "f(%s)", "{%s}", r"\bar{%s}", r"\operatorname{arctan}(%s)", "%s!!", r"%s^{-1}", r"\vec{%s}",
       *(rf"\{name} %s" for name in ("sin", "cos", "tan", "ln", "log", "exp", "arcsin", "sinh", "cosh"))]  # fmt: skip
TWO = ["%s+%s", "%s-%s", "%s%s", "%s %s", r"%s \cdot %s", r"\frac{%s}{%s}", "(%s)^{%s}", "%s/%s", r"\binom{%s}{%s}",
       r"%s \pm %s", r"\log_{%s}(%s)", r"\max(%s,%s)", r"\gcd(%s,%s)", "C(%s,%s)", "C_{%s}^{%s}", r"{%s \choose %s}",
       r"\sum_{k=1}^{%s} %s", r"\prod_{k=1}^{%s} %s", r"\int_0^{%s} %s\,dx", r"\lim_{x \to %s} %s",
       r"\begin{vmatrix} %s & 1 \\ 2 & %s \end{vmatrix}", r"\det\begin{pmatrix} %s & 1 \\ 2 & %s \end{pmatrix}",
       r"\operatorname{rank}\begin{pmatrix} %s & 1 \\ 2 & %s \end{pmatrix}"]  # fmt: skip
JOINED = ["%s, %s", "(%s, %s)", "[%s, %s)", r"\{%s, %s\}", "%s = %s", "%s < %s", r"%s \le x < %s", r"%s \approx %s",
          "%s : %s", r"%s \text{ to } %s", r"%s \cup %s", r"[0,%s] \setminus \{%s\}", r"\{x \mid %s < x < %s\}",
          r"%s \text{ or } %s", r"%s \text{ and } %s", r"x = %s + %s, k \in \mathbb{Z}", r"%s \ne %s", r"\text{%s, %s}",
          r"\begin{pmatrix} %s \\ %s \end{pmatrix}", r"\begin{cases} %s & x>0 \\ %s & \text{otherwise} \end{cases}",
          r"f: x \mapsto %s %s"]  # fmt: skip
UNITS = [" cm", r"\text{ cm}", r"\ \mathrm{m/s^2}", r"\text{ tens}", r"\text{ miles from }A", r"^\circ\text{C}",
         r"\,\text{km}\,\text{s}^{-1}", " apples", r"\text{ for all } x", r"\%", " million", r"\mu m"]  # fmt: skip
WORDS = [
    r"\frac", r"\sqrt", r"\boxed{", "{", "}", "(", ")", "[", "]", r"\{", r"\}", "|", "^", "_", "!", "!!", "%", r"\%",
    "$", r"\$", "&", r"\\", ",", ";", ":", ".", "", "=", "<", ">", r"\le", r"\in", r"\cup", r"\setminus", r"\pm",
    r"\mp", "+", "-", "*", "/", r"\cdot", r"\begin{pmatrix}", r"\end{pmatrix}", r"\begin{vmatrix}", r"\end{vmatrix}",
    r"\begin{cases}", r"\end{cases}", r"\text{", r"\mathrm{", "and", "or", "not", "to", "for", "all", "x", "y", "i",
    "e", "pi", "C", "sin", r"\log", r"\infty", r"^\circ", "1", "23", "0.5", "1/2", "10^", "9e99", "1e9999",
    "99999999", "dx", "dy/dx", r"\sum_{k=1}^", r"\prod", r"\int_0^1", r"\lim_{x\to0}", r"\binom", r"\choose",
    r"\over", r"\vec", r"\bar", r"\vec{C", r"\mapsto", r"\approx", r"\forall", r"\mathbb{Z}", r"\mathbb{R}", r"\AA",
    r"\mu", r"\Omega", r"\operatorname{rank}", r"\operatorname{", r"\left\{", r"\right\}", r"\mid", r"\cosh(",
    "10^{400}", "Yes", "A,", "cm", "km", "six", "tens", "per", "square", "é", "²", "½", "٣", "１", r"\overline{", "f(",
    "I(0)", "_2", "_{10}",
]  # fmt: skip


def formula(chance: random.Random, size: int) -> str:
    """A formula of at most so many leaves."""
    if size <= 1:
        return chance.choice(chance.choice((LETTERS, NUMBERS, CONSTANTS)))
    if chance.random() < 0.3:
        return chance.choice(ONE) % formula(chance, size - 1)
    left = chance.randint(1, size - 1)
    return chance.choice(TWO) % (formula(chance, left), formula(chance, size - left))


def answer(chance: random.Random, size: int = 6) -> str:
    """A formula, a quantity, or several of them in one of the forms that answers have."""
    kind = chance.random()
    if kind < 0.4:
        return formula(chance, chance.randint(1, size))
    if kind < 0.6:
        return formula(chance, chance.randint(1, 3)) + chance.choice(UNITS)
    return chance.choice(JOINED) % (formula(chance, chance.randint(1, size)), formula(chance, chance.randint(1, size)))


def text(chance: random.Random) -> str:
    """Words of the grammar in any order, an answer that is cut or changed at one place, or an answer."""
    kind = chance.random()
    if kind < 0.3:
        return chance.choice(("", " ")).join(chance.choices(WORDS, k=chance.randint(1, 25)))
    written = answer(chance)
    if kind < 0.6:
        place = chance.randrange(len(written))
        return written[:place] + chance.choice([*WORDS, ""]) + written[place + chance.randint(0, 2) :]
    return written
