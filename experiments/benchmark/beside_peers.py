"""Cases of the comparisons with peers (transformers, torch, TRL), and their results as table rows."""

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.contenders import Result, compare
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


def update_cases(options: ContenderOptions, counts: Sequence[int]) -> list[Case]:
    """One step of AdamW on rows that are one group, and on rows that share no prompt; beside torch in two ways."""
    cases = []
    for rows in counts:
        own = options | {"rows": rows}
        ours = own | {"contender": "ours/update"}
        torch = own | {"contender": "torch/update"}
        sides = {
            "ours": ours | {"rows_a_prompt": rows},
            "ours, no shared prompt": ours | {"rows_a_prompt": 1},
            "torch": torch | {"positions": "all"},
            "torch, logits of completions": torch | {"positions": "completion"},
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


def run_cases(shape: str, cases: Sequence[Case], repeats: int) -> tuple[dict[str, dict[str, Result]], list[str]]:
    """Results by case and label, and a message for each label whose package is not installed."""
    results = {}
    left_out = {}
    with tempfile.TemporaryDirectory() as folder:
        write_model(shape, Path(folder))
        for name, sides in cases:
            present = {}
            for label, options in sides.items():
                if missing := missing_package(options["contender"]):
                    left_out[label] = f"{label}: not installed: {missing}"
                else:
                    present[label] = options | {"folder": folder}
            results[name] = compare(present, repeats)
    return results, list(left_out.values())


def missing_package(contender: str) -> str | None:
    """The first package that a contender needs and that is not installed; None if all are."""
    needs = {"ours": (), "trl": ("torch", "trl"), "math-verify": ("math_verify",)}
    needed = needs.get(contender.partition("/")[0], ("torch",))
    return next((package for package in needed if importlib.util.find_spec(package) is None), None)


def table_rows(results: Mapping[str, Mapping[str, Result]]) -> list[dict[str, Any]]:
    """A row for each case and label: medians, and the ratios of our tokens a second and peak memory to the peer's."""
    table = []
    for case, by_label in results.items():
        ours = by_label["ours"]
        for label, r in by_label.items():
            ratios = {"speed_up": ours.tokens_per_s / r.tokens_per_s, "memory": ours.peak_bytes / r.peak_bytes}
            table.append({"case": case, "side": label, **r._asdict()} | (ratios if label != "ours" else {}))
    return table
