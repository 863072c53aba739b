"""Cases of the comparisons with peers (transformers, torch, TRL), and their results as table rows."""

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.contenders import Outcome, compare
from benchmark.workload import write_model

ContenderOptions = dict[str, Any]
Case = tuple[str, dict[str, ContenderOptions]]
"""A name, and the options of every contender by its label; the first one is ours."""


def sampler_cases(options: ContenderOptions, counts: Sequence[int]) -> list[Case]:
    """n completions of one prompt, of full length and with geometric ones of a quarter of it on average."""
    cases = []
    for name, mean_length in (("fixed", None), ("mixed", options["new_tokens"] // 4)):
        for n in counts:
            own = options | {"n": n, "mean_length": mean_length}
            sides = {"ours": "ours/sampler", "transformers": "transformers/sampler"}
            cases.append((f"{name} lengths, n = {n}", {k: own | {"contender": v} for k, v in sides.items()}))
    return cases


def tail_cases(options: ContenderOptions, counts: Sequence[int]) -> list[Case]:
    """n completions of one prompt, lognormal lengths of an eighth of the limit on average."""
    cases = []
    for n in counts:
        own = options | {"n": n, "mean_length": options["new_tokens"] // 8}
        sides = {"ours": "ours/tails", "transformers": "transformers/tails"}
        cases.append((f"heavy tail, n = {n}", {k: own | {"contender": v} for k, v in sides.items()}))
    return cases


def update_cases(options: ContenderOptions, counts: Sequence[int]) -> list[Case]:
    """One step of AdamW on rows that are one group, and on rows that share no prompt; beside torch."""
    cases = []
    for rows in counts:
        own = options | {"rows": rows}
        ours = own | {"contender": "ours/update"}
        sides = {
            "ours": ours | {"rows_a_prompt": rows},
            "ours, no shared prompt": ours | {"rows_a_prompt": 1},
            "torch": own | {"contender": "torch/update"},
        }
        cases.append((f"{rows} rows", sides))
    return cases


def step_cases(options: ContenderOptions, counts: Sequence[int], kept: int) -> list[Case]:
    """A GRPO step with n = m = `kept`, and PODS steps with more, beside TRL, which trains on all n."""
    cases = []
    for n in counts:
        own = options | {"n": n, "m": kept}
        sides = {"ours": own | {"contender": "ours/step"}, "TRL": own | {"contender": "trl/step"}}
        cases.append((f"n = {n}, m = {kept}", sides))
    return cases


def run_cases(shape: str, cases: Sequence[Case], repeats: int) -> Iterator[list[dict[str, Any]]]:
    """The table rows of one case after the other, each as soon as it is measured."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(shape, Path(folder))
        for name, sides in cases:
            missing = {label: missing_package(options["contender"]) for label, options in sides.items()}
            present = {label: o | {"folder": folder} for label, o in sides.items() if missing[label] is None}
            absent = {label: f"not installed: {package}" for label, package in missing.items() if package}
            yield table_rows(name, compare(present, repeats) | absent)


def missing_package(contender: str) -> str | None:
    """The first package that a contender needs and that is not installed; None if all are."""
    needs = {"ours": (), "trl": ("torch", "trl"), "math-verify": ("math_verify",)}
    needed = needs.get(contender.partition("/")[0], ("torch",))
    return next((package for package in needed if importlib.util.find_spec(package) is None), None)


def table_rows(case: str, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """A row for each label: medians, or a note; for peers ratios too.

    "speed_up" is of tokens a second, ours over theirs; "cpu_ratio" of processor seconds, theirs over ours; "memory" of
    peak memory, ours over theirs.
    """
    return [{"case": case, "side": label} | _columns(label, outcomes) for label in outcomes]


def _columns(label: str, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    own = outcomes[label]
    ours = outcomes["ours"]
    if isinstance(own, str):
        return {"note": own}
    if label == "ours" or isinstance(ours, str):
        return own._asdict()
    ratios = {
        "speed_up": ours.tokens_per_s / own.tokens_per_s,
        "cpu_ratio": own.cpu_seconds / ours.cpu_seconds,
        "memory": ours.peak_bytes / own.peak_bytes,
    }
    return own._asdict() | ratios
