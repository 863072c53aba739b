import dataclasses

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.errors import UserError
from pods_jax.models.decoder import Decoder, ModelConfig, RopeScaling, Weight, model_weights
from pods_jax.models.loading import load_pretrained, own_dtype, save_pretrained, weights_fingerprint
from pods_jax.rollout import generate

LLAMA = ModelConfig(
    vocab_size=19,
    hidden_size=12,
    intermediate_size=10,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
)
CONFIGS = {
    "llama": LLAMA,
    "qwen2": dataclasses.replace(LLAMA, attention_bias=True),
    "qwen3": dataclasses.replace(LLAMA, qk_norm=True),
}
TOKENS = jnp.arange(16).reshape(2, 8)


def random_params(config: ModelConfig):
    """Random everywhere, norms and biases too."""
    rng = np.random.default_rng(0)

    def draw(w: Weight):
        return jnp.asarray(rng.normal(size=w.shape), "float32")

    return jax.tree.map(draw, model_weights(config), is_leaf=lambda x: isinstance(x, Weight))


@pytest.fixture
def folder(tmp_path):
    """A Llama saved as a Hugging Face folder."""
    save_pretrained(tmp_path / "model", Decoder(LLAMA), random_params(LLAMA))
    return tmp_path / "model"


def assert_trees_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def to_gguf(name: str, array: np.ndarray, config: ModelConfig, architecture: str) -> tuple[str, np.ndarray]:
    """A tensor of transformers as llama.cpp's converter stores it."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if heads is not None and architecture == "llama":
        array = array.reshape(heads, 2, array.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
    for theirs, ours in GGUF_NAMES.items():
        name = name.replace(theirs, ours)
    return name, np.ascontiguousarray(array)


def write_gguf(path, config: ModelConfig, tensors, quantise=None, architecture="llama", per_file=0, **metadata):
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=per_file)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    for key, value in metadata.items():
        writer.add_float32(key, value)
    for hf_name, array in tensors.items():
        name, stored = to_gguf(hf_name, array, config, architecture)
        if quantise is not None and stored.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(stored, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(name, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", CONFIGS)
def test_gguf_computes_what_the_folder_does(tmp_path, family, tied):
    config = dataclasses.replace(CONFIGS[family], tie_word_embeddings=tied, rope_theta=5e5)
    params = random_params(config)
    save_pretrained(tmp_path, Decoder(config), params)
    write_gguf(tmp_path / "model.gguf", config, load_file(tmp_path / "model.safetensors"), architecture=family)
    model, loaded = load_pretrained(tmp_path / "model.gguf")
    assert model.config == dataclasses.replace(config, rms_norm_eps=model.config.rms_norm_eps)
    assert model.config.rms_norm_eps == pytest.approx(config.rms_norm_eps)
    assert_trees_equal(loaded, params)


def split_gguf(folder, tmp_path) -> list:
    """The pieces of a Llama, as llama.cpp writes them."""
    write_gguf(tmp_path / "model.gguf", LLAMA, load_file(folder / "model.safetensors"), per_file=8)
    return sorted(tmp_path.glob("*.gguf"))


def test_a_split_gguf_is_one_model(folder, tmp_path):
    pieces = split_gguf(folder, tmp_path)
    assert [p.name for p in pieces] == [f"model-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]
    assert_trees_equal(load_pretrained(pieces[0])[1], random_params(LLAMA))
    assert own_dtype(pieces[0]) == "float32"
    with pytest.raises(UserError, match=r"a later piece of a split model: name the first"):
        load_pretrained(pieces[1])


@pytest.mark.parametrize("damage", ["missing", "repeated", "renamed"])
def test_a_split_gguf_that_is_not_whole_is_refused(folder, tmp_path, damage):
    first, second, third = split_gguf(folder, tmp_path)
    if damage == "missing":
        third.unlink()
        message = r"model-00003-of-00003\.gguf: no such file"
    elif damage == "repeated":
        third.write_bytes(second.read_bytes())
        message = "tensor '.*' is in another piece too"
    else:
        first = first.rename(tmp_path / "mine.gguf")
        message = "one of 3 pieces, but its name does not end in -00001-of-00003"
    with pytest.raises(UserError, match=message):
        load_pretrained(first)


ODD_METADATA = {
    "llama.block_count": ("add_string", "two"),
    "llama.embedding_length": ("add_float32", 12.0),
    "llama.attention.head_count": ("add_array", [4, 4]),
    "llama.attention.head_count_kv": ("add_int32", -2),
    "llama.context_length": ("add_uint32", 0),
    "llama.rope.freq_base": ("add_float32", 0.0),
    "llama.attention.layer_norm_rms_epsilon": ("add_float32", float("nan")),
    "llama.attention.key_length": ("add_uint32", 5),
    "split.count": ("add_string", "3"),
}


@pytest.mark.parametrize("key", ODD_METADATA)
def test_odd_metadata_is_one_line(folder, tmp_path, monkeypatch, key):
    kind, value = ODD_METADATA[key]
    write = gguf.GGUFWriter.write_header_to_file

    def write_with_odd_value(writer, *args):
        for shard in writer.kv_data:
            shard.pop(key, None)
        getattr(writer, kind)(key, value)
        write(writer, *args)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", write_with_odd_value)
    write_gguf(tmp_path / "model.gguf", LLAMA, load_file(folder / "model.safetensors"))
    with pytest.raises(UserError, match=rf"model\.gguf: .*({key} = .* must be|head size|head_dim)") as error:
        load_pretrained(tmp_path / "model.gguf")
    assert str(error.value).isprintable()


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 7), ("Q4_1", 3.9), ("F16", 11), ("BF16", 8)])
def test_gguf_is_dequantised_to_its_precision(tmp_path, kind, bits):
    config = dataclasses.replace(LLAMA, hidden_size=32, intermediate_size=64, head_dim=8)
    params = random_params(config)
    save_pretrained(tmp_path, Decoder(config), params)
    tensors = load_file(tmp_path / "model.safetensors")
    write_gguf(tmp_path / "model.gguf", config, tensors, gguf.GGMLQuantizationType[kind])
    assert own_dtype(tmp_path / "model.gguf") == {"F16": "float16", "BF16": "bfloat16"}.get(kind)
    assert weights_fingerprint(tmp_path / "model.gguf") != weights_fingerprint(tmp_path)
    _, loaded = load_pretrained(tmp_path / "model.gguf")
    for name in ("q", "down"):
        want, got = params["layers"][name], loaded["layers"][name]
        assert 0 < np.abs(want - got).max() <= np.abs(want).max() * 2**-bits


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.rope.scaling.factor": 2.0}, r"llama\.rope\.scaling\.factor = 2\.0"),
        ({"architecture": "gemma3"}, "general.architecture 'gemma3'"),
    ],
)
def test_gguf_metadata_that_would_be_ignored_is_refused(folder, tmp_path, metadata, message):
    write_gguf(tmp_path / "model.gguf", LLAMA, load_file(folder / "model.safetensors"), **metadata)
    with pytest.raises(UserError, match=message):
        load_pretrained(tmp_path / "model.gguf")


def llama3_factors(head_dim: int, theta: float, factor: float) -> np.ndarray:
    """One divisor a frequency, written down from the wavelengths as llama.cpp's converter does."""
    factors = []
    for i in range(head_dim // 2):
        wavelength = 2 * np.pi * theta ** (2 * i / head_dim)
        smooth = (8192 / wavelength - 1) / (4 - 1)
        factors.append(1 / ((1 - np.clip(smooth, 0, 1)) / factor + np.clip(smooth, 0, 1)))
    return np.array(factors, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_rope_factors_of_llama3_are_recognised(tmp_path, factor):
    scaling = RopeScaling(factor, 1.0, 4.0, 8192)
    config = dataclasses.replace(LLAMA, hidden_size=16, head_dim=8, rope_theta=5e5, rope_scaling=scaling)
    factors = llama3_factors(8, 5e5, factor)
    assert factors[0] == 1 < factors[2] < factors[3] == factor
    save_pretrained(tmp_path, Decoder(config), random_params(config))
    tensors = load_file(tmp_path / "model.safetensors") | {"rope_freqs.weight": factors}
    write_gguf(tmp_path / "model.gguf", config, tensors)
    loaded = load_pretrained(tmp_path / "model.gguf")[0].config.rope_scaling
    assert dataclasses.astuple(loaded) == pytest.approx(dataclasses.astuple(scaling))


@pytest.mark.parametrize("factors", [[1, 2, 8], [1, 1, 8, 8], [8, 8, 8]])
def test_other_rope_factors_are_refused(folder, tmp_path, factors):
    tensors = load_file(folder / "model.safetensors") | {"rope_freqs.weight": np.array(factors, np.float32)}
    write_gguf(tmp_path / "model.gguf", LLAMA, tensors)
    with pytest.raises(UserError, match=r"'rope_freqs\.weight'"):
        load_pretrained(tmp_path / "model.gguf")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_truncated_gguf_is_named(folder, tmp_path, part):
    path = tmp_path / "model.gguf"
    write_gguf(path, LLAMA, load_file(folder / "model.safetensors"))
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(UserError, match=r"model\.gguf: not a readable GGUF file"):
        load_pretrained(path)


@pytest.mark.usefixtures("smollm2_file")
def test_smollm2_answers_simple_questions():
    (model, params), tokenizer = load_pretrained("smollm2-135m"), load_tokenizer("smollm2-135m")
    questions = {"What is the capital of France?": "Paris", "What color is the sky on a clear day?": "blue"}
    completions = generate(
        model, params, [tokenizer.encode_prompt(question) for question in questions],
        num_generations=1, max_new_tokens=24, key=jax.random.key(0), temperature=0.0, eos_ids=tokenizer.eos_ids,
    )  # fmt: skip
    for tokens, length, answer in zip(completions.tokens, completions.lengths, questions.values(), strict=True):
        assert answer in tokenizer.decode(tokens[0, : length[0]].tolist())
