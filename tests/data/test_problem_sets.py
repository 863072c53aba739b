"""The registered problem sets: fields to examples, splits, and what is refused or skipped."""

import json
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.boxed import in_box
from pods_jax.data import DATASETS, Example
from pods_jax.errors import UserError
from pods_jax.rewards import check_gold

MATH_SETS = (
    "math",
    "math500",
    "amc23",
    "aime24",
    "aime25",
    "minerva",
    "olympiadbench",
    "deepmath",
    "deepmath_filtered",
    "polaris",
)
EVALUATION_ONLY = ("math500", "amc23", "aime24", "aime25", "minerva", "olympiadbench")


def write(path, records) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)


def problem(number: int, **fields) -> dict:
    return {"problem": f"What is {number}?", "answer": str(number)} | fields


@pytest.mark.parametrize(
    ("fields", "gold"),
    [
        ({"problem": "p", "solution": r"First \boxed{1}. So \boxed{\frac{1}{\sqrt{2}}}."}, r"\frac{1}{\sqrt{2}}"),
        ({"problem": "p", "solution": r"\boxed{5}", "answer": "6"}, "6"),
        ({"question": "p", "final_answer": r"\infty"}, r"\infty"),
        ({"question": "p", "final_answer": ["$3$"]}, "3"),
        ({"question": "p", "final_answer": ["1", "2"]}, "1, 2"),
        ({"question": "p", "answer": 27.0}, "27"),
        ({"question": "p", "final_answer": ["$x=1$", "$2$"]}, "x=1, 2"),
        ({"question": "p", "answer": None, "solution": r"\boxed{5}"}, "5"),
        ({"question": "p", "answer": 0.5}, "0.5"),
        ({"problem": "p", "answer": " $x$ "}, "x"),
    ],
)
def test_golds_are_taken_whole(tmp_path, fields, gold):
    data = DATASETS["amc23"](write(tmp_path / "test.jsonl", [fields]), {}, 0)
    assert data.test == (Example("p", gold),)


@given(
    st.recursive(st.sampled_from(["x", "12", r"\{", r"\}"]), lambda s: st.builds("{{{}}}{}".format, s, s), max_leaves=9)
)
def test_boxes_are_balanced(content):
    assert in_box(rf"so \boxed{{{content}}} and {{}}") == content


@pytest.mark.parametrize("name", MATH_SETS)
def test_every_set_reads_a_file_and_says_what_it_is_for(tmp_path, name):
    path = write(tmp_path / "all.jsonl", [problem(i, id=i) for i in range(10)])
    data = DATASETS[name](path, {"num_test": 4}, 0)
    assert (len(data.train), len(data.test)) == ((0, 4) if name in EVALUATION_ONLY else (6, 4))
    assert data.task == "math"
    assert r"\boxed{}" in data.system


@pytest.mark.parametrize("name", MATH_SETS)
def test_every_set_is_asked_for_at_the_hub(monkeypatch, name):
    asked = []

    def load_dataset(repository: str, config: str | None, split: str) -> list:
        asked.append((repository, config, split))
        return [problem(i + 1000 * len(asked)) for i in range(300)]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    data = DATASETS[name](None, {}, 0)
    assert bool(data.train) == (name not in EVALUATION_ONLY)
    assert data.test
    assert len(asked) == {"math": 14, "deepmath_filtered": 2}.get(name, 1)


def test_olympiadbench_keeps_text_problems_of_all_types_that_have_a_gold(tmp_path):
    rows = [
        problem(1, modality="Text-only", answer_type="Numerical"),
        problem(2, modality="Multimodal", answer_type="Numerical"),
        problem(3, modality="Text-only", answer_type="Interval", answer="(0, 3)"),
        problem(4, modality="Text-only", answer_type="Need_human_evaluate", answer=""),
        problem(5, modality="Text-only", answer_type="Expression", answer="n^2"),
        problem(6, modality="Text-only", answer_type="Equation", answer="y = x"),
        problem(7, modality="Text-only", answer_type="Tuple", answer="(1, 2)"),
    ]
    data = DATASETS["olympiadbench"](write(tmp_path / "test.jsonl", rows), {}, 0)
    assert [example.gold for example in data.test] == ["1", "(0, 3)", "n^2", "y = x", "(1, 2)"]
    assert (data.task, data.skipped) == ("math", 0)


@pytest.mark.parametrize(
    ("name", "fields", "gold"),
    [
        ("minerva_tolerant", {"answer": "1.6"}, {"answers": ["1.6"], "relative": 0.01}),
        (
            "minerva_tolerant",
            {"answer": None, "solution": r"\boxed{4.5e33}"},
            {"answers": ["4.5e33"], "relative": 0.01},
        ),
        ("olympiadbench_tolerant", {"final_answer": ["$2$"], "answer": None}, {"answers": ["2"]}),
        ("olympiadbench_tolerant", {"error": None, "unit": ""}, {"answers": ["1"]}),
        ("olympiadbench_tolerant", {"error": "1e-1"}, {"answers": ["1"], "absolute": [0.1]}),
        (
            "olympiadbench_tolerant",
            {"answer": ["$1$", "2"], "error": "1e-1", "unit": "cm"},
            {"answers": ["1", "2"], "unit": "cm", "absolute": [0.1, 0.1]},
        ),
        (
            "olympiadbench_tolerant",
            {"answer": ["1", "2"], "error": "1e-1, 0.5"},
            {"answers": ["1", "2"], "absolute": [0.1, 0.5]},
        ),
    ],
)
def test_tolerances_are_fields_of_the_gold(tmp_path, name, fields, gold):
    data = DATASETS[name](write(tmp_path / "test.jsonl", [problem(1) | fields]), {}, 0)
    assert json.loads(data.test[0].gold) == gold
    assert data.task == "math_tolerance"
    check_gold(data.test[0].gold, data.task)


@pytest.mark.parametrize("error", ["small", "0.1,0.2", "-1", "inf"])
def test_an_error_that_fits_no_answer_is_a_bad_row(tmp_path, error):
    path = write(tmp_path / "test.jsonl", [problem(1, error=error)])
    with pytest.raises(UserError, match=r"test\.jsonl:1: the error '"):
        DATASETS["olympiadbench_tolerant"](path, {}, 0)


BAD_ROWS = [
    ("{", "not JSON"),
    ('{"problem": "p"}', "expected a text that is not empty in 'answer'"),
    ('{"problem": "p", "answer": ""}', "expected a text that is not empty in 'answer'"),
    ('{"answer": "5"}', "expected a text that is not empty in 'problem' or 'question'"),
    ('{"problem": "p", "solution": "no box"}', r"no answer in \\boxed"),
    ('{"problem": "p", "solution": "\\\\boxed{}"}', r"no answer in \\boxed"),
    ('{"problem": "p", "answer": NaN}', "nan is no answer"),
    ('{"problem": "p", "answer": "NaN"}', "'NaN' is no answer"),
    ('{"problem": "p", "answer": Infinity}', "inf is no answer"),
    ('{"problem": "p", "answer": true}', "True is no answer"),
    ('{"problem": "p", "answer": {"a": 1}}', "is no answer"),
    ('{"problem": "p", "answer": ["1", NaN]}', "nan is no answer"),
    ('{"problem": "p", "answer": "", "final_answer": []}', "expected a text that is not empty in 'answer'"),
    (r'{"problem": "p\ud800", "answer": "5"}', "cannot be encoded"),
    (json.dumps(problem(1, id=1)), r"the same id '1' as .*all\.jsonl:1"),
]


@pytest.mark.parametrize(("line", "message"), BAD_ROWS)
def test_bad_rows_are_named_or_skipped_and_counted(tmp_path, line, message):
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join([json.dumps(problem(1, id=1)), line, json.dumps(problem(2, id=2))]))
    with pytest.raises(UserError, match=message) as raised:
        DATASETS["amc23"](str(path), {}, 0)
    assert str(raised.value).startswith(f"{path}:2: ")
    data = DATASETS["amc23"](str(path), {"on_bad": "skip"}, 0)
    assert ([e.gold for e in data.test], data.skipped) == (["1", "2"], 1)
    assert [e.where for e in data.test] == [f"{path}:1", f"{path}:3"]


def test_a_known_defect_is_left_out_with_a_warning_unless_refused(tmp_path, caplog):
    rows = [{"problem": "p", "solution": rf"So \boxed{{{gold}}}."} for gold in ("1", "", "2", "3")]
    path = write(tmp_path / "train.jsonl", rows)
    data = DATASETS["math"](path, {"num_test": 1}, 0)
    assert ([e.gold for e in data.train + data.test], data.skipped) == (["1", "2", "3"], 1)
    assert f"{path}:2: the solution has no answer in \\boxed{{}}: left out" in caplog.text
    with pytest.raises(UserError, match=r"train\.jsonl:2: the solution has no answer"):
        DATASETS["math"](path, {"num_test": 1, "on_bad": "error"}, 0)
    write(tmp_path / "train.jsonl", [*rows, {"problem": "p", "solution": "no box"}])
    with pytest.raises(UserError, match=r"train\.jsonl:5: the solution has no answer"):
        DATASETS["math"](path, {"num_test": 1}, 0)


def test_options_and_empty_data_are_named(tmp_path):
    path = write(tmp_path / "all.jsonl", [{"problem": "p"}])
    with pytest.raises(UserError, match="on_bad is 'ignore'"):
        DATASETS["math"](path, {"on_bad": "ignore"}, 0)
    with pytest.raises(UserError, match="no row is usable"):
        DATASETS["amc23"](path, {"on_bad": "skip"}, 0)
    with pytest.raises(UserError, match=r"train\.jsonl: cannot be read"):
        DATASETS["math"](str(tmp_path / "nowhere.jsonl").replace("nowhere", "train"), {}, 0)


def chemistry(number: int, kind: str = "mcq-4-choices", **fields) -> dict:
    return {
        "prompt": {"default": "Choose."}, "question": f"Which is {number}?", "type": kind, "answerKey": "B",
        "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answer": "", "domain": "Chemistry",
        "details": {"task": "quiz"},
    } | fields  # fmt: skip


def test_chemistry_prompts_and_golds(tmp_path):
    empty = {"text": [], "label": []}
    rows = [
        chemistry(1),
        chemistry(2, "true_or_false", answer="Yes", answerKey="", choices=empty),
        chemistry(3, "filling", answer="H2 = H2", answerKey="", choices=empty, details=None),
        chemistry(4, domain="Physics"),
    ]
    write(tmp_path / "L1.jsonl", rows[:2])
    write(tmp_path / "L2.jsonl", rows[2:])
    data = DATASETS["sciknoweval_chemistry"](str(tmp_path), {"num_test": 1}, 0)
    found = {e.gold: e for e in data.train + data.test}
    assert found.keys() == {"B", "Yes", "H2 = H2"}
    assert found["B"] == Example("Choose.\n\nWhich is 1?\n\nA) x\nB) y", "B", "quiz")
    assert found["Yes"].prompt == "Choose.\n\nWhich is 2?"
    assert found["H2 = H2"].kind == "filling"
    again = DATASETS["sciknoweval_chemistry"](str(tmp_path), {"num_test": 1}, 0)
    assert (again.train, again.test) == (data.train, data.test)


def test_chemistry_rows_with_loose_choices_are_named(tmp_path):
    path = write(tmp_path / "all.jsonl", [chemistry(1, choices={"text": ["x"], "label": []})])
    with pytest.raises(UserError, match="1 choices with 0 labels"):
        DATASETS["sciknoweval_chemistry"](path, {"num_test": 1}, 0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("math", {"num_test": "2"}),
        ("math", {"num_test": 2.0}),
        ("gsm8k", {"num_test": [2]}),
        ("gsm8k", {"on_bad": ["skip"]}),
        ("addition", {"base": "5"}),
        ("addition", {"digits": 2.5}),
        ("addition", {"carry_prob": "0.3"}),
        ("addition", {"num_train": None}),
        ("addition", {"unseen_fraction": float("nan")}),
        ("reasoning_gym", {"dataset": 3, "num_train": 4, "num_test": 4}),
        ("reasoning_gym", {"dataset": "chain_sum", "num_train": "4", "num_test": 4}),
        ("reasoning_gym", {"dataset": "chain_sum", "num_train": 4, "num_test": 4, "params": [1]}),
    ],
    ids=str,
)
def test_options_of_another_type_are_named(name, options):
    with pytest.raises(UserError, match=r"data(\.options| set .*): \w+ = .* must be "):
        DATASETS[name](None, options, 0)
