"""Python programs without the seconds of their imports: each is a process of its own, forked from one that has them.

What a program does on its own, it does here: it has its arguments, folder, environment and files, its own JAX, which
has not begun to compute, and it ends as Python does or by a signal. But what it takes from Python's start is shared:
modules are loaded, and the order of sets is the same in all. So each command line also has a test that starts Python.

As a script, the process that is forked.
"""

import atexit
import functools
import gc
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(
    arguments: Sequence[str | Path], cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess:
    """What `subprocess.run([sys.executable, *arguments])` gives; the arguments begin with a script, or with -c."""
    parent = _parent()
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("stdout", "stderr")]
        request = {"arguments": [*map(str, arguments)], "cwd": str(cwd), "env": dict(env or os.environ), "files": files}
        parent.stdin.write(json.dumps(request) + "\n")
        parent.stdin.flush()
        code = int(parent.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, *(Path(file).read_text() for file in files))


def started(arguments: Sequence[str | Path], env: Mapping[str, str]) -> subprocess.CompletedProcess:
    """The same, by a Python of its own."""
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True)


@functools.cache
def _parent() -> subprocess.Popen:
    """It ends before this process, or else when its standard input does. Nothing is set in its JAX."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([sys.executable, __file__], env=env | {"PYTHONPATH": str(ROOT)}, **pipes)
    atexit.register(parent.communicate)
    return parent


def serve() -> None:
    """Forks for each line of standard input and prints the exit code; returns in the forked process."""
    import pods_jax.analysis.comparison
    import pods_jax.commands
    import pods_jax.planning.step_plan
    import pods_jax.training.sweep  # noqa: F401

    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def become(arguments: Sequence[str], cwd: str, env: Mapping[str, str], files: Sequence[str]) -> None:
    """Ends this process as Python with these arguments does."""
    for number, file in enumerate([os.devnull, *files]):
        opened = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(cwd)
    set_environment(env)
    program, *sys.argv[1:] = arguments
    if program == "-c":
        sys.argv[:2] = ["-c"]
        sys.path[0] = ""
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[0] = program
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")
    sys.exit()


def set_environment(env: Mapping[str, str]) -> None:
    """Also in JAX, which reads it where it is imported."""
    import jax

    os.environ.clear()
    os.environ.update(env)
    for name, value in env.items():
        if name.startswith("JAX_") and hasattr(jax.config, name.lower()):
            jax.config.update(name.lower(), int(value) if re.fullmatch(r"-?\d+", value) else value)
    for folder in reversed(env.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(1, folder)


if __name__ == "__main__":
    serve()
