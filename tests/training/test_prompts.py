"""Data sets, prompts and golds as a config asks for them."""

import dataclasses
import datetime
import json
from pathlib import Path

import pytest
import tokenizers
from ml_collections import FrozenConfigDict

from pods_jax.analysis.runs import read_run
from pods_jax.config.load import load_config
from pods_jax.config.schema import Config, DataConfig, LoraConfig, ModelSection, RewardConfig, from_mapping
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.rewards.parts import REWARD_SETS
from pods_jax.training import Reporter, train
from pods_jax.training.prompts import load_data, load_dataset

ROOT = Path(__file__).parents[2]


def config(**sections) -> Config:
    return dataclasses.replace(Config(), **sections)


def write(path, golds) -> str:
    path.write_text("".join(json.dumps({"problem": f"Find {i}", "answer": g}) + "\n" for i, g in enumerate(golds)))
    return str(path)


def frozen(**values):
    return FrozenConfigDict(values)


def test_another_set_is_evaluated_on_and_prompts_are_rendered(tmp_path):
    train = write(tmp_path / "train.jsonl", ["1", "2", "3"])
    test = write(tmp_path / "test.jsonl", [r"\frac12"])
    data = DataConfig("math", train, frozen(num_test=1), "math500", test, frozen(), "Be brief.", "Q: {question} {x}")
    dataset = load_dataset(config(data=data))
    assert [e.gold for e in dataset.train] == ["1", "2"]
    assert [(e.prompt, e.gold) for e in dataset.test] == [("Q: Find 0 {x}", r"\frac12")]
    assert (dataset.system, dataset.task) == ("Be brief.", "math")
    assert load_dataset(config(data=data, reward=RewardConfig(task="pods_lenient"))).task == "pods_lenient"


def test_golds_are_checked_when_they_are_loaded(tmp_path):
    path = write(tmp_path / "train.jsonl", ["1", r"\frac{1}{2", "3", "4"])
    with pytest.raises(UserError, match=r"train\.jsonl:2: math: the gold .* unbalanced"):
        load_dataset(config(data=DataConfig("math", path, frozen(num_test=1))))
    dataset = load_dataset(config(data=DataConfig("math", path, frozen(num_test=1, on_bad="skip"))))
    assert ([e.gold for e in dataset.train], dataset.skipped) == (["1", "3"], 1)


def test_a_table_needs_a_task_from_somewhere(tmp_path):
    rows = [{"prompt": f"Find {i}", "answer": i, "level": i} for i in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"data set 'table' names no verifier: set data\.options\.task or reward\.task"):
        load_dataset(config(data=DataConfig("table", str(path))))
    with pytest.raises(UserError, match=r"data set 'table': task 'mth' is unknown \(did you mean 'math'"):
        load_dataset(config(data=DataConfig("table", str(path), frozen(task="mth"))))
    assert load_dataset(config(data=DataConfig("table", str(path), frozen(task="math")))).task == "math"
    given = config(data=DataConfig("table", str(path)), reward=RewardConfig(task="exact"))
    assert load_dataset(given).task == "exact"
    both = DataConfig("table", str(path), frozen(task="math"), eval_name="table", eval_path=str(path))
    assert len(load_dataset(config(data=both)).test) == 1


def test_bad_golds_of_a_sets_own_test_problems_are_skipped_as_its_others_are(tmp_path):
    path = write(tmp_path / "train.jsonl", ["1", "2", "3", r"\frac{1}{2"])
    dataset = load_dataset(config(data=DataConfig("math", path, frozen(num_test=2, on_bad="skip"))))
    assert ([e.gold for e in dataset.test], dataset.skipped) == (["3"], 1)


def test_sets_that_do_not_fit_are_named(tmp_path):
    path = write(tmp_path / "test.jsonl", ["1", "2"])
    with pytest.raises(UserError, match=r"'amc23' has no training problems: name it as data\.eval_name"):
        load_dataset(config(data=DataConfig("amc23", path)))
    with pytest.raises(UserError, match=r"'exact' and 'math': set reward\.task"):
        load_dataset(config(data=DataConfig(eval_name="amc23", eval_path=path)))


def test_the_set_whose_prompts_are_all_too_long_is_named(tiny):
    longer = tiny.data.options.to_dict() | {"digits": 4}
    tiny.evaluation.sets = {"long": {"name": "addition", "options": longer}}
    with pytest.raises(UserError, match=r"^evaluation\.sets\.long: every prompt is longer"):
        load_data(from_mapping(tiny)[0])
    tiny.data.eval_name, tiny.data.eval_options = "addition", longer
    with pytest.raises(UserError, match=r"^test set: every prompt is longer"):
        load_data(from_mapping(tiny)[0])
    tiny.rollout.max_prompt_length = 3
    with pytest.raises(UserError, match=r"^training set: every prompt is longer"):
        load_data(from_mapping(tiny)[0])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reward.task=mth", "reward.task = 'mth' is unknown (did you mean 'math'?)"),
        ("reward.task=nowhere:f", "reward function 'nowhere:f': expected module:function"),
        ("reward.parts=pods", "reward.parts = 'pods' is unknown"),
        ("reward.parts={'corectness': 1.0}", "did you mean 'correctness'?"),
        ("reward.parts={'correctness': 'x'}", "the weight of 'correctness' must be a finite number, got 'x'"),
        ("reward.functions={'mine': 'nowhere:f'}", "reward function 'nowhere:f': expected module:function"),
        ("data.eval_name=math50", "data.eval_name = 'math50' is unknown (did you mean 'math500'?)"),
        ("data.prompt_template='no question'", "has no '{question}' in it"),
    ],
)
def test_mistakes_in_the_config_are_named(override, message):
    with pytest.raises(UserError) as raised:
        load_config(str(ROOT / "configs/demo.py"), [override])
    assert message in str(raised.value)


@pytest.mark.parametrize("name", REWARD_SETS)
def test_the_named_sets_are_valid(name):
    assert not violations(config(reward=RewardConfig(parts=name)))
    assert not violations(config(reward=RewardConfig(parts=frozen(**REWARD_SETS[name]))))


def test_a_run_logs_each_part_and_troubles(tiny, tmp_path):
    tiny.reward.parts = {"correctness": 1.0, "digits": 0.5, "truncated": -0.25}
    tiny.training.num_steps, tiny.training.eval_every_steps = 2, 0
    built, problems = from_mapping(tiny)
    assert not problems
    train(built, tmp_path / "run", Reporter())
    for metrics in read_run(tmp_path / "run").metrics:
        parts = [metrics[f"rewards/{name}/mean"] for name in ("correctness", "digits", "truncated")]
        assert metrics["reward"] == pytest.approx(parts[0] + 0.5 * parts[1] - 0.25 * parts[2], abs=1e-6)
        assert metrics["accuracy"] == pytest.approx(parts[0])
        assert metrics["completions/clipped_ratio"] == pytest.approx(parts[2])
        assert metrics["verdicts/timeout"] == metrics["verdicts/crashed"] == 0.0


# ---------------------------------------------------------------- chat templates

CHAT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if dated is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}[answer]"
)


def chat_model(folder) -> str:
    """A folder with a byte-level tokenizer and a chat template, and no weights."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["</s>"])
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": CHAT}))
    return str(folder)


def chat_config(tmp_path, rows, **data) -> Config:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = DataConfig("math", str(path), frozen(num_test=1), system_prompt="Be brief.", **data)
    folder = tmp_path / "model"
    model = str(folder) if folder.exists() else chat_model(folder)
    return config(data=section, model=ModelSection(path=model))


TURNS = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "Find 1."},
]
ROWS = [{"prompt": TURNS, "answer": "1"}, {"problem": "Find 2.", "answer": "2"}]


def texts(data) -> list[str]:
    return [data.tokenizer.decode(tokens) for tokens in (*data.train.tokens, *data.test.tokens)]


def test_conversations_and_problems_become_prompts(tmp_path):
    data = load_data(chat_config(tmp_path, ROWS, prompt_template="Q: {question}"))
    assert texts(data) == [
        "[system]Be brief.[user]Hello.[assistant]Hi![user]Q: Find 1.[answer]",
        "[system]Be brief.[user]Q: Find 2.[answer]",
    ]
    data = load_data(chat_config(tmp_path, ROWS, system_role="user"))
    assert texts(data)[0] == "[user]Be brief.\n\nHello.[assistant]Hi![user]Find 1.[answer]"


@pytest.mark.parametrize(
    "turns", [TURNS[:2], [{"role": "user"}], ["Find 1."], [{"role": "user", "content": ["a"]}]], ids=str
)
def test_a_prompt_that_is_no_conversation_names_its_row(tmp_path, turns):
    with pytest.raises(UserError, match=r"rows\.jsonl:1: 'prompt': "):
        load_data(chat_config(tmp_path, [{"prompt": turns, "answer": "1"}, ROWS[1]]))


def test_a_prompt_that_cannot_be_rendered_names_its_row(tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text("{% if 'two' in messages[-1].content %}{{ raise_exception('no') }}{% endif %}" + CHAT)
    rows = [{"problem": f"Find {i}.", "answer": "1"} for i in ("one", "two", "three")]
    with pytest.raises(UserError, match=r"rows\.jsonl:2: the chat template of .*mine\.jinja failed: .*no"):
        load_data(chat_config(tmp_path, rows, chat_template=str(file)))


def test_text_that_cannot_be_encoded_names_its_row(tmp_path):
    with pytest.raises(UserError, match=r"rows\.jsonl:1: .*cannot be encoded") as error:
        load_data(chat_config(tmp_path, [{"problem": "Find \ud800.", "answer": "1"}, ROWS[1]]))
    assert str(error.value).isprintable()


def test_prompts_name_the_day_they_are_given(tmp_path):
    made = chat_config(tmp_path, ROWS, chat_template_kwargs=frozen(dated=True))
    data = load_data(made, datetime.date(2024, 2, 29))
    assert texts(data)[1] == "[system]Be brief.[user]Find 2.29 Feb 2024[answer]"
    assert data.tokenizer.dated
    assert load_data(made).date == datetime.date.today()


@pytest.mark.parametrize(("system_role", "rank", "path"), [("nowhere", 0, None), ("system", 0, "adapter")])
def test_keys_that_do_not_fit_are_named(system_role, rank, path):
    bad = config(data=DataConfig(system_role=system_role), lora=LoraConfig(rank=rank, path=path))
    (problem,) = violations(bad)
    assert problem.startswith("lora.path" if path else "data.system_role = 'nowhere'")


def test_fewer_test_problems_are_spread_over_the_file_and_always_the_same(tiny):
    tiny.evaluation.num_prompts = 8
    whole = load_data(from_mapping(tiny)[0]).test.examples
    tiny.evaluation.num_prompts = 5
    few, again = (load_data(from_mapping(tiny)[0]).test.examples for _ in range(2))
    assert few == again
    assert len(few) == 5
    assert few != whole[:5]
    assert list(few) == [example for example in whole if example in few]


def test_no_test_problems_are_no_long_prompts(tiny):
    tiny.data.options.num_test = 0
    with pytest.raises(UserError, match="test set: there are no problems in it"):
        load_data(from_mapping(tiny)[0])


def test_an_empty_path_is_none_and_not_the_current_folder():
    with pytest.raises(UserError, match=r"set data\.path to a file"):
        load_dataset(dataclasses.replace(Config(), data=DataConfig(name="table", path="")))
