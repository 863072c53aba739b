"""Answers that are not the gold, by the trick that could make them pass. A reward for one of these is the worst defect."""

import pytest

from pods_jax.rewards.verifiers.math import judge

LETTERS = "abcdfghjklmno"
SUM = "+".join(LETTERS)
GOLDS = ["5", "0", "x+1", "y=2x+1", r"12\text{ cm}", "(1,2)", "[0,1]", r"\{1,2\}", "1,2", r"\frac12", r"\pi", "x=5", "x>5",
         r"\begin{pmatrix}1\\2\end{pmatrix}", r"\sqrt{x}", "3:4", r"\text{Yes}", r"(-\infty,2)\cup(3,\infty)"]  # fmt: skip
UNIVERSAL = [LETTERS, SUM, "*".join(LETTERS), f"({SUM},{SUM})", f"[{SUM},{SUM}]", rf"\{{{SUM},{SUM}\}}", f"{SUM},{SUM}",
             rf"\begin{{pmatrix}}{SUM}\\{SUM}\end{{pmatrix}}", f"{SUM}=7", f"{SUM}>0", "x=x", r"\frac00",
             r"\frac{1}{0}", r"\infty-\infty", r"\ln(0)", "0^0", r"\int_0^1 q", "abcdefghijklmnopqrstuvwxyz",
             "x_1+x_2+x_3+x_4+x_5+x_6+x_7+x_8+x_9+x_{10}+x_{11}+x_{12}+x_{13}+x_{14}"]  # fmt: skip
NO_UNITS = (
    "tens,twelfths,cubed,quadrillion,point three,negative,six,sixths,twenty,twenties,fives,hundredths,dozen,squared,"
    "inverse,halves,doubled,quarters,gross,score,lakh,crore,thousandth,factorial,to the fourth,or more,wrong,not,mod 7,"
    "modulo seven,minus one,less than six,zillion,times ten,million,millionths,k,root,reciprocal,recurring,repeating,"
    "and a half,point five,pi,over two,i,choose two,cos,abs,plus,negatives,below zero,or so,mod three,base two,e,"
    "sextillion,googol,thirds,times two,but not six,apples less,apples or six,if six,except one"
).split(",")

DIFFERENT = {
    "letters after a coefficient are factors": [
        ("2mgh", "2"), ("2", "2mgh"), ("2", "2nRT"), ("2nRT", "2"), ("3", "3lwh"), ("3lwh", "3"), ("5", "5abcd"),
        ("5abcd", "5"), ("2", "2mg h"), ("4", "4uvwxyz"), ("7", "7qvB"), ("7", "7 q v B"), ("2", "2mgt"), ("5", "5 pqrst"),
        ("1", "1abcdefgh"), ("3", "3mv^2"), ("5", "5xyzw cm"), ("5x", "5x cats y"), ("12", "12m"), ("2", "2mg"),
    ],
    "a value of a function is no product": [
        ("I(0)", "0"), ("I(0)e^{-t/RC}", "-I(0)e^{-t/(RC)}"), ("f(0)", "0"), ("f(x+y)", "f(x)+f(y)"), ("f(2x)", "2f(x)"),
        ("g(0)+1", "1"), ("P(0)", "Q(0)"), ("v(0)", "-v(0)"), ("f(1)", "f(2)"), ("f(2)", "2f(1)"), ("y(0)", "x(0)"),
        ("f'(0)", "0"), ("2f(3)", "6f(1)"), ("x(0)+x", "x"), ("f(x)^2", "f(x^2)"), (r"\phi(0)", "0"), ("f(a,b)", "f(b,a)"),
        ("f(x)", "g(x)"), ("f_1(0)", "f_2(0)"), ("f(x)-f(y)", "f(x-y)"), (r"\frac{dx}{dt}", r"\frac{x}{t}"), ("dy/dx", "y/x"),
    ],
    "word answers with more in them": [
        (r"\text{Yes}", "Yes No"), (r"\text{Yes}", "1000!Yes"), ("B", r"B \text{ A C D}"), (r"\text{B}", r"B \text{ A C D}"),
        ("Yes", "Yes, No"), ("Yes", "5Yes"), ("Yes", "Yes^2"), ("Yes", "Yes Yes"), (r"\text{Yes}", r"\text{Yes or No}"),
        ("B", "B A C D"), ("B", "BACD"), (r"\text{(B)}", r"B\text{ or C}"), ("A", r"A\text{ bcd}"), ("Yes", "Yes+No"),
        (r"\text{east}", r"\text{east west}"), (r"\text{east}", r"\text{east } \text{west}"), ("B", r"B \text{ C}"),
        (r"\text{Softball, Kickball}", "Kickball, Softball"), (r"\text{yes, no}", r"\text{no, yes}"), ("E", "e"),
    ],
    "bases": [
        ("101", "101_2"), ("10", "10_2"), ("7", "7_8"), ("11", r"11_{\text{two}}"), ("52", "52_8"), ("52_8", "52_9"),
        ("101", r"x=101_2"), ("5", "101_2"), ("1,2", "1_3, 2"), ("10_2", "10_{10}"), ("1", "1e9999"), ("101_2", "1e9999"),
    ],
    "indices": [
        ("x_t", "x_total"), ("x_t", "x_{total}"), ("v_0", "v_0t"), ("a_n", "a_nb"), ("x_t", "x_tabcdef"), ("v_0^2", "v_0"),
        ("x_1", "x_{11}"), ("v_0^2", "v^2_1"), (r"\bar{x}", "x"), (r"\dot{x}", r"\ddot{x}"), (r"\vec{a}", r"\hat{a}"),
    ],
    "corners and far places": [
        ("|x-200|", "200-x"), ("|x-200|", "x-200"), ("|x+9000|", "x+9000"), ("|x-10^6|", "10^6-x"), (r"\max(x,500)", "500"),
        (r"\min(x,-10^5)", "-10^5"), ("x", r"x+\max(0,x-7000)"), ("x", r"x+\max(0,0.001-|x|)"), ("|x|", "x"),
        ("|x|", r"\sqrt{x}^2"), (r"\sqrt{x^2}", "x"), (r"\sqrt{(x-3000)^2}", "3000-x"), (r"|x|+|y-500|", "|x|+500-y"),
        (r"\lfloor x \rfloor", "x"), (r"|x_1-200|", "200-x_1"), ("|xy|", "xy"), (r"\max(x,y,1000)", r"\max(x,1000)"),
    ],
    "numbers that nearly agree": [
        (r"\tanh(70)", "1"), (r"\coth(80)", "1"), (r"\tanh(-70)", "-1"), (r"\cosh(100)", r"\sinh(100)"), (r"\tanh(500)", "1"),
        (r"1-\tanh(70)", "0"), (r"\operatorname{sech}(80)", "0"), (r"\frac{\sinh 90}{\cosh 90}", "1"),
        (r"\sqrt{2}", rf"1.{'0' * 60}1\cdot\sqrt{{2}}"), (r"\pi", r"\pi\cdot\frac{10^{70}+1}{10^{70}}"),
        (r"\arctan(10^{60})", r"\frac{\pi}{2}"), (r"\cos(10^{-40})", "1"), (r"\tanh(x+70)", "1"), (r"e^{-200}", "0"),
    ],
    "factorials, sums, binomials": [
        ("x!", "x(x-1)(x-2)"), ("n!", r"\frac{n(n+1)}{2}"), ("n!", "n"), ("n!", "n(n-1)(n-2)(n-3)"), ("n!", r"\max(n,2)"),
        (r"\sum_{k=1}^{n} k", r"\sum_{k=1}^{n} k^2"), (r"\sum_{k=1}^{n} k", r"\sum_{k=0}^{n} (k+1)"), ("55", r"\sum_{k=1}^{9} k"),
        (r"\binom{n}{3}", "n^3"), ("C_n^3", r"\binom{3}{n}"), (r"\binom{n}{2}", r"\binom{n}{3}"), ("1", r"\lim_{x \to 0} \frac{1}{x}"),
        (r"\int_0^1 x\,dx", r"\int_0^1 x^2\,dx"), (r"\sum_{k=1}^{n} k^k", r"\int_0^1 x\,dx"), ("1", r"\sum_{k=1}^{\infty} 1"),
        (r"\lim_{x\to 0} f(x)", r"\lim_{x\to 1} f(x)"), ("0", r"\lim_{x \to 0} \frac{|x|}{x}"), (r"\prod_{k=1}^n k", r"\sum_{k=1}^n k"),
        ("2", r"\operatorname{rank}\begin{pmatrix}1&2\\2&4\end{pmatrix}"), ("C_1^2", "2"),
    ],
    "equations": [
        ("xy=2x", "y=2"), ("y=2", "xy=2x"), ("x=2", "x^2=2x"), ("x=2", "x^2=4"), ("xy=1", "y=x"), ("y=2x", r"\frac{y}{x}=3"),
        ("x=1", "1=1"), ("x+y=1", "x-y=1"), (r"\frac{dx}{dt}=kx", r"\frac{x}{t}=kx"), (r"x \ne 2", "x=2"), ("y<2x", "-y<-2x"),
    ],
    "regions": [
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}"), (r"\mathbb{R}", r"x \ne 2"), ("(-1,4)", r"\{x \mid -1 \le x<4\}"),
        (r"\mathbb{R}\setminus\{2\}", r"\mathbb{R}\setminus\{3\}"), (r"k\pi, k\in\mathbb{Z}", r"k\pi, k\in\mathbb{N}"),
        ("(0,2)", r"(0,1)\cup(1,2)"), ("[0,2]", r"[0,1]\cap[1,2]"), ("x<-1, x>3", "x<-1, x>4"), ("(1,2)", r"\{x : 1<x<3\}"),
        (r"\{1,2\}", "[1,2]"), ("(0,1)", "(0,0)"), (r"(a,b)\cup(c,d)", r"(a,b)\cap(c,d)"),
    ],
    "approximations, ratios, units": [
        (r"\frac{1}{3}", r"0.33 \approx \frac13"), ("5", r"5 \approx 6"), ("3:2", r"2 \text{ to } 3"), ("2 cats", "2 dogs"),
        (r"5\text{ N}", r"5\text{ J}"), (r"5\text{ mW}", r"5\text{ MW}"), (r"5\text{ m/s}", r"5\text{ m/s}^2"),
        ("5", r"-5\text{ m}"), (r"5\text{ km}", r"5\text{ m}"), (r"5\text{ s}^{-1}", r"5\text{ s}"), ("5", "6 cm"),
        (r"\text{half}", "0.5"), ("3", r"3\text{rd}"), ("3", "3^{rd}"), ("5", r"5\text{th}"), ("5", r"\text{minus } 5"),
    ],
    "sentences": [
        ("27", "About 27 miles"), ("27", "not 27 miles"), ("27", "27 or 28 miles"), ("27", "27 miles is wrong"),
        ("27", "The answer could be 27 miles"), ("5", "It is not 5 apples"), ("5", "There are five or 5 apples"),
        ("5", "There are 5 or more apples"), ("9", "196 has 9 divisors"), ("5", "5 tens of apples"), ("5", "She has 5 of six"),
        ("5", "The square of it is 5 squared"), ("5", "He is 5 less"), ("5", "There are 5 dozen eggs"),
    ],
}  # fmt: skip
PAIRS = [(gold, answer) for pairs in DIFFERENT.values() for gold, answer in pairs]


def paid(answer: str, gold: str) -> bool:
    return judge(rf"So the result is \boxed{{{answer}}}.", gold).correct


@pytest.mark.parametrize(("gold", "answer"), PAIRS)
def test_a_wrong_answer_is_not_paid(gold, answer):
    assert not paid(answer, gold)


@pytest.mark.parametrize("gold", GOLDS)
def test_no_answer_is_universal(gold):
    assert [answer for answer in UNIVERSAL if paid(answer, gold)] == []


@pytest.mark.parametrize("gold", ["5", "x", r"5\text{ cm}"])
def test_words_that_change_a_value_are_no_units(gold):
    value = gold.removesuffix(r"\text{ cm}")
    forms = [
        form
        for word in NO_UNITS
        for form in (rf"{value} \text{{ {word}}}", f"{value} {word}", rf"{value}\mathrm{{{word}}}")
    ]
    assert [form for form in forms if paid(form, gold)] == []
