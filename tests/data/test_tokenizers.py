import json
import string
import subprocess
import sys

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.data.tokenizers import CharTokenizer, HFTokenizer, load_tokenizer
from pods_jax.errors import UserError

ALPHABET = string.digits + "+=? "
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)
WORDS = ["<s>", "</s>", "<end>", "<unk>", "be", "kind", "hello", "<user>", "<bot>"]


def test_import_brings_neither_jax_nor_torch():
    code = "import sys, pods_jax.data.tokenizers; sys.exit(bool({'jax', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- characters


@given(st.text(ALPHABET))
def test_char_tokenizer_round_trips(text):
    tokenizer = CharTokenizer(ALPHABET)
    ids = tokenizer.encode_prompt(text)
    assert len(ids) == len(text)
    assert not {tokenizer.pad_id, *tokenizer.eos_ids} & set(ids)
    assert all(i < tokenizer.vocab_size for i in ids)
    assert tokenizer.decode([*ids, *tokenizer.eos_ids, tokenizer.pad_id]) == text


def test_char_tokenizer_refuses_what_it_would_drop():
    with pytest.raises(UserError, match="'x' in '1x'"):
        CharTokenizer(ALPHABET).encode_prompt("1x")
    with pytest.raises(UserError, match="repeats '1'"):
        CharTokenizer("121")


# ---------------------------------------------------------------- Hugging Face folders


def words_tokenizer(**special) -> transformers.PreTrainedTokenizerFast:
    """One id a word; a plain text starts with <s>."""
    vocab = {word: i for i, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", "</s>", "<end>"])
    backend.add_tokens(["<user>", "<bot>"])
    backend.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", **special)


def test_template_gives_one_bos(tmp_path):
    words_tokenizer(bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE).save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).encode_prompt("hello") == [0, 7, 6, 8]


def test_an_empty_system_message_keeps_out_the_templates_own(tmp_path):
    own = "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}be kind {% endif %}"
    template = own + "<user>{{ messages[-1].content }}<bot>"
    words_tokenizer(eos_token="</s>", chat_template=template).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode_prompt("hello") == [4, 5, *tokenizer.encode_prompt("hello", "")]
    assert tokenizer.encode_prompt("hello", "") == [7, 6, 8]


def test_plain_prompt_starts_with_bos_and_system(tmp_path):
    words_tokenizer(bos_token="<s>", eos_token="</s>").save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode_prompt("hello", "be kind") == [0, 4, 5, 6]
    assert tokenizer.decode([0, 6, 5, 1]) == "hello kind"
    assert tokenizer.vocab_size == 9


@pytest.mark.parametrize(("eos", "expected"), [(None, (1,)), (2, (1, 2)), ([2, 1], (1, 2))])
def test_generation_config_adds_eos_ids(tmp_path, eos, expected):
    words_tokenizer(eos_token="</s>").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.eos_ids == expected
    assert tokenizer.pad_id == 1


def test_saved_files_are_those_that_were_loaded(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    words_tokenizer(bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE).save_pretrained(source)
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 1], "temperature": 0.6}))
    (source / "config.json").write_text("{}")  # the model's, not the tokenizer's
    target.mkdir()
    load_tokenizer(source).save(target)
    names = {file.name for file in source.iterdir()} - {"config.json"}
    assert {file.name: file.read_bytes() for file in target.iterdir()} == {n: (source / n).read_bytes() for n in names}
    assert load_tokenizer(target).eos_ids == (1, 2)


def test_failing_template_is_reported():
    template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(UserError, match="System role not supported"):
        HFTokenizer(words_tokenizer(eos_token="</s>", chat_template=template)).encode_prompt("hello", "be kind")


def test_missing_tokenizers_are_reported(tmp_path):
    with pytest.raises(UserError, match="no tokenizer that transformers can load"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="neither a folder nor"):
        load_tokenizer(__file__)
    with pytest.raises(UserError, match="no end-of-sequence token"):
        HFTokenizer(words_tokenizer())
