"""The common part of the command lines: --config with overrides, --workdir, --json, and one-line errors."""

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pods_jax.cache import keep_programs, programs_folder, trim_after_compiling
from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.io import finite


def experiment_parser(doc: str) -> argparse.ArgumentParser:
    """A parser for command lines that begin an experiment, or go on with it."""
    parser = config_parser(doc)
    parser.add_argument("--workdir", required=True, help="where the run's files are, or will be written")
    return parser


def policy_parser(doc: str) -> argparse.ArgumentParser:
    """A parser for command lines that work on the policy of a workdir; their config is the workdir's own by default."""
    parser = config_parser(doc, required=False)
    parser.add_argument("--workdir", help="of the run")
    add_checkpoint(parser)
    return parser


def config_parser(doc: str, required: bool = True) -> argparse.ArgumentParser:
    """A parser for command lines that need only an experiment's config."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--config",
        required=required,
        metavar="FILE[:ARG]",
        help="an experiment, e.g. configs/demo.py:grpo"
        + ("" if required else "; by default what the workdir was made with"),
    )
    parser.add_argument("--json", action="store_true", help="print a one-line JSON summary at the end")
    parser.epilog = f"""--config.SECTION.KEY=VALUE overrides a value of the config.
Compiled programs are kept for the next run in {programs_folder()} (PODS_JAX_PROGRAMS=0: they are not)."""
    return parser


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Adds the argument that chooses one of a workdir's checkpoints."""
    parser.add_argument("--checkpoint", default="newest", metavar="WHICH", help="newest (default), best, or a step")


def add_count(
    parser: argparse.ArgumentParser, name: str, least: int = 1, below: int | None = None, **options: Any
) -> None:
    """Adds an argument of one or several integers of at least `least`, and below `below` if that is given.

    options: further arguments of `add_argument`.
    """

    def integer(text: str) -> int:
        if int(text) < least:
            raise UserError(f"{name} must be at least {least}, got {text}")
        if below is not None and int(text) >= below:
            raise UserError(f"{name} must be below {below}, got {text}")
        return int(text)

    parser.add_argument(name, type=integer, **options)


def add_distributed(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a command line that several processes may run together."""
    group = parser.add_argument_group("several processes, each of which runs this command line")
    group.add_argument("--distributed", action="store_true", help="find each other (on Slurm, GKE and Cloud TPU)")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="find each other here: the first process's address")
    group.add_argument("--num-processes", type=int, metavar="N")
    group.add_argument("--process-id", type=int, metavar="I", help="0 to N - 1")


def start_distributed(args: argparse.Namespace) -> None:
    """Joins the other processes, if the arguments of `add_distributed` name any. It must run before JAX is used."""
    _check_distributed(args)
    if args.coordinator or args.distributed:
        from pods_jax.parallel import start  # imports JAX, which not every command line needs

        start.join(args.coordinator, args.num_processes, args.process_id)


def _check_distributed(args: argparse.Namespace) -> None:
    together = args.coordinator, args.num_processes, args.process_id
    if None in together and together != (None, None, None):
        raise UserError(
            "--coordinator, --num-processes and --process-id go together "
            "(where processes find each other, --distributed stands for all three)"
        )
    if args.coordinator and not re.fullmatch(r".+:\d+", args.coordinator):
        raise UserError(f"--coordinator {args.coordinator} must be HOST:PORT")
    if args.coordinator and not 0 <= args.process_id < args.num_processes:
        raise UserError(f"--process-id {args.process_id} must lie in 0..{args.num_processes - 1}")


def parse_experiment(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Config]:
    """The arguments, and the checked config with its overrides."""
    from pods_jax.config.load import load_config  # imports JAX, which not every command line needs

    args, rest = parser.parse_known_args()
    return args, load_config(args.config, overrides(rest))


def parse_policy(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Config]:
    """The arguments of a `policy_parser`, and the checked config of the policy that they name.

    That is the given config, or else the workdir's own; and with --model, the defaults in place of a workdir.

    Raises:
      UserError: neither or both of a workdir and a model are named.
    """
    from pods_jax.config.load import freeze, load_values

    args, rest = parser.parse_known_args()
    model = getattr(args, "model", None)
    if (args.workdir is None) == (model is None):
        names = "--workdir" if not hasattr(args, "model") else "--workdir (a run) or --model (a pretrained one)"
        raise UserError(f"which policy? Give {names}" + (", not both" if args.workdir else ""))
    given = overrides(rest)
    if model is not None:
        given = [*given, f"model.path={model}"]
    if args.config is None and model is None:
        from pods_jax.training.workdir import saved_config

        return args, saved_config(args.workdir, given)
    return args, freeze(load_values(args.config), given)


def overrides(arguments: Sequence[str]) -> list[str]:
    """The overrides SECTION.KEY=VALUE in the arguments that a parser did not know.

    Raises:
      UserError: an argument is no override.
    """
    strangers = [a for a in arguments if not a.startswith("--config.")]
    if strangers:
        raise UserError(f"unknown argument {strangers[0]} (overrides are written --config.SECTION.KEY=VALUE)")
    return [a.removeprefix("--config.") for a in arguments]


def print_json(value: Any) -> None:
    """Prints one line of JSON to stdout, with null for numbers that JSON lacks (infinite, NaN)."""
    print(json.dumps(finite(value)))


def main_with_errors(main: Callable[[], None]) -> None:
    """Runs a command line; bad input gives one line on stderr and exit code 2."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would advise to install torch
    try:
        keep_programs()
        trim_after_compiling()
        main()
    except UserError as e:
        sys.exit(_print_error(str(e), 2))
    except KeyboardInterrupt:
        sys.exit(_print_error("interrupted; the same command goes on from the last checkpoint", 130))
    except BrokenPipeError:  # the reader of stdout, such as `head`, has all that it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what the interpreter still writes at its end
        sys.exit(128 + signal.SIGPIPE)
    finally:
        _bound_the_end()


def _bound_the_end() -> None:
    """Ends one of several processes in bounded time, whatever its threads still wait for; the others end with it."""
    if "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized():
        from pods_jax.parallel.start import SHUTDOWN_S, end_within

        end_within(2 * SHUTDOWN_S, 1)


def _print_error(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code
