"""A process that makes runs one after the other, so that those which differ in nothing but their seed compile once.

Gets a line of JSON for each run, with its "spec", "overrides" and "workdir"; answers with what went wrong, or null.
"""

import contextlib
import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from pods_jax.cache import keep_programs
from pods_jax.errors import UserError
from pods_jax.training.sweep import LOG


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    keep_programs()
    for line in sys.stdin:
        job = json.loads(line)
        with open(Path(job["workdir"]) / LOG, "a") as log:
            problem = _make(job, log)
        gc.collect()
        print(json.dumps(problem), file=answers, flush=True)


def _make(job: dict[str, Any], log: TextIO) -> str | None:
    """Makes a run, whose messages go to the log."""
    from pods_jax.config.load import load_config, origin_of
    from pods_jax.training import Reporter, train

    try:
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            config = load_config(job["spec"], job["overrides"])
            summary = train(config, job["workdir"], Reporter(), origin=origin_of(job["spec"]))
    except UserError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc(file=log)
        return f"{error!r} ({log.name})"
    return f"stopped by {summary['stopped_by']}" if "stopped_by" in summary else None


if __name__ == "__main__":
    main()
