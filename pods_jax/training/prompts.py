"""Tokenised prompts of a config: training problems, test problems, and their verifier."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pods_jax.config.schema import Config, to_dict
from pods_jax.data import DATASETS, Dataset, Example, columns_of
from pods_jax.data.chat import ChatOptions
from pods_jax.data.tokenizers import CharTokenizer, Tokenizer, load_tokenizer
from pods_jax.errors import UserError
from pods_jax.io import local_path
from pods_jax.parallel.hosts import from_main
from pods_jax.registry import nearest
from pods_jax.rewards import VERIFIERS, check_gold
from pods_jax.rewards.parts import check_functions


@dataclasses.dataclass(frozen=True)
class TokenisedExamples:
    """Examples whose rendered prompts fit, their token ids, and the number of examples dropped as too long."""

    examples: tuple[Example, ...]
    tokens: tuple[tuple[int, ...], ...]
    dropped: int


@dataclasses.dataclass(frozen=True)
class RunData:
    """A data set as the policy sees it.

    Attributes:
      dataset: examples, prompts rendered, and the verifier's name.
      date: the day that prompts name, where the chat template prints one.
      train, test: tokenised examples; others: the test problems of `evaluation.sets`, by prefix.
    """

    dataset: Dataset
    tokenizer: Tokenizer
    train: TokenisedExamples
    test: TokenisedExamples
    others: Mapping[str, TokenisedExamples] = dataclasses.field(default_factory=dict)
    date: datetime.date | None = None


def load_data(config: Config, date: datetime.date | None = None) -> RunData:
    """Data and tokenizer of a config.

    date: the day for chat templates that print it; None: today.

    Raises:
      UserError: missing or malformed data, no tokenizer, no demonstrations for a warm start, or no prompt that fits
        rollout.max_prompt_length.
    """
    return _tokenised(config, load_dataset(config), date)


def load_test_data(config: Config) -> RunData:
    """Data and tokenizer of a config for an evaluation, whose data set may have no training problems.

    Raises:
      UserError: as `load_data`.
    """
    dataset = _problems(config)
    if not dataset.train:  # the form of prompts is read from the first one
        dataset = dataclasses.replace(dataset, train=dataset.test[:1])
    return _tokenised(config, dataset, None)


def _tokenised(config: Config, dataset: Dataset, date: datetime.date | None) -> RunData:
    date = datetime.date.fromisoformat(from_main(datetime.date.today().isoformat())) if date is None else date
    tokenizer = load_tokenizer(config.model.path, chat_options(config, date)) if config.model.path else None
    if tokenizer is None:
        tokenizer = char_tokenizer(config, dataset)
        _check_demonstrations(config, dataset)
    limit = config.rollout.max_prompt_length
    test = _subset(dataset.test, config.evaluation.num_prompts)
    return RunData(
        dataset,
        tokenizer,
        _tokenise("training set", dataset, dataset.train, tokenizer, limit),
        _tokenise("test set", dataset, test, tokenizer, limit),
        {
            prefix: _tokenise(f"evaluation.sets.{prefix}", dataset, examples, tokenizer, limit)
            for prefix, examples in load_evaluation_sets(config, dataset).items()
        },
        date,
    )


def chat_options(config: Config, date: datetime.date | None = None) -> ChatOptions:
    """The choices of a config about chat templates."""
    d = to_dict(config.data)
    return ChatOptions(d["chat_template"], d["chat_template_kwargs"], d["system_role"], date)


def _subset(examples: Sequence[Example], count: int) -> Sequence[Example]:
    """`count` of the examples in their order, always the same ones: a file's first ones may all be of one kind."""
    if count >= len(examples):
        return examples
    return [examples[i] for i in sorted(np.random.default_rng(0).permutation(len(examples))[:count])]


def load_dataset(config: Config) -> Dataset:
    """Training problems, the problems to evaluate on, and the verifier of both, prompts rendered and golds checked.

    Raises:
      UserError: missing or malformed data; no training problems; golds for different verifiers; a gold that does not
        equal itself; a reward function that fails on the first example.
    """
    dataset = _problems(config)
    if not dataset.train:
        raise UserError(f"data set '{config.data.name}' has no training problems: name it as data.eval_name")
    return dataset


def _problems(config: Config) -> Dataset:
    """`load_dataset` for any data set, also one without training problems."""
    d = config.data
    options = to_dict(d)
    dataset = DATASETS[d.name](_local(d.path), options["options"], config.warm_start.seed)
    test = dataset
    test_options = options["options"]
    skipped = dataset.skipped
    if d.eval_name is not None:
        test_options = options["eval_options"]
        test = _other_set(config, dataset.task, d.eval_name, d.eval_path, test_options, "data.eval_path")
        skipped += test.skipped
    task = config.reward.task or dataset.task
    _check_task(d.name, task)
    train, train_skipped = _checked(dataset.train, task, options["options"].get("on_bad", "error"))
    tested, test_skipped = _checked(test.test, task, test_options.get("on_bad", "error"))
    for example in train[:1]:
        check_functions(dict(config.reward.functions), example.gold, _row(example))
    return dataclasses.replace(
        dataset,
        train=_rendered(train, d.prompt_template),
        test=_rendered(tested, d.prompt_template),
        task=task,
        system=dataset.system if d.system_prompt is None else d.system_prompt,
        skipped=skipped + train_skipped + test_skipped,
    )


def _check_task(name: str, task: str) -> None:
    if not task:
        raise UserError(f"data set '{name}' names no verifier: set data.options.task or reward.task")
    if ":" not in task and task not in VERIFIERS:
        raise UserError(f"data set '{name}': task '{task}' is unknown ({nearest(task, VERIFIERS)})")


def _local(path: str | None) -> str | None:
    return str(local_path(path, "data path")) if path else None


def load_evaluation_sets(config: Config, dataset: Dataset) -> dict[str, tuple[Example, ...]]:
    """The test problems of `evaluation.sets` by prefix, prompts rendered and golds checked.

    Raises:
      UserError: as `load_dataset`.
    """
    found = {}
    for prefix, chosen in config.evaluation.parsed_sets()[0].items():
        options = to_dict(chosen)["options"]
        key = f"evaluation.sets.{prefix}.path"
        other = _other_set(config, dataset.task, chosen.name, chosen.path, options, key)
        examples, _ = _checked(other.test, dataset.task, options.get("on_bad", "error"))
        found[prefix] = _rendered(_subset(examples, chosen.num_prompts), config.data.prompt_template)
    return found


def _other_set(config: Config, task: str, name: str, path: str | None, options: Mapping[str, Any], key: str) -> Dataset:
    """A data set whose golds are for the same verifier as the training set's. key: the one that says its path."""
    try:
        other = DATASETS[name](_local(path), options, config.warm_start.seed)
    except UserError as error:
        raise UserError(f"{key} = {path!r}, to evaluate on '{name}': {error}") from error
    if other.task not in (task, "") and config.reward.task is None:
        raise UserError(
            f"data sets '{config.data.name}' and '{name}' have golds for '{task}' and '{other.task}': "
            "set reward.task to a verifier for both"
        )
    return other


def _checked(examples: Sequence[Example], task: str, on_bad: str) -> tuple[list[Example], int]:
    """The examples whose golds can be used, and the number of the others."""
    usable = []
    for example in examples:
        try:
            check_gold(example.gold, task, _row(example))
        except UserError as error:
            if on_bad != "skip":
                raise UserError(f"{example.where or 'generated example'}: {error}") from error
        else:
            usable.append(example)
    return usable, len(examples) - len(usable)


def _row(example: Example) -> dict[str, Any]:
    """The example's columns, as reward functions of the user's get them."""
    return {name: values[0] for name, values in columns_of([example]).items()}


def _rendered(examples: Sequence[Example], template: str) -> tuple[Example, ...]:
    return tuple(dataclasses.replace(e, prompt=template.replace("{question}", e.prompt)) for e in examples)


def char_tokenizer(config: Config, dataset: Dataset) -> CharTokenizer:
    """The tokenizer of a policy from scratch. UserError if the data set names no alphabet."""
    if not dataset.alphabet:
        raise UserError(f"data set '{config.data.name}' has no alphabet to train a policy from scratch: set model.path")
    return CharTokenizer(dataset.alphabet)


def _check_demonstrations(config: Config, dataset: Dataset) -> None:
    if config.warm_start.num_steps and dataset.demonstrate is None:
        raise UserError(f"data set '{config.data.name}' has no demonstrations to start from: warm_start.num_steps = 0")


def _tokenise(
    name: str, dataset: Dataset, examples: Sequence[Example], tokenizer: Tokenizer, limit: int
) -> TokenisedExamples:
    if not examples:
        raise UserError(f"{name}: there are no problems in it")
    tokens = [_prompt_tokens(e, dataset.system, tokenizer) for e in examples]
    fits = [len(t) <= limit for t in tokens]
    if not any(fits):
        shortest = min(map(len, tokens))
        raise UserError(
            f"{name}: every prompt is longer than rollout.max_prompt_length = {limit} tokens (the shortest has "
            f"{shortest})"
        )
    kept = [(e, t) for e, t, fit in zip(examples, tokens, fits, strict=True) if fit]
    return TokenisedExamples(*map(tuple, zip(*kept, strict=True)), len(examples) - len(kept))


def _prompt_tokens(example: Example, system: str | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    try:
        return tuple(tokenizer.encode_prompt(example.prompt, system, example.earlier))
    except UserError as error:
        raise UserError(f"{example.where}: {error}" if example.where else str(error)) from error
