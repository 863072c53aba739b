"""Data and frozen weights that are replaced between two lives of a run are noticed, and nothing else is."""

import dataclasses
import datetime
import json
import re
import time

import jax
import pytest
import tokenizers

from pods_jax.config.schema import from_mapping
from pods_jax.data import Dataset, Example
from pods_jax.data.tokenizers import CharTokenizer
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig, init_params, save_pretrained
from pods_jax.training import Reporter, evaluate_checkpoint, export_checkpoint, train
from pods_jax.training.inputs import fingerprints
from pods_jax.training.prompts import RunData, TokenisedExamples, load_data

TRAIN = "the training problems"
EXAMPLE = Example("1+1=", "2", "sum", "file, row 1", ({"role": "user", "content": "hello"},), {"level": 3})


def data_of(example, tokens=(1, 2)):
    only = TokenisedExamples((example,), (tokens,), 0)
    return RunData(Dataset((example,), (), "exact"), CharTokenizer("12+="), only, only)


def built(values):
    config, problems = from_mapping(values)
    assert not problems
    return config


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "1+2="},
        {"gold": "3"},
        {"kind": "product"},
        {"earlier": ({"role": "user", "content": "hi"},)},
        {"columns": {"level": 4}},
    ],
)
def test_whatever_a_run_reads_of_an_example_is_hashed(tiny, change):
    config = built(tiny)
    same = fingerprints(config, data_of(EXAMPLE))
    assert fingerprints(config, data_of(dataclasses.replace(EXAMPLE, where="copy, row 1"))) == same
    changed = fingerprints(config, data_of(dataclasses.replace(EXAMPLE, **change)))
    assert all(changed[name] != same[name] for name in same)
    assert fingerprints(config, data_of(EXAMPLE, (1, 3)))[TRAIN] != same[TRAIN]


def test_values_that_json_lacks_have_the_same_hash_in_every_process(tiny):
    config = built(tiny)
    first, second = (
        fingerprints(
            config, data_of(dataclasses.replace(EXAMPLE, columns={"image": object(), "day": datetime.date.today()}))
        )
        for _ in range(2)
    )
    assert first == second


def test_the_order_of_examples_is_part_of_them(tiny):
    config = built(tiny)
    data = load_data(config)
    back = TokenisedExamples(data.train.examples[::-1], data.train.tokens[::-1], 0)
    assert fingerprints(config, data) == fingerprints(config, load_data(config))
    assert fingerprints(config, dataclasses.replace(data, train=back))[TRAIN] != fingerprints(config, data)[TRAIN]


def test_a_hundred_thousand_problems_take_seconds(tiny):
    example = dataclasses.replace(EXAMPLE, prompt="x" * 300, columns={"solution": "y" * 1000})
    train = TokenisedExamples((example,) * 100_000, (tuple(range(150)),) * 100_000, 0)
    start = time.process_time()
    fingerprints(built(tiny), dataclasses.replace(data_of(EXAMPLE), train=train))
    assert time.process_time() - start < 10


# ---------------------------------------------------------------- whole runs


def save_model(folder, seed):
    """A random model that knows the characters of sums."""
    vocab = {c: i for i, c in enumerate(["<unk>", "<eos>", *"0123456789+=# "])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    model = Decoder(ModelConfig(len(vocab), 16, 16, 1, 2, 1, 8))
    save_pretrained(folder, model, init_params(model, jax.random.key(seed)))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))


def write_problems(folder, offset):
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        rows = [{"question": f"{i}+{offset}=", "answer": f"#### {i + offset}"} for i in range(8)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def on_files(tiny, tmp_path):
    """A run of two steps on a file of problems and a stored model."""
    save_model(tmp_path / "model", seed=0)
    write_problems(tmp_path / "data", 1)
    tiny.model.path, tiny.data.name, tiny.data.path = str(tmp_path / "model"), "gsm8k", str(tmp_path / "data")
    tiny.data.options = {}
    tiny.data.system_prompt = ""
    tiny.rollout.max_prompt_length = 64
    tiny.training.num_steps = 2
    return tiny


def test_replaced_problems_are_refused_and_allowed(on_files, tmp_path):
    train(built(on_files), tmp_path / "run", Reporter())
    train(built(on_files), tmp_path / "run", Reporter())
    (tmp_path / "data").rename(tmp_path / "moved")
    on_files.data.path = str(tmp_path / "data")
    write_problems(tmp_path / "data", 2)
    message = f"the training problems in {tmp_path}/data and the test problems in {tmp_path}/data: not what this run"
    with pytest.raises(UserError, match=re.escape(message)):
        train(built(on_files), tmp_path / "run", Reporter())
    export_checkpoint(built(on_files), tmp_path / "run", tmp_path / "out", Reporter())  # of weights, whatever the data
    on_files.training.allow_replaced_inputs = True
    train(built(on_files), tmp_path / "run", Reporter())


@pytest.mark.parametrize(
    "change", [{"lora": {"rank": 2}}, {"objective": {"beta": 0.1}}, {}], ids=["lora", "kl", "none"]
)
def test_another_base_is_refused_where_it_is_needed_again(on_files, tmp_path, change):
    on_files.update(change)
    train(built(on_files), tmp_path / "run", Reporter())
    save_model(tmp_path / "model", seed=1)
    if not change:
        train(built(on_files), tmp_path / "run", Reporter())
        return
    for use in (train, evaluate_checkpoint):
        with pytest.raises(UserError, match=rf"^the model's weights in {tmp_path}/model: not what this run began with"):
            use(built(on_files), tmp_path / "run", Reporter())
    on_files.training.allow_replaced_inputs = True
    evaluate_checkpoint(built(on_files), tmp_path / "run", Reporter())
