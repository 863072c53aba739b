"""Evaluate a run's checkpoint: python experiments/evaluate.py --config configs/demo.py --workdir runs/demo

Overrides may change what is evaluated, such as --config.evaluation.num_samples=16. --json ends with a one-line summary.
On several hosts, see docs/scaling.md.
"""

from pods_jax.cli import (
    add_checkpoint,
    add_distributed,
    experiment_parser,
    main_with_errors,
    parse_experiment,
    print_json,
    start_distributed,
)


def main() -> None:
    parser = experiment_parser(__doc__)
    add_checkpoint(parser)
    add_distributed(parser)
    args, config = parse_experiment(parser)
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter, evaluate_checkpoint

    scores = evaluate_checkpoint(config, args.workdir, Reporter(quiet=not is_main()), args.checkpoint)
    if args.json and is_main():
        print_json(scores)


if __name__ == "__main__":
    main_with_errors(main)
