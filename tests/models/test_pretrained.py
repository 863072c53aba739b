import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pods_jax.errors import UserError
from pods_jax.models.config_json import read_config
from pods_jax.models.decoder import Decoder, ModelConfig, RopeScaling, Weight, model_weights
from pods_jax.models.loading import load_pretrained, save_pretrained
from pods_jax.models.shardings import param_shardings
from pods_jax.parallel.mesh import make_mesh

LLAMA = ModelConfig(
    vocab_size=19,
    hidden_size=12,
    intermediate_size=10,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
)
SCALING = RopeScaling(8.0, 1.0, 4.0, 16)
CONFIGS = {
    "llama": LLAMA,
    "llama3": dataclasses.replace(LLAMA, rope_theta=5e5, rope_scaling=SCALING, tie_word_embeddings=True),
    "qwen2": dataclasses.replace(LLAMA, attention_bias=True, rms_norm_eps=1e-6),
    "qwen3": dataclasses.replace(LLAMA, qk_norm=True, rms_norm_eps=1e-6),
}
TOKENS = jnp.arange(16).reshape(2, 8)


def random_params(config: ModelConfig, dtype: str = "float32"):
    """Random everywhere, norms and biases too."""
    rng = np.random.default_rng(0)

    def draw(w: Weight):
        return jnp.asarray(rng.normal(size=w.shape), dtype)

    return jax.tree.map(draw, model_weights(config), is_leaf=lambda x: isinstance(x, Weight))


@pytest.fixture
def folder(tmp_path):
    """A Llama saved as a Hugging Face folder."""
    save_pretrained(tmp_path / "model", Decoder(LLAMA), random_params(LLAMA))
    return tmp_path / "model"


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def assert_trees_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


# ---------------------------------------------------------------- Hugging Face folders


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_saved_model_loads_bit_equal(tmp_path, name, dtype):
    model, params = Decoder(CONFIGS[name]), random_params(CONFIGS[name], dtype)
    save_pretrained(tmp_path, model, params)
    loaded_model, loaded = load_pretrained(tmp_path, dtype=dtype)
    assert loaded_model == model
    assert_trees_equal(loaded, params)
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == dtype


def test_stored_matrices_are_out_by_in(folder):
    params = random_params(LLAMA)
    tensors = load_file(folder / "model.safetensors")
    np.testing.assert_array_equal(tensors["model.layers.1.self_attn.k_proj.weight"], params["layers"]["k"][1].T)
    np.testing.assert_array_equal(tensors["model.layers.0.mlp.down_proj.weight"], params["layers"]["down"][0].T)
    np.testing.assert_array_equal(tensors["model.embed_tokens.weight"], params["embed"])
    np.testing.assert_array_equal(tensors["lm_head.weight"], params["lm_head"].T)


def test_sharded_files_load_like_one(folder):
    _, whole = load_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(sorted(tensors))}
    for shard in set(weight_map.values()):
        save_file({name: x for name, x in tensors.items() if weight_map[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert_trees_equal(load_pretrained(folder)[1], whole)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-1\.safetensors: no such file"):
        load_pretrained(folder)


def test_weights_are_placed_by_the_mesh(folder):
    mesh = make_mesh(data=1, fsdp=-1)
    _, params = load_pretrained(folder, mesh=mesh)
    assert jax.tree.map(lambda a: a.sharding, params) == param_shardings(LLAMA, mesh)
    assert_trees_equal(params, random_params(LLAMA))


def test_rope_of_transformers_5_means_that_of_4(tmp_path):
    save_pretrained(tmp_path, Decoder(CONFIGS["llama3"]), random_params(CONFIGS["llama3"]))
    rope = {"rope_type": "llama3", "rope_theta": 5e5, **dataclasses.asdict(SCALING)}
    edit_config(tmp_path, rope_scaling=None, rope_theta=None, rope_parameters=rope)
    assert load_pretrained(tmp_path)[0].config == CONFIGS["llama3"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen"}, "model_type 'qwen'.*did you mean 'qwen[23]'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"attention_dropout": 0.1}, "attention_dropout = 0.1"),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1}, "use_sliding_window = True"),
        ({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 0}, "use_sliding_window = True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type 'linear'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 32}}, "rope_type 'yarn'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "RoPE parameter 'full_attention'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "no 'low_freq_factor'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5"),
        ({"hidden_size": None}, "no 'hidden_size'"),
        ({"num_key_value_heads": 4}, r"k_proj\.weight' has shape \[12, 12\], the config asks for \[24, 12\]"),
        ({"num_hidden_layers": 3}, r"lacks tensor 'model\.layers\.2\..*3 layers has 30 tensors, here are 21"),
        ({"num_hidden_layers": 1}, r"unexpected tensor 'model\.layers\.1\."),
        ({"tie_word_embeddings": True}, "'lm_head.weight' differs"),
    ],
)
def test_what_the_decoder_would_compute_wrongly_is_refused(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(UserError, match=message):
        load_pretrained(folder)


def test_absent_sizes_are_those_that_transformers_takes(tmp_path):
    config = dataclasses.replace(LLAMA, qk_norm=True)
    save_pretrained(tmp_path, Decoder(config), random_params(config))
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text()) | {"num_attention_heads": 64}
    del raw["head_dim"], raw["num_key_value_heads"]
    path.write_text(json.dumps(raw))
    assert (read_config(path).head_dim, read_config(path).num_key_value_heads) == (128, 32)
    path.write_text(json.dumps(raw | {"num_key_value_heads": None}))
    assert read_config(path).num_key_value_heads == 64


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_missing_file_is_named(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(UserError, match=missing):
        load_pretrained(folder)


def test_unreadable_tensors_are_named(folder):
    (folder / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole safetensors file"):
        load_pretrained(folder)


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_truncated_tensors_are_named(folder, part):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole safetensors file") as error:
        load_pretrained(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", ["I8", "BOOL", "F8_E4M3"])
def test_tensors_that_are_not_plain_floats_are_named(folder, dtype):
    """An F32 tensor relabelled in the file's header (numpy cannot write 8-bit floats)."""
    path, name = folder / "model.safetensors", "model.norm.weight"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header[name] |= {"dtype": dtype, "shape": [4 * LLAMA.hidden_size]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    with pytest.raises(UserError, match=f"'{name}' is stored as {dtype}"):
        load_pretrained(folder)


def test_redundant_tensors_are_accepted(tmp_path):
    """A tied head that repeats the embedding, and the RoPE buffers that old Llama files hold."""
    params = random_params(CONFIGS["llama3"])
    save_pretrained(tmp_path, Decoder(CONFIGS["llama3"]), params)

    def add(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)

    edit_tensors(tmp_path, add)
    assert_trees_equal(load_pretrained(tmp_path)[1], params)


def test_bad_arguments_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="dtype 'int8'"):
        load_pretrained(folder, dtype="int8")
    with pytest.raises(UserError, match="neither a folder nor"):
        load_pretrained(folder / "config.json")
    other = dataclasses.replace(LLAMA, attention_bias=True, qk_norm=True)
    with pytest.raises(UserError, match="qk_norm"):
        save_pretrained(tmp_path / "new", Decoder(other), random_params(other))
    with pytest.raises(ValueError, match="names and shapes"):
        save_pretrained(tmp_path / "new", Decoder(CONFIGS["qwen2"]), random_params(LLAMA))
    assert not (tmp_path / "new").exists()
