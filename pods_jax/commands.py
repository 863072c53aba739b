"""Command lines that work on one experiment: `experiments/NAME.py` in a checkout, `pods-NAME` where it is installed."""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods_jax.cli import (
    add_count,
    add_distributed,
    config_parser,
    experiment_parser,
    main_with_errors,
    overrides,
    parse_experiment,
    parse_policy,
    policy_parser,
    print_json,
    start_distributed,
)
from pods_jax.errors import UserError

if TYPE_CHECKING:
    from pods_jax.config.schema import Config
    from pods_jax.training import Reporter
    from pods_jax.training.evaluation import Record


def _command(main: Callable[[], None]) -> Callable[[], None]:
    """The same function, except that bad input gives one line on stderr and exit code 2."""
    return functools.wraps(main)(lambda: main_with_errors(main))


@_command
def train() -> None:
    """Train a policy, for example with --config configs/demo.py --workdir runs/demo --config.seed=1

    Continues from the workdir's last checkpoint if there is one. --dry-run shows config, sizes, where data and model
    come from, and a plan of a step, and trains nothing. --json prints a one-line summary at the end. For several hosts,
    see docs/scaling.md.
    """
    parser = experiment_parser(inspect.getdoc(train))
    add_distributed(parser)
    parser.add_argument(
        "--stopped-exit-code", type=int, default=0, metavar="CODE",
        help="of a run that a signal stopped, with a checkpoint, before it was finished (default: 0)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="check everything, show what would be trained, and stop")
    args, config = parse_experiment(parser)
    start_distributed(args)
    from pods_jax.config.load import origin_of
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter
    from pods_jax.training import train as train_policy

    reporter = Reporter(quiet=not is_main())
    if args.dry_run:
        return _dry_run(args, config, reporter)
    summary = train_policy(config, args.workdir, reporter, args.stopped_exit_code, origin_of(args.config))
    if args.json and is_main():
        print_json(summary)
    if "stopped_by" in summary:
        sys.exit(args.stopped_exit_code)


def _dry_run(args: argparse.Namespace, config: "Config", reporter: "Reporter") -> None:
    from pods_jax.planning.report import run
    from pods_jax.training.preflight import describe

    describe(config, args.config, args.workdir, reporter)
    plan = run(config, "local", None, None, None)
    reporter.message("dry run  everything is there; nothing was trained or written")
    if args.json:
        print_json(plan)


@_command
def evaluate() -> None:
    """Evaluate a run's checkpoint (--workdir runs/demo), or a model as it is (--model Qwen/Qwen3-0.6B --config ...)

    A run is evaluated by the config of its workdir; overrides may change the evaluation, the sampling and the reward,
    such as --config.evaluation.num_samples=16. A config that is given must have the run's model and data. --model needs
    no run: --model smollm2-135m --config.data.name=math500. --out writes every completion with its verdict. --json
    prints a one-line summary at the end. For several hosts, see docs/scaling.md.
    """
    parser = policy_parser(inspect.getdoc(evaluate))
    parser.add_argument("--model", metavar="PATH", help="a folder, hub id, .gguf file or smollm2-135m, without a run")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help="where to write the completions")
    add_distributed(parser)
    args, config = parse_policy(parser)
    from pods_jax.config.schema import DataConfig

    if args.model is not None and config.data == DataConfig():
        raise UserError("--model is evaluated on a data set: give --config FILE, or --config.data.name=NAME")
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter, evaluate_checkpoint, evaluate_model

    reporter = Reporter(quiet=not is_main())
    with _completions_to(args.out, reporter) as record:
        if args.model is None:
            scores = evaluate_checkpoint(config, args.workdir, reporter, args.checkpoint, record)
        else:
            scores = evaluate_model(config, reporter, record)
    if args.json and is_main():
        print_json(scores)


@contextlib.contextmanager
def _completions_to(out: Path | None, reporter: "Reporter") -> "Iterator[Record | None]":
    """Takes an evaluation's completions, and writes them to the file once all is done; None for no file."""
    if out is None:
        yield None
        return
    from pods_jax.io import make_folder, refuse_unwritable, write_jsonl
    from pods_jax.parallel.hosts import is_main

    refuse_unwritable(out.parent, "--out")
    if out.is_dir():
        raise UserError(f"--out {out} is a folder: name a file")
    make_folder(out.parent, "--out")
    rows: list[Mapping[str, Any]] = []
    yield rows.append
    if is_main():
        write_jsonl(out, rows)
        reporter.message(f"outputs  {out}: {len(rows):,} completions")


@_command
def export() -> None:
    """Export a run's checkpoint, for example with --workdir runs/demo --out exported/demo

    Writes a folder that transformers loads. For a LoRA run it merges the weights, and PEFT loads out/adapter. A config
    that is given must have the run's model and data. --push-to-hub also uploads the folder, to a repository that is
    made, private, where there is none. For weights that are split over several hosts, see docs/scaling.md.
    """
    parser = policy_parser(inspect.getdoc(export))
    parser.add_argument("--out", required=True, help="the folder to write")
    dtypes = ("float32", "bfloat16", "float16")
    parser.add_argument("--dtype", choices=dtypes, help="of the weights; by default that of the pretrained model")
    parser.add_argument("--push-to-hub", metavar="OWNER/NAME", help="a repository of the Hugging Face hub")
    add_distributed(parser)
    args, config = parse_policy(parser)
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter, export_checkpoint, hub

    reporter = Reporter(quiet=not is_main())
    pushes = args.push_to_hub is not None and is_main()
    if pushes:
        hub.refuse_hub(args.push_to_hub)
    export_checkpoint(config, args.workdir, args.out, reporter, args.checkpoint, args.dtype)
    written = {"out": args.out}
    if pushes:
        written["url"] = hub.push(Path(args.out).expanduser(), args.push_to_hub)
        reporter.message(f"uploaded {written['url']}")
    if args.json and is_main():
        print_json(written)


@_command
def sample() -> None:
    """Talk to a run's checkpoint (--workdir runs/demo), or to a model as it is (--model smollm2-135m)

    Each --prompt is answered, or else each line of the standard input, on its own. A run's policy gets its prompts as
    in training, with the system message and the template of its data. --json prints a line for each prompt.
    """
    parser = policy_parser(inspect.getdoc(sample))
    parser.add_argument("--model", metavar="PATH", help="a folder, hub id, .gguf file or smollm2-135m, without a run")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="a text to answer; may be repeated")
    parser.add_argument("--system", metavar="TEXT", help="the system message, in place of the data's")
    add_count(parser, "--num-samples", default=1, help="answers to each prompt (default: 1)")
    add_count(parser, "--max-new-tokens", help="where an answer is cut (default: rollout.max_completion_length)")
    parser.add_argument("--temperature", type=float, default=1.0, help="of the samples (default: 1, as in training)")
    add_count(parser, "--seed", least=0, below=2**32, default=0, help="of the samples (default: 0)")
    args, config = parse_policy(parser)
    from pods_jax.training import Reporter, speaker

    if not 0 <= args.temperature < math.inf:
        raise UserError(f"--temperature must be 0 (the most probable tokens) or more, got {args.temperature}")
    if args.model is None:
        policy = speaker.of_checkpoint(config, args.workdir, Reporter(quiet=args.json), args.checkpoint)
    else:
        policy = speaker.of_model(args.model)
    if args.system is not None:
        policy = dataclasses.replace(policy, system=args.system)
    limit = args.max_new_tokens or config.rollout.max_completion_length
    sampling = {"num_samples": args.num_samples, "temperature": args.temperature, "max_new_tokens": limit}
    for number, text in enumerate(args.prompt or _lines()):
        answers = policy.answers(text, args.seed + number, **sampling)
        if args.json:
            print_json({"prompt": text, "answers": answers})
        else:
            print(*answers, sep="\n---\n", flush=True)


def _lines() -> Iterator[str]:
    """The lines of the standard input, each asked for where a person types."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


@_command
def plan() -> None:
    """Plan a step before the hardware is rented: --config configs/planning.py:qwen2.5-7b --topology v5p:2x2x2

    Compiles the programs of a training step (sampling; scoring, if there is a KL; update) without weights, for this
    machine's devices (--topology local) or for a TPU slice that is not there (the extra 'plan' brings its compiler).
    Reports memory, arithmetic, communication and the shortest possible time of each program. model.path may be a hub id
    in `pods_jax.models.shapes`, whose files are not needed. --sweep m (or n) raises the number of rollouts trained on
    (or generated) until memory runs out, and --out draws the curve. --json prints one line at the end.

    --advise WORKDIR, in place of all this, says whether PODS and Pilot-Commit would pay, from the noise scale that a
    run measured (diagnostics.noise_scale_every_steps; docs/choosing.md).
    """
    parser = config_parser(inspect.getdoc(plan), required=False)
    parser.add_argument("--advise", type=Path, metavar="WORKDIR", help="of a run that measured its noise scale")
    parser.add_argument(
        "--topology", default="local", help="local, CHIP:LAYOUT such as v5e:4x4, or GPUs such as H200:8"
    )
    parser.add_argument("--sweep", choices=("m", "n"), help="raise m or n until memory runs out")
    add_count(parser, "--values", nargs="+", help="the values of --sweep, in place of doubling")
    parser.add_argument("--out", type=Path, help="where --sweep draws its curve: a .png, with a .json beside it")
    args, rest = parser.parse_known_args()
    if (args.advise is None) == (args.config is None):
        raise UserError("what to plan? Give --config (a step to plan) or --advise (a run to learn from), one of both")
    if args.advise is not None:
        return _advise(args.advise, args.json)
    from pods_jax.config.load import load_config
    from pods_jax.planning.report import run

    config = load_config(args.config, overrides(rest))
    summary = run(config, args.topology, args.sweep, args.values, args.out)
    if args.json:
        print_json(summary)


def _advise(workdir: Path, json: bool) -> None:
    from pods_jax.analysis import advice

    measured = advice.read_measured(workdir)
    found = advice.advise(measured)
    print(*advice.lines(measured, found), sep="\n")
    if json:
        print_json({"advice": [dataclasses.asdict(a) | {"verdict": a.verdict} for a in found]})


@_command
def report() -> None:
    """Report on a finished or running run, in one HTML file: --workdir runs/demo

    Writes WORKDIR/report.html (or --out FILE), which needs no other file: learning curve, health, seconds by phase,
    rewards kept and dropped, samples, and the config where it is not the default. Also draws WORKDIR/learning_curve.png
    anew. --json prints one line at the end.
    """
    parser = argparse.ArgumentParser(
        description=inspect.getdoc(report), formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--workdir", type=Path, required=True, help="where the run's files are")
    parser.add_argument("--out", type=Path, help="the file to write (default: WORKDIR/report.html)")
    parser.add_argument("--json", action="store_true", help="print a one-line JSON summary at the end")
    args = parser.parse_args()
    from pods_jax.analysis.run_report import write_report

    out = args.out or args.workdir / "report.html"
    write_report(args.workdir, out)
    print(f"report   {out}")
    if args.json:
        print_json({"out": str(out)})
