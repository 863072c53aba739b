"""Measure speed and memory, beside peers and beside what the machine can do. See docs/performance.md.

    python experiments/benchmark.py sampler        generation beside transformers
    python experiments/benchmark.py tails          that, for lengths with a heavy tail and a small cache
    python experiments/benchmark.py passes         that on an accelerator, simulated from bytes and arithmetic
    python experiments/benchmark.py update         an optimizer step beside torch, with peak memory
    python experiments/benchmark.py step           a whole GRPO or PODS step beside TRL
    python experiments/benchmark.py selection      max-variance selection beside the PODS authors' loop
    python experiments/benchmark.py verify COMPLETIONS.jsonl
                                                   task "math" beside Math-Verify, and by the number of workers
    python experiments/benchmark.py phases --config configs/demo.py
                                                   a step's phases: rates, and growth with n, m and T
    python experiments/benchmark.py gpu            bfloat16 on an accelerator, beside its limits, within 8 minutes

Contenders take turns, each in a process of its own; numbers are medians. Peers: pip install -e '.[peers]'. The row of a
contender that is not installed, or was killed for memory, says so. Rows are printed when they are measured; --json FILE
also writes them, with a description of the machine.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from benchmark import accelerator, beside_peers, machine, selection, simulated_passes, step_phases, verification
from benchmark.printing import print_table
from benchmark.workload import BENCHMARK_SHAPES

from pods_jax.cli import add_count, main_with_errors, overrides
from pods_jax.config.load import load_config
from pods_jax.errors import UserError
from pods_jax.io import make_folder, write_atomic
from pods_jax.models.shapes import SHAPES
from pods_jax.planning.chips import CHIPS

Rows = list[dict[str, Any]]
Measured = Iterator[tuple[str, Rows]]
"""Titles and rows of tables, as they are measured. A title may come again: its rows are added to its table."""


def main() -> None:
    args, rest = parser().parse_known_args()
    args.overrides = overrides(rest)
    if args.json:
        make_folder(args.json.parent, "--json")
    tables: dict[str, Rows] = {}
    for title, rows in args.measure(args):
        tables.setdefault(title, []).extend(rows)
        print_table(title, rows)
        if args.json:
            found = {"machine": machine.describe(), "options": options(args), **tables}
            write_atomic(args.json, json.dumps(found, indent=1))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True)
    _add_peer_commands(commands)
    command = commands.add_parser("passes")
    command.add_argument("--model", choices=SHAPES, default="Qwen/Qwen2.5-Math-1.5B")
    command.add_argument("--chip", choices=CHIPS, default="v5p")
    for name, default, help in (
        ("--prompts", 16, None), ("--generations", 64, "of each prompt"), ("--prompt-tokens", 512, None),
        ("--fitting", 64, "rollouts of full length that the cache has room for"),
    ):  # fmt: skip
        add_count(command, name, default=default, help=help)
    command.set_defaults(measure=simulate_passes)
    command = commands.add_parser("selection")
    for name, default in (("--groups", 4096), ("--generations", 256), ("--kept", 64)):
        add_count(command, name, default=default)
    command.set_defaults(measure=select)
    command = commands.add_parser("verify")
    command.add_argument("completions", type=Path, help='a line {"completion", "gold"} for each output')
    command.set_defaults(measure=verify)
    command = commands.add_parser("phases")
    command.add_argument("--config", required=True, metavar="FILE[:ARG]")
    command.add_argument("--growth", action="store_true", help="also fit how each phase grows: takes 9 times as long")
    command.set_defaults(measure=phase_tables)
    command = commands.add_parser("gpu")
    command.add_argument("--shape", choices=BENCHMARK_SHAPES, default="qwen2.5-1.5b")
    command.set_defaults(measure=gpu)
    for command in commands.choices.values():
        add_count(command, "--repeats", default=5)
        command.add_argument("--json", type=Path, metavar="FILE")
    return top


def _add_peer_commands(commands: Any) -> None:
    """The comparisons with peers, which share most options."""
    for name, measure, counts, new_tokens in (
        ("sampler", sampler, [1, 8, 32, 128], 64),
        ("tails", tails, [64], 512),
        ("update", update, [8, 16, 32], 64),
        ("step", step, [16, 64], 64),
    ):
        command = commands.add_parser(name)
        command.set_defaults(measure=measure)
        add_count(command, "--counts", nargs="+", default=counts, help="completions, or rows")
        command.add_argument("--shape", choices=BENCHMARK_SHAPES, default="smollm2-135m")
        add_count(command, "--prompt-tokens", default=64)
        add_count(command, "--new-tokens", least=4, default=new_tokens)
    share = "the cache has room for one in so many completions of full length"
    add_count(commands.choices["tails"], "--share", default=4, help=share)
    add_count(commands.choices["update"], "--micro-batch-size")
    add_count(commands.choices["step"], "--kept", default=16, help="m; TRL trains on all n")
    for name in ("update", "step"):
        commands.choices[name].add_argument("--remat", default="full")


def options(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments that go into a table."""
    hidden = ("measure", "json", "completions")
    return {k: v for k, v in vars(args).items() if k not in hidden}


def check_kept(kept: int, generated: int) -> None:
    if kept > generated:
        raise UserError(f"--kept {kept}: there are {generated} completions to choose from")


def beside(args: argparse.Namespace, cases: list[beside_peers.Case]) -> Measured:
    for rows in beside_peers.run_cases(args.shape, cases, args.repeats):
        yield args.command, rows


def sampler(args: argparse.Namespace) -> Measured:
    return beside(args, beside_peers.sampler_cases(options(args), args.counts))


def tails(args: argparse.Namespace) -> Measured:
    if min(args.counts) < (least := 4 * args.share):
        raise UserError(f"--counts {min(args.counts)}: a cache for one in {args.share} takes {least} or more")
    return beside(args, beside_peers.tail_cases(options(args), args.counts))


def update(args: argparse.Namespace) -> Measured:
    return beside(args, beside_peers.update_cases(options(args), args.counts))


def step(args: argparse.Namespace) -> Measured:
    check_kept(args.kept, min(args.counts))
    return beside(args, beside_peers.step_cases(options(args), args.counts, args.kept))


def select(args: argparse.Namespace) -> Measured:
    check_kept(args.kept, args.generations)
    title = f"{args.kept} of {args.generations} in {args.groups:,} groups"
    yield title, selection.table_rows(args.groups, args.generations, args.kept, args.repeats)


def verify(args: argparse.Namespace) -> Measured:
    pairs = verification.read_pairs(args.completions)
    if missing := beside_peers.missing_package("math-verify/verify"):
        print(f"Math-Verify: not installed: {missing}")
    else:
        yield "in one process", verification.beside_math_verify(pairs, args.repeats)
    workers = sorted({1, 2, os.cpu_count() or 1})
    yield "calls left to workers", verification.by_workers(pairs, workers, min_calls=20_000)


def simulate_passes(args: argparse.Namespace) -> Measured:
    title = f"{args.prompts} prompts, n = {args.generations}, room for {args.fitting}: {args.model} on {args.chip}"
    sizes = args.prompts, args.generations, args.fitting, args.prompt_tokens
    yield title, simulated_passes.table_rows(args.model, args.chip, *sizes)


def phase_tables(args: argparse.Namespace) -> Measured:
    with step_phases.started(load_config(args.config, args.overrides)) as run:
        sizes = step_phases.config_sizes(run)
        seconds = step_phases.measure(run, sizes, args.repeats)
        yield f"phases of {args.config}, {sizes}", step_phases.table_rows(run, sizes, seconds)
        if args.growth:
            yield "growth: exponents by size", step_phases.growth(run, sizes, args.repeats)


def gpu(args: argparse.Namespace) -> Measured:
    if jax.default_backend() == "cpu":
        raise UserError("no accelerator: JAX finds only a CPU")
    sizes = {"counts": [1, 32, 256], "rows": [16, 64], "S": 256, "T": 256}
    yield "gpu", accelerator.run(BENCHMARK_SHAPES[args.shape], **sizes, budget_s=360.0, probe_bytes=2**31)


if __name__ == "__main__":
    main_with_errors(main)
