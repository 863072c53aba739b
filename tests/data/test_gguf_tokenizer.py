import inspect
import unicodedata

import gguf
import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import TikTokenConverter

from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.errors import UserError

BYTES = [chr(i) for i in range(33, 127)] + ["Ġ"]  # the printable part of byte-level BPE's alphabet, and the space
TOKENS = [*BYTES, "ab", "12", "<eos>", "<bos>", "<turn>"]
EOS, BOS, TURN = len(TOKENS) - 3, len(TOKENS) - 2, len(TOKENS) - 1


def write_vocabulary(path, model="gpt2", pre="smollm", bos=False, turn=False):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * EOS + [3, 3, 3])
    writer.add_token_merges(["a b", "1 2"])
    writer.add_eos_token_id(EOS)
    writer.add_bos_token_id(BOS)
    writer.add_add_bos_token(bos)
    if turn:
        writer.add_eot_token_id(TURN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_merges_apply_to_letters_but_not_across_digits(tmp_path):
    tokenizer = load_tokenizer(write_vocabulary(tmp_path / "v.gguf"))
    expected = [TOKENS.index(token) for token in ("ab", "Ġ", "1", "2", "<eos>")]
    assert tokenizer.encode_prompt("ab 12<eos>") == expected
    assert tokenizer.decode(expected) == "ab 12"
    assert tokenizer.vocab_size == len(TOKENS)
    assert tokenizer.eos_ids == (EOS,)


def test_metadata_decides_on_bos_and_end_of_turn(tmp_path):
    tokenizer = load_tokenizer(write_vocabulary(tmp_path / "v.gguf", bos=True, turn=True))
    assert tokenizer.encode_prompt("a") == [BOS, TOKENS.index("a")]
    assert tokenizer.eos_ids == (EOS, TURN)


def test_saved_tokenizer_loads_as_the_same(tmp_path):
    tokenizer = load_tokenizer(write_vocabulary(tmp_path / "v.gguf", bos=True, turn=True))
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.encode_prompt("ab 12<eos>") == tokenizer.encode_prompt("ab 12<eos>")
    assert again.eos_ids == tokenizer.eos_ids


def odd_vocabulary(path, **changes):
    """A vocabulary of four tokens, with metadata in place of what is right; None leaves a key out."""
    values = {
        "model": "gpt2", "pre": "smollm", "tokens": ["a", "b", "ab", "<eos>"], "token_type": [1, 1, 1, 3],
        "merges": ["a b"], "eos_token_id": 3,
    } | changes  # fmt: skip
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, int):
            writer.add_int64(f"tokenizer.ggml.{key}", value)
        elif value is not None:
            add = writer.add_array if isinstance(value, list) else writer.add_string
            add(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"eos_token_id": 4},
        {"eos_token_id": -1},
        {"eos_token_id": 2**40},
        {"eos_token_id": "3"},
        {"bos_token_id": 99},
        {"eot_token_id": 99},
        {"add_bos_token": True},
        {"add_bos_token": 1},
        {"token_type": [1, 1, 1]},
        {"token_type": [1, 1, 1, 99]},
        {"token_type": ["x", "x", "x", "x"]},
        {"token_type": None},
        {"tokens": [1, 2, 3, 4]},
        {"tokens": ["a", "a", "ab", "<eos>"]},
        {"tokens": "a b"},
        {"tokens": None},
        {"merges": ["a"]},
        {"merges": ["a b c"]},
        {"merges": ["a z"]},
        {"merges": ["b a"]},
        {"merges": [1]},
        {"merges": None},
        {"model": 7},
        {"pre": 7},
        {"pre": None},
    ],
    ids=str,
)
def test_metadata_that_does_not_fit_is_one_line(tmp_path, changes):
    assert load_tokenizer(odd_vocabulary(tmp_path / "good.gguf")).encode_prompt("ab") == [2]
    with pytest.raises(UserError, match=r"odd\.gguf: .*tokenizer\.ggml") as error:
        load_tokenizer(odd_vocabulary(tmp_path / "odd.gguf", **changes))
    assert str(error.value).isprintable()


def test_unused_tokens_are_absent(tmp_path):
    """llama.cpp's converter pads the vocabulary with them."""
    padded = {"tokens": ["a", "b", "ab", "<eos>", "[PAD4]", "[PAD5]"], "token_type": [1, 1, 1, 3, 5, 5]}
    tokenizer = load_tokenizer(odd_vocabulary(tmp_path / "v.gguf", **padded))
    assert tokenizer.absent_ids(8) == (range(4, 8),)


@pytest.mark.parametrize("kind", [{"model": "llama"}, {"pre": "tekken"}])
def test_unsupported_kinds_are_refused(tmp_path, kind):
    ((key, value),) = kind.items()
    with pytest.raises(UserError, match=f"{key} '{value}' is not supported"):
        load_tokenizer(write_vocabulary(tmp_path / "v.gguf", **kind))


# ---------------------------------------------------------------- Llama 3 and Qwen2

BYTE_TOKENS = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "12", "123", "ab", "Ġab", "'s", "<eos>"]
MERGES = ["1 2", "a b", "Ġ ab", "12 3", "' s"]


def write_byte_vocabulary(path, pre, tokens=BYTE_TOKENS, merges=MERGES):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return load_tokenizer(path)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("ab 123'sS\n\t e\u0301"), min_size=1)


@pytest.fixture(scope="module", params=["qwen2", "deepseek-r1-qwen"])
def qwen2(request, tmp_path_factory):
    vocab = {token: i for i, token in enumerate(BYTE_TOKENS)}
    theirs = transformers.Qwen2Tokenizer(
        vocab, [tuple(m.split(" ")) for m in MERGES], *["<eos>"] * 2, eos_token="<eos>"
    )
    return write_byte_vocabulary(tmp_path_factory.mktemp("qwen2") / "v.gguf", request.param), theirs


@given(text=TEXTS)
def test_qwen2_splits_as_transformers_does(qwen2, text):
    ours, theirs = qwen2
    assert ours.encode_prompt(text) == theirs.encode(text)
    assert ours.decode(ours.encode_prompt(text)) == unicodedata.normalize("NFC", text)


def test_llama3_splits_by_its_pattern_and_prefers_whole_tokens(tmp_path):
    """The pattern is the one with which transformers converts Llama 3's own files."""
    tokens = [*BYTE_TOKENS[:-1], "xyz", "<eos>"]  # "xyz" is a token that no merge leads to
    ours = write_byte_vocabulary(tmp_path / "v.gguf", "llama-bpe", tokens)
    pattern = inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    text = "1234567 ab's, xyz  12\n\n'S é"
    pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
    assert ours.decode(ours.encode_prompt(text)) == text
    assert ours.encode_prompt(text) == [i for piece in pieces for i in ours.encode_prompt(piece)]
    assert ours.encode_prompt("1234") == [tokens.index("123"), tokens.index("4")]
    assert ours.encode_prompt("xyz") == [tokens.index("xyz")]


# ---------------------------------------------------------------- SmolLM2


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    return load_tokenizer(smollm2_file)


# SmolLM2 has no token for the bytes of a few control characters, nor for those of planes 4 to 16.
CHARACTERS = st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t")


@given(text=st.text(CHARACTERS))
def test_any_text_survives(smollm2, text):
    around = smollm2.decode(smollm2.encode_prompt("@")).split("@")
    assert smollm2.decode(smollm2.encode_prompt(text)) == text.join(around)


def test_prompt_is_a_chat(smollm2):
    start, end = 1, 2  # <|im_start|>, <|im_end|>
    ids = smollm2.encode_prompt("What is 12 + 30?")
    assert ids.count(start) == 3  # the template's own system message, the user's, and the answer's beginning
    assert ids.count(end) == 2
    assert "named SmolLM" in smollm2.decode(ids)
    assert "named SmolLM" not in smollm2.decode(smollm2.encode_prompt("What is 12 + 30?", "Be brief."))


def test_digits_are_single_tokens(smollm2):
    more, less = smollm2.encode_prompt("271828"), smollm2.encode_prompt("")
    assert len(more) == len(less) + 6


def test_smollm2_ends_its_turn(smollm2):
    assert smollm2.eos_ids == (2,)
    assert smollm2.vocab_size == 49152
