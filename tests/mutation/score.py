"""Share of mutants that the tests notice: python tests/mutation/score.py pods_jax/selection --sample 20

It makes mistakes in copies of the files, one at a time (`mutants.py` lists their kinds), and runs the tests of the file
and the others of its folder's mirror in tests/. A mutant that no test notices wants a test, or computes the same.
The sample is drawn by --seed, so that two states of the tests can be compared on the same mutants.
"""

import argparse
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
COPIED = ("pods_jax", "tests", "experiments", "configs", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")
PASSED = (0, 5)
"""Exit codes of pytest: all passed, or there were none."""

Tests = tuple[str, ...]
"""Arguments of pytest."""


class Found(NamedTuple):
    """A mutant's file, relative to the checkout, and whether a test noticed it."""

    file: Path
    mutant: Mutant
    noticed: bool

    def __str__(self) -> str:
        word = "noticed" if self.noticed else "SURVIVED"
        return f"{word:8}  {self.file}:{self.mutant.line}  {self.mutant.before}  ->  {self.mutant.after}"


def main() -> None:
    """Prints a line for each mutant, and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="files or folders of pods_jax")
    parser.add_argument("--sample", type=int, default=20, help="mutants, drawn evenly from the files (default: 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--own", action="store_true", help="run the tests of the file only, where it has tests")
    parser.add_argument("--tests", type=Path, default=ROOT, help="another checkout, whose tests are run instead")
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        copy_checkout(Path(scratch), args.tests)
        for file, mutant in sample(args.paths, args.sample, args.seed):
            tests = tests_of(Path(scratch), file)[: 1 if args.own else 2]
            found.append(Found(file, mutant, is_noticed(Path(scratch), file, mutant, tests)))
            print(found[-1], flush=True)
    print(f"{sum(f.noticed for f in found)} of {len(found)} mutants noticed")


def sample(paths: list[Path], count: int, seed: int) -> list[tuple[Path, Mutant]]:
    """`count` mutants, one file after the other in turn, so that long files have no more of them than short ones."""
    rng = random.Random(seed)
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    queues = {file.resolve().relative_to(ROOT): list(mutants(file.read_text(encoding="utf-8"))) for file in files}
    for queue in queues.values():
        rng.shuffle(queue)
    chosen = []
    while len(chosen) < count and any(queues.values()):
        chosen += [(file, queue.pop()) for file, queue in queues.items() if queue]
    return chosen[:count]


def copy_checkout(scratch: Path, tests: Path) -> None:
    """A checkout in which mutants do no harm, with the tests of another one if asked for."""
    for name in COPIED:
        source = (tests if name == "tests" else ROOT) / name
        if source.is_dir():
            shutil.copytree(source, scratch / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, scratch / name)


def tests_of(scratch: Path, file: Path) -> list[Tests]:
    """The tests of a file, and the others of its folder."""
    folder = Path("tests", *file.parts[1:-1])
    own = folder / f"test_{file.stem}.py"
    if not (scratch / own).is_file():
        return [(str(folder),)]
    return [(str(own),), (str(folder), f"--ignore={own}")]


def is_noticed(scratch: Path, file: Path, mutant: Mutant, tests: list[Tests]) -> bool:
    """Whether a test fails, or does not end, with the mutant in the file's place."""
    limits = [limit_s(scratch, chosen) for chosen in tests]
    original = (scratch / file).read_text(encoding="utf-8")
    (scratch / file).write_text(mutant.source, encoding="utf-8")
    try:
        return any(fails(scratch, chosen, limit) for chosen, limit in zip(tests, limits, strict=True))
    finally:
        (scratch / file).write_text(original, encoding="utf-8")


@functools.cache
def limit_s(scratch: Path, tests: Tests) -> float:
    """Seconds after which tests count as endless: several times what they take without a mutant."""
    start_s = time.monotonic()
    if fails(scratch, tests, None):
        sys.exit(f"{' '.join(tests)}: fails without any mutant")
    return 60 + 4 * (time.monotonic() - start_s)


def fails(scratch: Path, tests: Tests, timeout_s: float | None) -> bool:
    """Whether one of the tests fails, or takes longer."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": f"{scratch}:{scratch}/experiments", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in PASSED


if __name__ == "__main__":
    main()
