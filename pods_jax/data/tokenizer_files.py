"""The tokenizer of a Hugging Face folder, read without running any code of the folder.

The `tokenizers` package follows a tokenizer.json to the letter, whatever class tokenizer_config.json names: some
classes of transformers 5 replace the file's pre-tokenizer by their own. If a folder has no tokenizer.json, transformers
converts its older files.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pods_jax.errors import UserError
from pods_jax.fields import END_IDS, OBJECT, Rule, field, one_line, shown, whole, without_nulls
from pods_jax.io import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
GENERATION_CONFIG = "generation_config.json"
MODEL_CONFIG = "config.json"
TEMPLATE = "chat_template.jinja"

NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
TOKEN = Rule("a text, or an object with the text as its 'content'", lambda x: isinstance(_content(x), str))
TEMPLATES = Rule(
    "a text, or a list of objects with a name and a template",
    lambda x: isinstance(x, str) or (isinstance(x, list) and all(map(_is_named_template, x))),
)
IDS: dict[str, Rule] = {"eos_token_id": END_IDS, "bos_token_id": END_IDS, "pad_token_id": whole(-1)}
"""The ids that generation_config.json and config.json may give."""


class Vocabulary(NamedTuple):
    """A tokenizer as a model's files describe it.

    Attributes:
      place: the file or folder, for messages.
      backend: text to ids and back.
      tokens: the named special tokens (bos_token, eos_token, pad_token, unk_token), all of which the backend has.
      token_ids: bos_token_id, pad_token_id and eos_token_id, without nulls; the last holds every id that ends a
        completion.
      template: the chat template; None if there is none.
      generation: the contents of generation_config.json.
      folder: the folder of the files; None for a single file.
    """

    place: Path
    backend: "Tokenizer"
    tokens: Mapping[str, str]
    token_ids: Mapping[str, Any]
    template: str | None = None
    generation: Mapping[str, Any] = {}
    folder: Path | None = None


def read_folder(path: Path) -> Vocabulary:
    """The tokenizer of a folder.

    End ids are those of generation_config.json, or else of config.json, and the tokenizer's own.

    Raises:
      UserError: there is none, it needs Python code of the folder, or one of its files is damaged.
    """
    if not path.is_dir():
        raise UserError(f"{path}: neither a folder nor a .gguf file")
    config = _read_if_there(path / TOKENIZER_CONFIG)
    for name in (TOKENIZER_CONFIG, MODEL_CONFIG):
        _refuse_python(path / name)
    backend = _read_backend(path / TOKENIZER, config) if (path / TOKENIZER).exists() else _converted(path)
    tokens = _named_tokens(path, config, backend)
    generation = _read_if_there(path / GENERATION_CONFIG)
    return Vocabulary(
        place=path,
        backend=backend,
        tokens=tokens,
        token_ids=_token_ids(path, backend, tokens, generation),
        template=_template(path, config),
        generation=generation,
        folder=path,
    )


def _read_if_there(path: Path) -> dict[str, Any]:
    return without_nulls(read_json(path)) if path.exists() else {}


def _refuse_python(path: Path) -> None:
    if "AutoTokenizer" in field(_read_if_there(path), "auto_map", OBJECT, path, {}):
        raise UserError(f"{path}: auto_map names a tokenizer in Python of the folder's own, which is never run")


# ---------------------------------------------------------------- the backend


def _read_backend(path: Path, config: Mapping[str, Any]) -> "Tokenizer":
    import tokenizers

    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no narrower class
        raise UserError(f"{path}: not a tokenizer that can be read: {one_line(error)}") from error
    backend.no_truncation()  # this and padding are for batches of classifiers
    backend.no_padding()
    _add_tokens(backend, path.with_name(TOKENIZER_CONFIG), config)
    return backend


def _add_tokens(backend: "Tokenizer", path: Path, config: Mapping[str, Any]) -> None:
    """Adds the tokens that only tokenizer_config.json lists; each must get the id under which it is listed."""
    from tokenizers import AddedToken

    listed = field(config, "added_tokens_decoder", OBJECT, path, {})
    for number in sorted(listed, key=lambda text: (len(text), text)):
        place = f"{path}: added_tokens_decoder"
        entry = field(listed, number, TOKEN, place)
        if backend.token_to_id(_content(entry)) is None:
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            options = {flag: bool(entry[flag]) for flag in flags if isinstance(entry, dict) and flag in entry}
            backend.add_tokens([AddedToken(_content(entry), **options)])
        if backend.token_to_id(_content(entry)) != _as_id(number):
            raise UserError(f"{place}: {shown(_content(entry))} is {shown(number)} there, another id in {TOKENIZER}")


def _as_id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _converted(path: Path) -> "Tokenizer":
    """The tokenizer of a folder's older files, which transformers converts."""
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # of any class, from files of any content
        raise UserError(f"{path}: no tokenizer that transformers can load: {one_line(error)}") from error
    if not loaded.is_fast:
        raise UserError(
            f"{path}: the tokenizer {type(loaded).__name__} has no {TOKENIZER} and cannot be converted to one"
        )
    return loaded.backend_tokenizer


# ---------------------------------------------------------------- tokens and ids


def _content(token: Any) -> Any:
    """A special token's text; files hold either the text or an object with it."""
    return token.get("content") if isinstance(token, dict) else token


def _named_tokens(path: Path, config: Mapping[str, Any], backend: "Tokenizer") -> dict[str, str]:
    """The named special tokens that the vocabulary has. UserError if it lacks bos_token or eos_token."""
    found = {}
    older = _read_if_there(path / SPECIAL_TOKENS)
    for raw, file in ((older, path / SPECIAL_TOKENS), (config, path / TOKENIZER_CONFIG)):
        found |= {name: _content(field(raw, name, TOKEN, file)) for name in NAMED_TOKENS if name in raw}
    missing = {name for name, token in found.items() if backend.token_to_id(token) is None}
    for name in ("bos_token", "eos_token"):
        if name in missing:
            raise UserError(f"{path}: the {name} {shown(found[name])} is no token of the vocabulary")
    return {name: token for name, token in found.items() if name not in missing}


def _token_ids(
    path: Path, backend: "Tokenizer", tokens: Mapping[str, str], generation: Mapping[str, Any]
) -> dict[str, Any]:
    of_generation = _checked_ids(generation, backend, path / GENERATION_CONFIG)
    of_model = _checked_ids(_read_if_there(path / MODEL_CONFIG), backend, path / MODEL_CONFIG)
    ids = of_model | of_generation
    own = {f"{name}_id": backend.token_to_id(tokens[name]) for name in NAMED_TOKENS if name in tokens}
    for name in ("bos_token_id", "pad_token_id"):
        if name in own:
            ids[name] = own[name]
    ids["eos_token_id"] = end_ids(ids.get("eos_token_id"), own.get("eos_token_id"))
    return ids


def end_ids(*sources: Any) -> tuple[int, ...]:
    """All ids of several sources, each None, an id or a list of ids, without repetitions."""
    lists = [[] if ids is None else ids if isinstance(ids, list) else [ids] for ids in sources]
    return tuple(dict.fromkeys(i for ids in lists for i in ids))


def _checked_ids(raw: Mapping[str, Any], backend: "Tokenizer", path: Path) -> dict[str, Any]:
    """The ids that a file gives. UserError if an end id is not in the vocabulary."""
    given = {name: field(raw, name, rule, path) for name, rule in IDS.items() if name in raw}
    if given.get("pad_token_id") == -1:  # Llama 1 writes -1 for none
        del given["pad_token_id"]
    for name, ids in given.items():
        for i in end_ids(ids):
            if name == "eos_token_id" and backend.id_to_token(i) is None:
                raise UserError(f"{path}: {name} = {i} is no id of the tokenizer")
    return given


# ---------------------------------------------------------------- the chat template


def _is_named_template(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)


def _template(path: Path, config: Mapping[str, Any]) -> str | None:
    """The folder's chat template: chat_template.jinja comes before tokenizer_config.json, as in transformers."""
    if (path / TEMPLATE).exists():
        try:
            return (path / TEMPLATE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path / TEMPLATE}: cannot be read: {one_line(error)}") from error
    given = field(config, "chat_template", TEMPLATES, path / TOKENIZER_CONFIG, None)
    return _default(given, path / TOKENIZER_CONFIG) if isinstance(given, list) else given


def _default(templates: list[dict[str, str]], path: Path) -> str:
    for entry in templates:
        if entry["name"] == "default":
            return entry["template"]
    names = ", ".join(entry["name"] for entry in templates)
    raise UserError(f"{path}: no chat template is named 'default', only {one_line(names)}: set data.chat_template")


def gaps(ids: list[int], size: int) -> Iterator[range]:
    """The runs of consecutive numbers below `size` that are not among the ids."""
    start = 0
    for i in sorted(i for i in ids if i < size):
        if i > start:
            yield range(start, i)
        start = i + 1
    if start < size:
        yield range(start, size)
