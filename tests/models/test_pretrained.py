import dataclasses
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from pods_jax.errors import UserError
from pods_jax.models import loading
from pods_jax.models.config_json import read_config
from pods_jax.models.decoder import Decoder, ModelConfig, RopeScaling, Weight, init_params, model_weights
from pods_jax.models.loading import load_pretrained, open_pretrained, own_dtype, save_pretrained, weights_fingerprint
from pods_jax.models.saving import write_folder
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


def test_layers_are_read_as_a_list_without_their_stacks(folder):
    mesh = make_mesh(data=1, fsdp=-1)
    stacked = random_params(LLAMA)
    for placed in (None, mesh):
        _, params = load_pretrained(folder, mesh=placed, stacked=False)
        assert params.keys() == stacked.keys()
        assert isinstance(params["layers"], list)
        layers = {name: jnp.stack([layer[name] for layer in params["layers"]]) for name in stacked["layers"]}
        assert_trees_equal({**params, "layers": layers}, stacked)
    shardings = param_shardings(LLAMA, mesh)
    assert params["embed"].sharding == shardings["embed"]
    down = shardings["layers"]["down"]
    assert params["layers"][1]["down"].sharding == jax.NamedSharding(mesh, jax.P(*down.spec[1:]))


def test_loading_gives_freed_memory_back(folder, monkeypatch):
    given_back = []
    monkeypatch.setattr(loading, "release_memory", lambda: given_back.append(True))
    load_pretrained(folder)
    assert given_back == [True]


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


ODD_VALUES = [
    ({"vocab_size": "19"}, "vocab_size = '19' must be a whole number"),
    ({"hidden_size": 12.0}, "hidden_size = 12.0 must be a whole number"),
    ({"num_hidden_layers": 0}, "num_hidden_layers = 0 must be"),
    ({"num_attention_heads": -4}, "num_attention_heads = -4 must be"),
    ({"num_attention_heads": True}, "num_attention_heads = True must be"),
    ({"num_key_value_heads": 3}, "num_attention_heads = 4 is no multiple of num_key_value_heads = 3"),
    ({"num_key_value_heads": [2]}, r"num_key_value_heads = \[2\] must be"),
    ({"head_dim": 5}, "head_dim = 5 must be even"),
    ({"head_dim": 0}, "head_dim = 0 must be"),
    ({"max_position_embeddings": None}, "no 'max_position_embeddings'"),
    ({"max_position_embeddings": 2**40}, "max_position_embeddings = 1099511627776 must be"),
    ({"rms_norm_eps": 0}, "rms_norm_eps = 0 must be a number above 0"),
    ({"rms_norm_eps": "1e-5"}, "rms_norm_eps = '1e-5' must be"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan must be"),
    ({"rope_theta": 0}, "rope_theta = 0 must be a number above 1"),
    ({"rope_theta": -1e4}, "rope_theta = -10000.0 must be"),
    ({"rope_theta": float("inf")}, "rope_theta = inf must be"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no' must be true or false"),
    ({"tie_word_embeddings": 0}, "tie_word_embeddings = 0 must be true or false"),
    ({"rope_scaling": "linear"}, "rope_scaling = 'linear' must be an object"),
    ({"rope_scaling": [1]}, r"rope_scaling = \[1\] must be an object"),
    ({"rope_scaling": {"rope_type": ["llama3"]}}, r"rope_type = \['llama3'\] must be a text"),
    ({"rope_scaling": {"rope_type": "default", "rope_theta": 0}}, "rope_theta = 0 must be"),
    ({"rope_scaling": {"rope_type": "llama3", **dataclasses.asdict(SCALING), "factor": 0}}, "factor = 0 must be"),
    (
        {"rope_scaling": {"rope_type": "llama3", **dataclasses.asdict(SCALING), "high_freq_factor": 1.0}},
        "low_freq_factor must be below",
    ),
    ({"rope_parameters": {"a": {"b": {"c": 1}}}}, "RoPE parameter 'a' is not supported"),
    ({"layer_types": "full_attention"}, "layer_types = 'full_attention' must be a list"),
    ({"layer_types": [["full_attention"]]}, "layer_types = .* must be a list"),
    ({"model_type": ["llama"]}, r"model_type = \['llama'\] must be a text"),
    ({"model_type": "a\nb"}, "model_type 'a.nb' is not supported"),
    ({"use_sliding_window": "yes"}, "use_sliding_window = 'yes' must be"),
    ({"eos_token_id": "2"}, "eos_token_id = '2' must be an id or a list of ids"),
    ({"eos_token_id": [2, None]}, "eos_token_id = .* must be"),
    ({"eos_token_id": -1}, "eos_token_id = -1 must be"),
    ({"pad_token_id": "0"}, "pad_token_id = '0' must be"),
    ({"hidden_act": {"a": [1] * 100_000}}, "hidden_act = .* is not supported"),
    ({"auto_map": {"AutoModelForCausalLM": "mine.Mine"}}, "auto_map = .* is not supported"),
]


@pytest.mark.parametrize(("changes", "message"), ODD_VALUES, ids=[str(c)[:50] for c, _ in ODD_VALUES])
def test_odd_values_in_config_json_are_one_line(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(UserError, match=message) as error:
        load_pretrained(folder)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a":' * 100_000, "\ufeff{}", '{"vocab_size": 1' + "0" * 5000 + "}", " " * (5 << 20)]
)
def test_a_config_json_that_no_parser_takes_is_one_line(folder, content):
    (folder / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json: (not JSON|larger)") as error:
        load_pretrained(folder)
    assert str(error.value).isprintable()


WINDOWS = [
    {},
    {"use_sliding_window": True},
    {"use_sliding_window": True, "max_window_layers": 2},
    {"use_sliding_window": True, "max_window_layers": 1},
    {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": None},
    {"use_sliding_window": True, "max_window_layers": 0, "layer_types": ["full_attention"] * 2},
    {"use_sliding_window": True, "max_window_layers": 2, "layer_types": ["full_attention", "sliding_attention"]},
    {"use_sliding_window": False, "max_window_layers": 0},
]


@pytest.mark.parametrize("changes", WINDOWS, ids=str)
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_sliding_windows_are_refused_where_transformers_has_a_layer_that_slides(tmp_path, family, changes):
    kind = {"qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[family]
    slides = "sliding_attention" in kind(num_hidden_layers=2, **changes).layer_types
    save_pretrained(tmp_path, Decoder(CONFIGS[family]), random_params(CONFIGS[family]))
    edit_config(tmp_path, **changes)
    if not slides:
        assert load_pretrained(tmp_path)[0].config == CONFIGS[family]
        return
    with pytest.raises(UserError, match=r"use_sliding_window|layer_types"):
        load_pretrained(tmp_path)


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


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([], "not a JSON object"),
        ({}, "no 'weight_map'"),
        ({"weight_map": {}}, "weight_map is empty"),
        ({"weight_map": ["model.safetensors"]}, "weight_map = .* must be an object"),
        ({"weight_map": {"a": 1}}, "weight_map: a = 1 must be a text"),
        ({"weight_map": {"a": ["x"]}}, "weight_map: a = .* must be a text"),
        ({"weight_map": {"a": "../secret.safetensors"}}, "names '../secret.safetensors', which is no file of its"),
        ({"weight_map": {"a": "/etc/passwd"}}, "names '/etc/passwd'"),
        ({"weight_map": {"a": ".."}}, "names '..'"),
        ({"weight_map": {"a": "sub/x.safetensors"}}, "names 'sub/x.safetensors'"),
        ({"weight_map": {"a": ""}}, "names ''"),
        ({"weight_map": {"a": "x\0y"}}, "names"),
        ({"weight_map": {"a": "x" * 5000}}, "cannot be read|no such file"),
        ({"weight_map": {"a": "absent.safetensors"}}, "no such file"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_odd_index_files_are_one_line(folder, index, message):
    (folder / "model.safetensors").rename(folder.parent / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=message) as error:
        load_pretrained(folder)
    assert str(error.value).isprintable()


def test_a_tensor_in_two_shards_is_refused(folder):
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "b.safetensors").write_bytes((folder / "a.safetensors").read_bytes())
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"b\.safetensors: tensor '.*' is in another file too"):
        load_pretrained(folder)


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


# ---------------------------------------------------------------- precision and fingerprint


def test_a_model_is_written_in_the_precision_asked_for(tmp_path):
    params = random_params(LLAMA)
    save_pretrained(tmp_path / "low", Decoder(LLAMA), params, dtype="bfloat16")
    assert json.loads((tmp_path / "low" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert own_dtype(tmp_path / "low") == "bfloat16"
    expected = jax.tree.map(lambda x: x.astype("bfloat16"), params)
    assert_trees_equal(load_pretrained(tmp_path / "low", dtype="bfloat16")[1], expected)
    half = sum(f.stat().st_size for f in (tmp_path / "low").glob("*.safetensors"))
    save_pretrained(tmp_path / "as it is", Decoder(LLAMA), params)
    assert own_dtype(tmp_path / "as it is") == "float32"
    assert half < 0.7 * sum(f.stat().st_size for f in (tmp_path / "as it is").glob("*.safetensors"))


def test_a_fingerprint_is_of_the_weights_and_not_of_their_files(tmp_path):
    params = random_params(LLAMA)
    save_pretrained(tmp_path / "one", Decoder(LLAMA), params)
    write_folder(tmp_path / "many", LLAMA, params, max_shard_bytes=2000)
    same = weights_fingerprint(tmp_path / "one")
    assert weights_fingerprint(tmp_path / "many") == same
    edit_config(tmp_path / "many", transformers_version="9.9")
    assert weights_fingerprint(tmp_path / "many") == same
    edit_config(tmp_path / "many", rope_theta=5e5)
    assert weights_fingerprint(tmp_path / "many") != same
    for name in ("embed", "lm_head", "final_norm"):
        changed = params | {name: params[name] + 1e-3}
        save_pretrained(tmp_path / "other", Decoder(LLAMA), changed)
        assert weights_fingerprint(tmp_path / "other") != same, name
    for name in params["layers"]:
        layers = params["layers"] | {name: params["layers"][name].at[1].add(1e-3)}
        save_pretrained(tmp_path / "other", Decoder(LLAMA), params | {"layers": layers})
        assert weights_fingerprint(tmp_path / "other") != same, name
    save_pretrained(tmp_path / "other", Decoder(LLAMA), params, dtype="bfloat16")
    assert weights_fingerprint(tmp_path / "other") != same


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what of a file is in memory")
def test_of_a_file_nothing_stays_in_memory_once_it_is_read(tmp_path):
    """Beside the weights, pages of a file that stay mapped would be a second copy."""
    model = Decoder(ModelConfig(64, 512, 2048, 1, 8, 8, 64))
    save_pretrained(tmp_path, model, init_params(model, jax.random.key(0)))
    file = tmp_path / "model.safetensors"
    assert file.stat().st_size > 10e6
    checkpoint = open_pretrained(tmp_path)
    tensors = [stored.read() for stored in checkpoint.stored.values()]
    assert sum(tensor.nbytes for tensor in tensors) > 10e6
    assert resident_bytes(file) < 1e6


def resident_bytes(file):
    """The bytes of a file that are mapped and in memory."""
    found, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            found = line.endswith(str(file))
        elif found and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
