import datetime
import gc
import json
import os
import signal
import time
from pathlib import Path

import pytest
import tokenizers
import transformers

from pods_jax.data import chat_worker
from pods_jax.data.chat import ChatOptions, ChatTemplate, conversation
from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.errors import UserError

DATE = datetime.date(2024, 2, 29)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [{"role": "system", "content": "Be <kind>."}, {"role": "user", "content": 'What is "1 + 2"?\n'}]


def template(text: str, **kwargs) -> ChatTemplate:
    return ChatTemplate(text, "model", TOKENS, kwargs, DATE)


TEMPLATES = {
    "chatml": CHATML,
    "filters": "{{ messages | tojson(indent=2) }}{{ messages[0].content | trim | upper }}{{ tools is none }}",
    "loop controls": "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m['content'] }}{% endfor %}",
    "generation": "{% for m in messages %}\n  {% generation %}\n{{ m.content }}{% endgeneration %}\n{% endfor %}",
    "namespace": "{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
    "special tokens": "{{ bos_token }}{{ messages[1].content }}{{ eos_token }}{{ pad_token }}",
    "kwargs": "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
    "dict": "{% set d = dict(a=1) %}{{ d.a }}{{ dict.fromkeys(['x']) | tojson }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("answer", [True, False])
def test_templates_are_rendered_as_transformers_does(name, answer):
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1}, "<s>"))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **TOKENS)
    kwargs = {"enable_thinking": False} if name == "kwargs" else {}
    expected = theirs.apply_chat_template(
        MESSAGES, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=answer, **kwargs
    )
    assert template(TEMPLATES[name], **kwargs).render(MESSAGES, answer) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raise_exception('System role\nnot supported') }}", "TemplateError: System role not supported"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[7].content }}", "UndefinedError"),
        ("{{ messages.__class__.__mro__ }}", "SecurityError"),
        ("{% include 'x' %}", "TypeError"),
        ("{{ [] | no_such_filter }}", "TemplateAssertionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ " + "(" * 20_000 + " }}", "RecursionError"),
        ("{{ 'x' * 10**12 }}", "MemoryError"),
        ("{{ 'x' * (20 * 2**20) }}", "it renders 20971520 characters"),
        ("{{ 'x'.encode().decode('utf-7x') }}", "LookupError"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "it does not end"),
        ("{{ 9**(9**9) }}", "it does not end"),
    ],
    ids=range(15),
)
def test_a_template_that_fails_is_one_line(text, message):
    start = time.perf_counter()
    with pytest.raises(UserError, match=f"the chat template of model failed: .*{message}") as error:
        template(text).render(MESSAGES)
    assert str(error.value).isprintable()
    assert time.perf_counter() - start < 20  # half a second of processor time, on a machine that others use


@pytest.mark.usefixtures("deaf_to_sigprof")
def test_the_limit_holds_whatever_signals_this_process_ignores_or_blocks():
    with pytest.raises(UserError, match=r"it does not end .* of processor time"):
        template("{{ 9**(9**9) }}").render(MESSAGES)


def test_the_limits_are_those_of_the_rendering_process():
    chat = template("{{ messages[0].content }}")
    assert chat.render(MESSAGES) == "Be <kind>."
    worker = chat._worker
    assert str(chat_worker.MEMORY_BYTES) in Path(f"/proc/{worker.pid}/limits").read_text()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="failed"):
        chat.render(MESSAGES)
    assert chat.render(MESSAGES) == "Be <kind>."  # in a new process


def test_the_process_ends_with_its_template():
    chat = template("x")
    chat.render(MESSAGES)
    worker = chat._worker
    del chat
    gc.collect()
    assert worker.poll() is not None


# ---------------------------------------------------------------- the date


LLAMA_DATE = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "Today: {{ date_string }} {{ messages[0].content }}"
)


def test_templates_that_print_the_date_get_the_given_one():
    chat = template(LLAMA_DATE)
    assert not chat.dated
    assert chat.render(MESSAGES) == "Today: 29 Feb 2024 Be <kind>."
    assert chat.dated
    assert template(LLAMA_DATE, date_string="26 Jul 2024").render(MESSAGES) == "Today: 26 Jul 2024 Be <kind>."
    undated = template(CHATML)
    undated.render(MESSAGES)
    assert not undated.dated


# ---------------------------------------------------------------- messages


def test_a_conversation_has_system_earlier_turns_and_question():
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [m["role"] for m in conversation("c", "s", earlier, "system")] == ["system", "user", "assistant", "user"]
    assert conversation("c", "s", earlier, "none") == [*earlier, {"role": "user", "content": "c"}]
    assert conversation("c", "s", earlier, "user")[0] == {"role": "user", "content": "s\n\na"}
    assert conversation("c", "s", (), "user") == [{"role": "user", "content": "s\n\nc"}]
    own = [{"role": "system", "content": "own"}, *earlier]
    assert conversation("c", "s", own, "system") == [*own, {"role": "user", "content": "c"}]
    assert conversation("c", None, own, "user")[0] == {"role": "user", "content": "own\n\na"}
    assert conversation("c", None, (), "system") == [{"role": "user", "content": "c"}]
    assert conversation("c", "", (), "system")[0] == {"role": "system", "content": ""}


@pytest.mark.parametrize("turn", [{}, {"role": "user"}, {"role": "user", "content": "a", "name": "b"}])
def test_an_earlier_turn_that_is_no_message_is_refused(turn):
    with pytest.raises(UserError, match="message"):
        conversation("c", None, [turn], "system")


# ---------------------------------------------------------------- with a tokenizer

WORDS = ["<s>", "</s>", "<unk>", "be", "kind", "hello", "[user]", "[system]", "[assistant]", "<think>", "well"]
SIMPLE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + SIMPLE
)
DROPS_SYSTEM = SIMPLE.replace("messages %}", "messages if m.role != 'system' %}")


def words(folder, chat_template: str | None, options: ChatOptions | None = None):
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", "</s>", "[user]", "[system]", "[assistant]"])
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "</s>"} | ({} if chat_template is None else {"chat_template": chat_template})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(folder, options)


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def test_a_prompt_of_several_turns(tmp_path):
    tokenizer = words(tmp_path, SIMPLE)
    earlier = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well"}]
    expected = "[system] be [user] hello [assistant] well [user] kind [assistant]"
    assert tokenizer.encode_prompt("kind", "be", earlier) == ids(expected)
    with pytest.raises(UserError, match=r"need a chat template: set data\.chat_template"):
        words(tmp_path, None).encode_prompt("kind", "be", earlier)


@pytest.mark.parametrize(
    ("text", "reason"), [(NO_SYSTEM, "System role not supported"), (DROPS_SYSTEM, "drops the system message")]
)
def test_a_template_without_a_system_role_names_the_ways_out(tmp_path, text, reason):
    with pytest.raises(UserError, match=rf"{reason}.*data\.system_role = 'user' .*, 'none'"):
        words(tmp_path, text).encode_prompt("hello", "be kind")
    assert words(tmp_path, text).encode_prompt("hello") == ids("[user] hello [assistant]")
    user, none = (words(tmp_path, text, ChatOptions(system_role=role)) for role in ("user", "none"))
    assert user.encode_prompt("hello", "be kind") == ids("[user] be kind hello [assistant]")
    assert none.encode_prompt("hello", "be kind") == ids("[user] hello [assistant]")


def test_a_template_that_always_fails_has_no_way_out(tmp_path):
    with pytest.raises(UserError, match="failed") as error:
        words(tmp_path, "{{ raise_exception('never') }}").encode_prompt("hello", "be kind")
    assert "system_role" not in str(error.value)


def test_variables_for_the_template(tmp_path):
    text = SIMPLE + "{% if enable_thinking is defined and not enable_thinking %} <think> well{% endif %}"
    assert words(tmp_path, text).encode_prompt("hello") == ids("[user] hello [assistant]")
    chosen = words(tmp_path, text, ChatOptions(kwargs={"enable_thinking": False}))
    assert chosen.encode_prompt("hello") == ids("[user] hello [assistant] <think> well")
    with pytest.raises(UserError, match=r"data\.chat_template_kwargs: .* does not read 'enable_thinkin'"):
        words(tmp_path, text, ChatOptions(kwargs={"enable_thinkin": False})).encode_prompt("hello")
    with pytest.raises(UserError, match="'messages' is what a prompt is made of"):
        words(tmp_path, text, ChatOptions(kwargs={"messages": []})).encode_prompt("hello")
    with pytest.raises(UserError, match=r"has no chat template"):
        words(tmp_path, None, ChatOptions(kwargs={"enable_thinking": False}))


def test_a_template_of_the_runs_own_goes_along(tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text("[user] {{ messages[-1].content }} [assistant]")
    tokenizer = words(tmp_path / "model", NO_SYSTEM, ChatOptions(template=str(file)))
    assert tokenizer.encode_prompt("hello") == ids("[user] hello [assistant]")
    (tmp_path / "out").mkdir()
    tokenizer.save(tmp_path / "out")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")
    assert theirs.chat_template == file.read_text()
    assert load_tokenizer(tmp_path / "out").encode_prompt("hello") == ids("[user] hello [assistant]")
    with pytest.raises(UserError, match=r"data\.chat_template = '.*' cannot be read"):
        words(tmp_path / "model", None, ChatOptions(template=str(tmp_path / "absent.jinja")))


def test_the_place_of_a_template_is_that_of_transformers(tmp_path):
    words(tmp_path, "from the config")
    assert load_tokenizer(tmp_path)._chat.text == "from the config"
    (tmp_path / "chat_template.jinja").write_text("own file")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path).chat_template
    assert load_tokenizer(tmp_path)._chat.text == theirs == "own file"
