"""The ids between two turns are those of the chat template's own rendering."""

import json

import pytest
import tokenizers

from pods_jax.data.chat import ChatOptions
from pods_jax.data.tokenizers import CharTokenizer, load_tokenizer
from pods_jax.errors import UserError

WORDS = ["</s>", "<s>", "[system]", "[user]", "[tool]", "[assistant]", "be", "hello", "well", "kind", "?", "</t>"]
ANSWER = "{% if add_generation_prompt %}[assistant]{% endif %}"
PLAIN = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}" + ANSWER
ENDED = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }} </t> {% endfor %}" + ANSWER
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'assistant' %}[assistant] {{ m.content }} </s> "
    "{% elif m.role == 'user' %}<s> [user] {{ m.content }} "
    "{% else %}{{ raise_exception('no role ' + m.role) }}{% endif %}{% endfor %}"
) + ANSWER
DROPS_TOOLS = "{% for m in messages if m.role != 'tool' %}{{ m.content }}{% endfor %}"
"""The templates end no turn; every turn, by an id that ends completions; the model's turns; and drop messages."""


def words(folder, chat_template, **options):
    """A tokenizer of whole words, for which </s> and </t> end a completion."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "</s>"} | ({} if chat_template is None else {"chat_template": chat_template})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, WORDS.index("</t>")]}))
    return load_tokenizer(folder, ChatOptions(**options))


def ids(text):
    return [WORDS.index(word) for word in text.split()]


@pytest.mark.parametrize(
    ("template", "end", "role"), [(ENDED, "</t>", "user"), (ENDED, "</t>", "tool"), (LLAMA2, "</s>", "user")]
)
def test_turns_and_observations_together_are_the_templates_rendering(tmp_path, template, end, role):
    tokenizer = words(tmp_path, template)
    messages = [("user", "hello"), ("assistant", "well be"), (role, "kind </t>"), ("assistant", "be"), (role, "well")]
    whole = tokenizer._chat.render([{"role": r, "content": c} for r, c in messages])
    pieces = [
        tokenizer.encode_prompt("hello"),
        ids(f"well be {end}"),
        tokenizer.encode_observation("kind </t>", role),
        ids(f"be {end}"),
        tokenizer.encode_observation("well", role),
    ]
    assert [token for piece in pieces for token in piece] == ids(whole)


def test_a_turn_that_has_not_its_end_gets_the_templates(tmp_path):
    tokenizer = words(tmp_path, ENDED)
    assert tokenizer.encode_observation("kind", ended=False) == ids("</t> [user] kind </t> [assistant]")
    assert tokenizer.encode_observation("kind", ended=True) == ids("[user] kind </t> [assistant]")


def test_where_the_template_ends_no_turn_nothing_is_left_out(tmp_path):
    tokenizer = words(tmp_path, PLAIN)
    for ended in (True, False):
        assert tokenizer.encode_observation("</s> kind", ended=ended) == ids("[user] </s> kind [assistant]")


def test_what_the_template_puts_before_an_answer_comes_too(tmp_path):
    text = PLAIN + "{% if enable_thinking is defined and not enable_thinking %} be kind{% endif %}"
    tokenizer = words(tmp_path, text, kwargs={"enable_thinking": False})
    assert tokenizer.encode_observation("hello") == ids("[user] hello [assistant] be kind")


def test_without_a_template_an_observation_is_its_text(tmp_path):
    assert words(tmp_path, None).encode_observation("hello kind", "tool") == ids("hello kind")
    assert CharTokenizer("012").encode_observation("21") == CharTokenizer("012").encode("21")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (LLAMA2, r"failed: .*no role tool \(on an observation as a message of environment\.role = 'tool'\)"),
        (DROPS_TOOLS, r"drops messages of environment\.role = 'tool'"),
        ("{{ messages[-1].content }}", "drops the model's earlier turns"),
    ],
    ids=["refused", "left out", "last message only"],
)
def test_templates_that_take_no_observations_say_so(tmp_path, template, message):
    with pytest.raises(UserError, match=message):
        words(tmp_path, template).encode_observation("hello", "tool")


@pytest.mark.parametrize("role", ["user", "tool"])
def test_smollm2_reads_its_own_conversations(role, smollm2_file):
    tokenizer = load_tokenizer(smollm2_file)
    turns = [("user", "What is 323 + 271?"), ("assistant", "323 + 271 = 334."), (role, "594"), ("assistant", "594.")]
    messages = [{"role": r, "content": c} for r, c in turns]
    whole = tokenizer._encode(
        tokenizer._chat.render([{"role": "system", "content": "Be brief."}, *messages], False), False
    )
    turn = tokenizer._encode("323 + 271 = 334.", special=False)
    last = tokenizer._encode("594.", special=False)
    end = [*tokenizer.eos_ids]
    found = tokenizer.encode_prompt("What is 323 + 271?", "Be brief.") + turn + end
    found += tokenizer.encode_observation("594", role) + last + end
    assert found == whole[: len(found)]
    assert tokenizer.decode(whole[len(found) :]).strip() == ""
