"""Answers that are the gold in another form, by kind."""

import pytest

from pods_jax.rewards.verifiers.math import judge

EQUAL = {
    "runs of letters are products": [
        ("e^{at}", "e^{a t}"), ("v=u+at", "v=u+a t"), ("v=u+at", "v = u + t a"), ("2cba", "2abc"), ("2abc", "2cba"),
        ("x+at", "x+ta"), ("e^{at}", "e^{ta}"), ("mgh", "m g h"), ("mgh", "hgm"), ("e^{in}", "e^{ni}"), ("2at", "2ta"),
        ("y = by + do", "y = yb + od"), ("xsinx", r"x\sin x"), ("2mgh", r"2 \cdot m \cdot g \cdot h"), ("nRT", "RnT"),
        ("is+by", "by+is"), ("e^{no}", "e^{on}"), ("PV=nRT", "VP = RTn"),
    ],
    "units": [
        ("0.006", r"0.006\ \mathrm{m/s^2}"), ("27", r"27\text{ miles from }A"), ("5", r"5\text{ km}\,\text{s}^{-1}"),
        ("5", r"5 \AA"), ("5", r"5\ \text{\AA}"), ("5", "5 Å"), ("5", "5 µm"), ("5", r"5\ \mu\text{m}"), ("5", r"5\,\mu\mathrm{m}"),
        ("5", r"5^\circ\text{C}"), ("5", "5°C"), ("5", r"5\ ^{\circ}\mathrm{C}"), ("5", r"5\text{ degrees Celsius}"), ("-5", "-5°C"),
        ("5", r"5^\circ\text{F}"), *(("5", rf"5\text{{ {unit}}}") for unit in (
            "J V K eV cms N Pa Hz W C T F mol kJ MeV mA nm dB g kg mg s ms h min L mL rpm erg cal atm arcseconds"
        ).split()),
        ("5", "5 cms"), ("5", r"5\ \mathrm{kg\,m^2\,s^{-2}}"), ("5", r"5\ \mathrm{kg \cdot m/s}"), ("5", r"5\ \mathrm{N\,m}"),
        ("5", r"5\text{ kJ/mol}"), ("5", r"5 \mathrm{~km} \mathrm{~s}^{-1}"), ("5", r"5 \mathrm{~erg} / \mathrm{s}"),
        ("5", r"5 \mathrm{~cm}^{-3}"), ("5", r"5\ \mathrm{W\,m^{-2}\,K^{-1}}"), ("5", r"5\ \Omega"), ("5", r"5\ \text{k}\Omega"),
        ("5", "5 m/s"), ("5", "5 m/s^2"), ("5", "5 km/h"), ("5", r"5\text{ solar masses}"), ("5", r"5\text{ J/(mol K)}"),
        (r"5\text{ km s}^{-1}", r"5\text{ km/s}"), (r"5\text{ m/s}", r"5\text{ meters per second}"),
        (r"5 \text{ m/s}^2", r"5 \text{ meters per second squared}"), (r"5\text{ kJ}", r"5 \text{ kilojoules}"),
        (r"5\text{ cm}^2", r"5\text{ sq. cm}"), (r"5\text{ cm}^3", r"5\text{ cubic centimetres}"), (r"5\text{ N m}", r"5\text{ m N}"),
        ("4.5e33", r"4.5 \times 10^{33}\ \mathrm{erg/s}"), ("4.5e33", r"4.5 \times 10^{33}\text{ erg s}^{-1}"), ("7e37", r"7\times 10^{37}"),
        ("3e8", r"3\times10^8\,\text{m}\cdot\text{s}^{-1}"), (r"2\pi", r"2\pi\text{ rad}"), ("10", r"10^\circ\text{C}"),
    ],
    "counted things": [
        ("5", "5 apples"), ("5", r"5\text{ apples}"), ("14", r"14\text{ right triangles}"), ("65", r"65 \text{ children tickets }"),
        ("16", r"16\text{ daps}"), ("540", "540 meters/week"), ("18", "$18/day"), ("27", "27 miles from City A."),
        (r"14\text{ right triangles}", r"14\text{ triangles}"), ("864", r"864 \mbox{ inches}^2"), ("45", r"45 \text{ units}^2"),
        ("1920", r"1920\text{ ways.}"), ("20", "20 cups of feed"), ("9", r"9\text{ positive whole-number divisors}"),
    ],
    "sentences with one number": [
        ("27", "The distance is 27 miles."), ("18", "Janet makes $18 every day at the farmers' market."), ("9", "There are 9 divisors."),
        ("0.5", "The probability is 1/2."), ("1500000", "He has 1.5 million dollars in total"), ("27", "It takes 27 minutes"),
    ],
    "full stops and delimiters": [
        ("5", r"\(5.\)"), (r"(3, \frac{\pi}{2})", r"\((3, \frac{\pi}{2}).\)"), ("5", r"\[5.\]"), ("5", "$5.$"), ("5", r"$$5.$$"),
        ("0.5", r"\(0.5.\)"), ("70000", "$$\n70{,}000\n$$"), ("111111111", r"111, \! 111, \! 111"), ("5", r"\[ 5 \text{ cm}. \]"),
    ],
    "choices of letters": [
        (r"\text{A, B}", "A, B"), (r"\text{A, B}", "B, A"), (r"\text{A,B,C,D}", "A, B, C, D"), (r"\text{A, B}", r"\text{A and B}"),
        (r"\text{A, D, F, G, H}", "A,D,F,G,H"), (r"\text{A, B}", r"\text{A}, \text{B}"), (r"\text{A, B}", r"\text{A}\text{ and }\text{B}"),
        (r"\text{Softball, Kickball, Picnic}", "Softball, Kickball, Picnic"), ("A, C", r"\text{(A), (C)}"),
    ],
    "binomials": [
        *((r"\binom n3", form) for form in ("C_n^3", "C(n,3)", r"{n \choose 3}", "n(n-1)(n-2)/6", "{}_nC_3", "_nC_3", "C^n_3",
                                            r"\dbinom{n}{3}", r"\frac{n!}{3!(n-3)!}", "^nC_3", "C_{n}^{3}")),
        *(("10", form) for form in ("C_5^2", r"\binom52", "C(5,2)", r"{5 \choose 2}", "{}_5C_2", "^5C_2", "C^2_5", r"\binom{5}{3}")),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{(n!)^2}"), (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}"), (r"\binom nk", "C_n^k"),
        (r"\binom nk", r"\frac{n!}{k!(n-k)!}"), (r"\frac{n(n-1)(n-2)}{6}", "C_n^3"), ("20", "_5P_2"), ("n(n-1)", "_nP_2"),
    ],
    "notations": [
        (r"\bar z", r"\overline z"), (r"\bar{z}", r"\overline{z}"), (r"\arctan 2", r"\operatorname{arctan}2"),
        (r"\arctan 2", r"\tan^{-1}2"), (r"\arctan 2", r"\mathrm{arctan}(2)"), (r"\frac18", "⅛"), ("2.125", "2⅛"),
        (r"\operatorname{lcm}(4,6)", "12"), (r"\mathrm{sin}(x)", r"\sin x"), ("v_0^2", "v^2_0"), ("v_{0}^{2}", "v^{2}_{0}"),
        ("6", r"2\left\{ 3 \right\}"), ("y^{\\prime}+ry=0", "y'+ry=0"), ("np.arcsin(10/13)", r"\arcsin\frac{10}{13}"),
        ("3:2", r"3 \text{ to } 2"), ("3:2", "3 to 2"), ("x^2+1", r"x \mapsto x^2+1"), ("x^2+1", r"f: x \mapsto x^2+1"),
        ("f(x)=x^2+1", r"x \mapsto x^2+1"), (r"\frac{d x}{d t}=k x-a", r"\frac{dx}{dt}+a=kx"), ("6", "{}6"),
        (r"\vec{AB}", r"\overrightarrow{AB}"), ("2", r"\mathrm{2}"), ("101_2", "101"), ("101", "101_{10}"),
    ],
    "approximations": [
        ("8.24", r"\approx 8.24"), (r"\approx 8.24 \text{ mph}", "8.24"), (r"\frac23", r"\frac23 \approx 0.67"), ("8.24", r"x \approx 8.24"),
        (r"\$\dfrac23 \approx \$0.67", r"\frac23"), (r"\sqrt2", r"x = \sqrt2 \approx 1.414"), ("5", r"\approx 5"),
    ],
    "regions": [
        *(("(1,3)", form) for form in (r"\{x : 1<x<3\}", r"\{x \mid 1<x<3\}", r"\left\{x \in \mathbb{R} \mid 1<x<3\right\}",
                                       r"\{x | 1<x<3\}", r"x>1 \text{ and } x<3", r"x \in (1,3)", r"(1,2]\cup(2,3)",
                                       r"(0,3)\cap(1,4)", r"(1,4)\setminus[3,4)")),
        (r"\mathbb{R}\setminus\{2\}", r"(-\infty,2)\cup(2,\infty)"), (r"x\ne2", r"\mathbb{R}-\{2\}"), ("[0,2]", r"[0,1]\cup[1,2]"),
        (r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)", r"\mathbb{R}\setminus\{-1,1\}"), ("x<-1 or x>4", r"(-\infty,-1)\cup(4,\infty)"),
        (r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)", r"x \ne -1, x \ne 1"), ("(0,\\infty)", r"\{x \in \mathbb{R} : x > 0\}"),
        (r"(a,b)\cup(c,d)", r"(c,d)\cup(a,b)"), (r"[\sqrt2,2)", r"\sqrt{2} \le x < 2"),
    ],
    "domains": [
        (r"\frac{\pi}{4}+k\pi", r"\frac{\pi}{4}+k\pi, k \in \mathbb{Z}"), (r"k\pi, k\in\mathbb{Z}", r"k\pi"),
        (r"\frac{\pi}{4}+k\pi", r"x=\frac{\pi}{4}+k\pi \text{ where } k \text{ is an integer}"),
        (r"\frac{\pi}{4}+k\pi", r"\frac{\pi}{4}+k\pi, \text{ for } k \in \mathbb{Z}"), ("x+1", "x+1 for all x"),
        ("x+1", r"x+1 \text{ for all } x"), ("f(x)=x+1", r"f(x)=x+1 \text{ for all real } x"), ("x+1", r"x+1, \forall x \in \mathbb{R}"),
        ("f(x)=x+1", r"f(x)=x+1\ \forall x \in \mathbb{R}"), (r"k\pi", r"k\pi, \text{ where } k \text{ is any integer}"),
    ],
    "sums, products, integrals, limits": [
        (r"\sum_{k=1}^{10} k", "55"), (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^n k"), (r"\frac{\pi^2}{6}", r"\sum_{n=1}^\infty \frac{1}{n^2}"),
        ("n!", r"\prod_{k=1}^n k"), (r"\frac12", r"\int_0^1 x\,dx"), (r"\ln 2", r"\int_1^2 \frac{dx}{x}"), ("2", r"\int_0^\pi \sin x \, dx"),
        ("1", r"\lim_{x \to 0} \frac{\sin x}{x}"), (r"\int_0^1 x^2 dx", r"\int_0^1 t^2 dt"), (r"\sqrt{\pi}", r"\int_{-\infty}^{\infty} e^{-x^2} dx"),
        (r"\sum_{i=1}^n i^2", r"\frac{n(n+1)(2n+1)}{6}"), (r"\sum_{k=1}^{n} k", r"\sum_{j=1}^{n} j"), ("2^n", r"\sum_{k=0}^n \binom{n}{k}"),
        (r"\frac{x^2}{2}", r"\int_0^x t \, dt"), ("2", r"\sum_{k=0}^{\infty} \frac{1}{2^k}"), (r"\frac{1}{2}", r"\int_0^{1} \theta \, d\theta"),
        ("2", r"\operatorname{rank}\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"\int_0^1 x\,\mathrm{d}x", "0.5"),
        (r"\begin{cases} x & x>0 \\ -x & x \le 0\end{cases}", r"\begin{cases} -x & \text{if } x \le 0 \\ x, & \text{if } x>0\end{cases}"),
    ],
    "equations up to a factor": [
        ("xy=1", r"y=\frac1x"), (r"y=\frac1x", "xy=1"), (r"\frac{x}{2}+\frac{1}{y}=1", "xy+2=2y"), ("2x-y+3=0", "y=2x+3"),
        ("y=2x", r"\frac{y}{x}=2"), ("y^{\\prime}+r y-r x(t)=0", "y'+ry=rx(t)"), ("(x-2)^2=0", "x=2"),
    ],
    "values of functions and products": [
        ("I(0)e^{-t/RC}", "e^{-t/RC}I(0)"), ("n(n+1)", "n^2+n"), ("x(x)", "x^2"), ("a(b+c)", "ab+ac"), ("f(2)=5", "5"), ("5", "f(2)=5"),
        ("f^{-1}(x)=x-1", "x-1"), ("P(1+r)^2", "P(r+1)^2"), ("a(x-1)(x+2)", "a(x^2+x-2)"), (r"\frac{h(a+b)}{2}", r"\frac{1}{2}(a+b)h"),
        ("f(x)+g(x)", "g(x)+f(x)"), ("f(x+1)", "f(1+x)"), ("f(x)^2", "f(x)f(x)"), ("1/x(x+1)", "(x+1)/x"), ("2f(0)", "f(0)+f(0)"),
        ("|x-200|", "|200-x|"), ("x(x+1)^2", "x^3+2x^2+x"), ("c(2)", "c(2)"), ("n(n-1)!", "n!"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), [pair for pairs in EQUAL.values() for pair in pairs])
def test_a_right_answer_is_paid(gold, answer):
    assert judge(rf"So the result is \boxed{{{answer}}}.", gold).correct
