"""Share of mutants that the tests notice: python tests/mutation/score.py pods_jax/selection --sample 20

It makes mistakes in copies of the files, one at a time (`mutants.py` lists their kinds), and runs the tests of the
folder that mirrors the file's, those of the file itself first. A mutant that no test notices wants a test, or computes
the same. The sample is drawn by --seed, so that two states of the tests can be compared on the same mutants.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
COPIED = ("pods_jax", "tests", "experiments", "configs", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")


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
    parser.add_argument("--timeout-s", type=float, default=300.0, help="of a mutant's tests; a mutant may not end")
    parser.add_argument("--tests", type=Path, default=ROOT, help="another checkout, whose tests are run instead")
    args = parser.parse_args()
    chosen = sample(args.paths, args.sample, args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        copy_checkout(Path(scratch), args.tests)
        found = []
        for file, mutant in chosen:
            found.append(Found(file, mutant, is_noticed(Path(scratch), file, mutant, args.timeout_s)))
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


def is_noticed(scratch: Path, file: Path, mutant: Mutant, timeout_s: float) -> bool:
    """Whether a test fails, or does not end, with the mutant in the file's place."""
    original = (scratch / file).read_text(encoding="utf-8")
    (scratch / file).write_text(mutant.source, encoding="utf-8")
    try:
        return any(fails(scratch, tests, timeout_s) for tests in tests_of(scratch, file))
    finally:
        (scratch / file).write_text(original, encoding="utf-8")


def tests_of(scratch: Path, file: Path) -> list[list[str]]:
    """Arguments of pytest for the tests of a file, and for the others of its folder."""
    folder = Path("tests", *file.parts[1:-1])
    own = folder / f"test_{file.stem}.py"
    if not (scratch / own).is_file():
        return [[str(folder)]]
    return [[str(own)], [str(folder), f"--ignore={own}"]]


def fails(scratch: Path, tests: list[str], timeout_s: float) -> bool:
    """Whether one of the tests fails, or takes longer."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": f"{scratch}:{scratch}/experiments", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 2, 5):  # passed, failed, not even imported, or there are none
        raise RuntimeError(done.stdout.decode()[-2000:])
    return done.returncode in (1, 2)


if __name__ == "__main__":
    main()
