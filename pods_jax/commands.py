"""Command lines that work on one experiment: `experiments/NAME.py` in a checkout, `pods-NAME` where it is installed."""

import argparse
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from pods_jax.cli import (
    add_checkpoint,
    add_count,
    add_distributed,
    config_parser,
    experiment_parser,
    main_with_errors,
    parse_experiment,
    print_json,
    start_distributed,
)


def _command(main: Callable[[], None]) -> Callable[[], None]:
    """The same function, except that bad input gives one line on stderr and exit code 2."""
    return functools.wraps(main)(lambda: main_with_errors(main))


@_command
def train() -> None:
    """Train a policy, for example with --config configs/demo.py --workdir runs/demo --config.seed=1

    Continues from the workdir's last checkpoint if there is one. --json prints a one-line summary at the end. For
    several hosts, see docs/scaling.md.
    """
    parser = experiment_parser(inspect.getdoc(train))
    add_distributed(parser)
    parser.add_argument(
        "--stopped-exit-code", type=int, default=0, metavar="CODE",
        help="of a run that a signal stopped, with a checkpoint, before it was finished (default: 0)",
    )  # fmt: skip
    args, config = parse_experiment(parser)
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter
    from pods_jax.training import train as train_policy

    summary = train_policy(config, args.workdir, Reporter(quiet=not is_main()), args.stopped_exit_code)
    if args.json and is_main():
        print_json(summary)
    if "stopped_by" in summary:
        sys.exit(args.stopped_exit_code)


@_command
def evaluate() -> None:
    """Evaluate a run's checkpoint, for example with --config configs/demo.py --workdir runs/demo

    Overrides may change the evaluation, such as --config.evaluation.num_samples=16. --json prints a one-line summary at
    the end. For several hosts, see docs/scaling.md.
    """
    parser = experiment_parser(inspect.getdoc(evaluate))
    add_checkpoint(parser)
    add_distributed(parser)
    args, config = parse_experiment(parser)
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter, evaluate_checkpoint

    scores = evaluate_checkpoint(config, args.workdir, Reporter(quiet=not is_main()), args.checkpoint)
    if args.json and is_main():
        print_json(scores)


@_command
def export() -> None:
    """Export a run's checkpoint, for example with --config configs/demo.py --workdir runs/demo --out exported/demo

    Writes a folder that transformers loads. For a LoRA run it merges the weights, and PEFT loads out/adapter. For
    weights that are split over several hosts, see docs/scaling.md.
    """
    parser = experiment_parser(inspect.getdoc(export))
    parser.add_argument("--out", required=True, help="the folder to write")
    dtypes = ("float32", "bfloat16", "float16")
    parser.add_argument("--dtype", choices=dtypes, help="of the weights; by default that of the pretrained model")
    add_checkpoint(parser)
    add_distributed(parser)
    args, config = parse_experiment(parser)
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter, export_checkpoint

    reporter = Reporter(quiet=not is_main())
    export_checkpoint(config, args.workdir, args.out, reporter, args.checkpoint, args.dtype)
    if args.json and is_main():
        print_json({"out": args.out})


@_command
def plan() -> None:
    """Plan a step before the hardware is rented: --config configs/planning.py:qwen2.5-7b --topology v5p:2x2x2

    Compiles the programs of a training step (sampling; scoring, if there is a KL; update) without weights, for this
    machine's devices (--topology local) or for a TPU slice that is not there (the extra 'plan' brings its compiler).
    Reports memory, arithmetic, communication and the shortest possible time of each program. model.path may be a hub id
    in `pods_jax.models.shapes`, whose files are not needed. --sweep m (or n) raises the number of rollouts trained on
    (or generated) until memory runs out, and --out draws the curve. --json prints one line at the end.
    """
    parser = config_parser(inspect.getdoc(plan))
    parser.add_argument(
        "--topology", default="local", help="local, CHIP:LAYOUT such as v5e:4x4, or GPUs such as H200:8"
    )
    parser.add_argument("--sweep", choices=("m", "n"), help="raise m or n until memory runs out")
    add_count(parser, "--values", nargs="+", help="the values of --sweep, in place of doubling")
    parser.add_argument("--out", type=Path, help="where --sweep draws its curve: a .png, with a .json beside it")
    args, config = parse_experiment(parser)
    from pods_jax.planning.report import run

    summary = run(config, args.topology, args.sweep, args.values, args.out)
    if args.json:
        print_json(summary)


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
