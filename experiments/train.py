"""Train a policy: python experiments/train.py --config configs/demo.py --workdir runs/demo [--config.seed=1 ...]

Goes on from the workdir's last checkpoint if it holds one. --json ends with a one-line summary. On several hosts, see
docs/scaling.md.
"""

from pods_jax.cli import (
    add_distributed,
    experiment_parser,
    main_with_errors,
    parse_experiment,
    print_json,
    start_distributed,
)


def main() -> None:
    parser = experiment_parser(__doc__)
    add_distributed(parser)
    args, config = parse_experiment(parser)
    start_distributed(args)
    from pods_jax.parallel.hosts import is_main
    from pods_jax.training import Reporter, train

    summary = train(config, args.workdir, Reporter(quiet=not is_main()))
    if args.json and is_main():
        print_json(summary)


if __name__ == "__main__":
    main_with_errors(main)
