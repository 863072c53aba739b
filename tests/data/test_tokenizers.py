import json
import string
import subprocess
import sys

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.data.tokenizers import CharTokenizer, load_tokenizer
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


@given(st.text(ALPHABET, min_size=1))
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
    with pytest.raises(UserError, match="the prompt has no tokens"):
        CharTokenizer(ALPHABET).encode_prompt("")


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


def save_words(folder, **special):
    words_tokenizer(**special).save_pretrained(folder)
    return folder


def write_json(path, **fields):
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("generation", "model", "expected"),
    [
        (None, None, (1,)),
        (2, None, (2, 1)),
        ([2, 1], None, (2, 1)),
        ([2, 4], [5], (2, 4, 1)),  # generation_config.json stands above config.json
        (None, 2, (2, 1)),
        (None, [4, 2], (4, 2, 1)),
    ],
)
def test_end_ids_are_those_of_the_first_file_that_gives_any_and_the_tokenizers_own(
    tmp_path, generation, model, expected
):
    save_words(tmp_path, eos_token="</s>")
    write_json(tmp_path / "generation_config.json", eos_token_id=generation)
    write_json(tmp_path / "config.json", eos_token_id=model)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.eos_ids == expected
    assert tokenizer.pad_id == expected[0]


def test_end_ids_do_without_an_end_token_of_the_tokenizer(tmp_path):
    save_words(tmp_path)
    with pytest.raises(UserError, match="names no end-of-sequence token"):
        load_tokenizer(tmp_path)
    write_json(tmp_path / "config.json", eos_token_id=2, pad_token_id=3, bos_token_id=0)
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.eos_ids, tokenizer.pad_id) == ((2,), 3)
    assert tokenizer.token_ids == {"eos_token_id": 2, "pad_token_id": 3, "bos_token_id": 0}


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("ids", [[2, None], "2", ["2"], -1, [-1], 2.0, True, {"id": 2}, 99, [1, 99]])
def test_end_ids_of_another_kind_are_refused(tmp_path, file, ids):
    write_json(save_words(tmp_path, eos_token="</s>") / file, eos_token_id=ids)
    with pytest.raises(UserError, match=rf"{file}: eos_token_id = .* (must be an id|is no id)") as error:
        load_tokenizer(tmp_path)
    assert "\n" not in str(error.value)


def test_what_ends_a_completion_is_no_text(tmp_path):
    """Id 5, "kind", is a plain word, which the tokenizer does not call special."""
    write_json(save_words(tmp_path, eos_token="</s>") / "generation_config.json", eos_token_id=[5])
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode([6, 4, 5]) == "hello be"
    assert tokenizer.decode([6, 4, 1]) == "hello be"


def test_ids_without_a_token_are_known(tmp_path):
    tokenizer = load_tokenizer(save_words(tmp_path, eos_token="</s>"))
    assert tokenizer.absent_ids(9) == ()
    assert tokenizer.absent_ids(12) == (range(9, 12),)
    backend = json.loads((tmp_path / "tokenizer.json").read_text())
    del backend["model"]["vocab"]["be"]  # id 4
    (tmp_path / "tokenizer.json").write_text(json.dumps(backend))
    assert load_tokenizer(tmp_path).absent_ids(12) == (range(4, 5), range(9, 12))


@pytest.mark.parametrize("behind", ["$A </s>", "<s> $A </s>", "<s> <s> $A </s> </s>"])
def test_a_plain_prompt_is_not_ended(tmp_path, behind):
    tokenizer = words_tokenizer(bos_token="<s>", eos_token="</s>")
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=behind, special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.backend_tokenizer.save(str(save_words(tmp_path, bos_token="<s>", eos_token="</s>") / "tokenizer.json"))
    start = behind.count("<s>")
    assert load_tokenizer(tmp_path).encode_prompt("hello kind") == [0] * start + [6, 5]
    assert load_tokenizer(tmp_path).encode_prompt("hello </s>") == [0] * start + [6, 1]  # the user's own


def test_an_empty_prompt_shows_what_was_rendered(tmp_path):
    save_words(tmp_path, eos_token="</s>", chat_template="{{ messages[0].content }}   ")
    with pytest.raises(UserError, match="the prompt has no tokens: it was rendered as '   '"):
        load_tokenizer(tmp_path).encode_prompt("")


def test_a_prompt_that_a_template_ends_is_refused(tmp_path):
    save_words(tmp_path, eos_token="</s>", chat_template="{{ messages[0].content }} {{ eos_token }}")
    with pytest.raises(UserError, match="the prompt ends with '</s>', which ends an answer: 'hello </s>'"):
        load_tokenizer(tmp_path).encode_prompt("hello")


def test_saved_files_are_those_that_were_loaded(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    save_words(source, bos_token="<s>", eos_token="</s>", pad_token="<unk>", chat_template=TEMPLATE)
    write_json(source / "generation_config.json", eos_token_id=[2, 1], temperature=0.6)
    write_json(source / "config.json")  # the model's, not the tokenizer's
    target.mkdir()
    load_tokenizer(source).save(target)
    names = {file.name for file in source.iterdir()} - {"config.json"}
    assert {file.name for file in target.iterdir()} == names
    for name in names - {"generation_config.json"}:
        assert (target / name).read_bytes() == (source / name).read_bytes()
    ids = {"eos_token_id": [2, 1], "bos_token_id": 0, "pad_token_id": 3}
    assert json.loads((target / "generation_config.json").read_text()) == ids | {"temperature": 0.6}
    assert load_tokenizer(target).token_ids == ids
    theirs = transformers.GenerationConfig.from_pretrained(target)
    assert (theirs.eos_token_id, theirs.bos_token_id, theirs.pad_token_id) == ([2, 1], 0, 3)


def test_missing_tokenizers_are_reported(tmp_path):
    with pytest.raises(UserError, match="no tokenizer that transformers can load"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="neither a folder nor"):
        load_tokenizer(__file__)


# ---------------------------------------------------------------- to the letter


def byte_level(folder, cls: str):
    """A byte-level BPE as GPT-2's, whose folder names a class of its own."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    backend.enable_truncation(max_length=3)
    backend.enable_padding(length=5)
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", tokenizer_class=cls, bos_token="<s>", eos_token={"content": "</s>"})
    return folder


@pytest.mark.parametrize("cls", ["LlamaTokenizerFast", "Qwen2Tokenizer", "GemmaTokenizer", "NoSuchClass"])
def test_a_tokenizer_json_is_followed_whatever_class_the_folder_names(tmp_path, cls):
    """transformers 5.24 gives the first one a Metaspace pre-tokenizer, which drops spaces."""
    tokenizer = load_tokenizer(byte_level(tmp_path, cls))
    exact = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    exact.no_truncation()
    exact.no_padding()
    text = "Hello  wörld, how\nare you?"
    assert tokenizer.encode_prompt(text) == exact.encode(text).ids
    assert len(tokenizer.encode_prompt(text)) == len(text.encode())
    assert tokenizer.decode(tokenizer.encode_prompt(text)) == text


def test_tokens_that_only_the_config_lists_are_added(tmp_path):
    path = byte_level(tmp_path, "PreTrainedTokenizerFast") / "tokenizer_config.json"
    raw = json.loads(path.read_text()) | {"eos_token": "</s>"}
    write_json(path, **raw, added_tokens_decoder={"258": {"content": "<new>", "special": False}})
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    text = "a<new>b"
    assert load_tokenizer(tmp_path).encode_prompt(text) == theirs.encode(text)
    assert 258 in load_tokenizer(tmp_path).encode_prompt(text)
    write_json(path, **raw, added_tokens_decoder={"300": {"content": "<new>", "special": False}})
    with pytest.raises(UserError, match="added_tokens_decoder: '<new>' is '300' there, another id"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json"])
def test_python_of_the_folders_own_never_runs(tmp_path, monkeypatch, name):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question on the terminal"))
    path = byte_level(tmp_path, "Mine") / name
    raw = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, **raw, auto_map={"AutoTokenizer": ["mine.Mine", None]})
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="auto_map names a tokenizer in Python"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="auto_map"):
        load_tokenizer(tmp_path)
    assert not (tmp_path / "ran").exists()


ODD_CONFIGS = [
    {"eos_token": 1},
    {"eos_token": ["</s>"]},
    {"eos_token": {"content": 3}},
    {"eos_token": "<no such token>"},
    {"bos_token": "<no such token>"},
    {"chat_template": 7},
    {"chat_template": [{"name": "rag", "template": "x"}]},
    {"chat_template": ["x"]},
    {"added_tokens_decoder": ["</s>"]},
    {"added_tokens_decoder": {"x": {"content": "<a>"}}},
    {"added_tokens_decoder": {"1": {"content": 7}}},
    {"added_tokens_decoder": {"9" * 5000: {"content": "<a>"}}},
    {"auto_map": 3},
]


@pytest.mark.parametrize("changes", ODD_CONFIGS, ids=lambda c: str(c)[:40])
def test_odd_values_in_tokenizer_config_are_one_line(tmp_path, changes):
    path = byte_level(tmp_path, "PreTrainedTokenizerFast") / "tokenizer_config.json"
    write_json(path, **json.loads(path.read_text()) | changes)
    with pytest.raises(UserError) as error:
        load_tokenizer(tmp_path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", "[" * 100_000, '{"model": {"type": "BPE", "vocab": {"a": -1}}}']
)
def test_a_damaged_tokenizer_json_is_one_line(tmp_path, content):
    (byte_level(tmp_path, "PreTrainedTokenizerFast") / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer that can be read") as error:
        load_tokenizer(tmp_path)
    assert str(error.value).isprintable()
