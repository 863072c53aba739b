import os
import signal
import subprocess
import sys
import threading
import time

import misbehaving_verifiers
import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, Verdict, register
from pods_jax.rewards.pool import MAX_STARTS, WALL_FACTOR, Troubles

needs_memory_limit = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a worker's memory")

HERE = os.path.dirname(misbehaving_verifiers.__file__)


@pytest.fixture(scope="module")
def shared_pool():
    """For tests that leave the pool usable, whatever they do to its workers."""
    with RewardPool(num_workers=2) as pool:
        yield pool


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until_gone(pid: int, limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if is_gone(pid):
            return True
        time.sleep(0.05)
    return False


def run_script(script: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": HERE} | environment,
    )


def test_order_is_kept_and_workers_are_reused(shared_pool):
    outputs = [f"output {i}" for i in range(60)]
    verdicts = shared_pool.score(outputs, ["pass"] * 60, "misbehave")
    assert verdicts == [Verdict(True, output, "match") for output in outputs]
    pids = {verdict.answer for verdict in shared_pool.score(outputs, [""] * 60, "process")}
    assert 1 <= len(pids) <= 2
    assert str(os.getpid()) not in pids


@pytest.mark.parametrize(
    ("deed", "verdict"),
    [
        ("hang", Verdict(False, None, "timeout")),
        ("hang in C", Verdict(False, None, "timeout")),
        ("exit", Verdict(False, None, "crashed")),
        ("raise", Verdict(False, None, "crashed")),
        pytest.param("allocate", Verdict(False, None, "crashed"), marks=needs_memory_limit),
        ("print", Verdict(True, "2", "match")),
        ("read stdin", Verdict(True, "2", "match")),
        ("fork", Verdict(True, "2", "match")),
        ("fork and hang", Verdict(True, "2", "match")),
        ("fork and exit", Verdict(False, None, "crashed")),
        ("write to all descriptors", Verdict(True, "2", "match")),
        ("close all descriptors", Verdict(False, None, "crashed")),
    ],
)
def test_one_bad_item_costs_only_itself(shared_pool, deed, verdict):
    golds = ["pass", "pass", deed, "pass", "pass"]
    start = time.monotonic()
    verdicts = shared_pool.score(list("01234"), golds, "misbehave", deadline_s=0.5)
    assert time.monotonic() - start < 20
    assert verdicts == [verdict if gold == deed else Verdict(True, str(i), "match") for i, gold in enumerate(golds)]


def test_the_deadline_is_for_one_item_and_not_for_the_start_of_a_worker():
    with RewardPool(num_workers=1) as pool:
        assert pool.score(["a", "b"], ["", ""], "slow_start", deadline_s=0.3) == [
            Verdict(True, "a", "match"),
            Verdict(True, "b", "match"),
        ]
        start = time.monotonic()
        verdicts = pool.score(["a"] * 3, ["hang", "pass", "hang"], "misbehave", deadline_s=0.4)
        assert [verdict.reason for verdict in verdicts] == ["timeout", "match", "timeout"]
        assert time.monotonic() - start >= 0.8


@pytest.mark.usefixtures("deaf_to_sigprof")
def test_the_deadline_holds_whatever_signals_this_process_ignores_or_blocks():
    with RewardPool(num_workers=1) as pool:
        assert pool.score(["a"], ["hang"], "misbehave", deadline_s=0.3) == [Verdict(False, None, "timeout")]


def test_a_worker_outlives_the_signal_that_a_cluster_sends_to_all_processes():
    with RewardPool(num_workers=1) as pool:
        [first] = pool.score([""], [""], "process")
        os.kill(int(first.answer), signal.SIGTERM)
        time.sleep(0.1)
        [second] = pool.score([""], [""], "process")
    assert second.answer == first.answer


def test_workers_work_side_by_side():
    seconds = {}
    for num_workers in (1, 4):
        with RewardPool(num_workers) as pool:
            pool.score([""] * 4 * num_workers, ["pass"] * 4 * num_workers, "misbehave")  # starts them
            start = time.monotonic()
            pool.score([""] * 40, ["doze"] * 40, "misbehave")
            seconds[num_workers] = time.monotonic() - start
    assert seconds[1] >= 2.0
    assert seconds[4] < seconds[1] / 2.5


def test_a_worker_that_is_killed_while_idle_is_replaced():
    with RewardPool(num_workers=1) as pool:
        [first] = pool.score([""], [""], "process")
        os.kill(int(first.answer), signal.SIGKILL)
        time.sleep(0.1)
        [second] = pool.score([""], [""], "process")
    assert second.correct
    assert second.answer != first.answer


@pytest.mark.parametrize("text", ["a\nb\r\n\u2028c\0", "\ud800 alone", "é" * 1_000_000, '"}\n["ready", null]\n'])
def test_any_text_travels_unchanged(shared_pool, text):
    assert shared_pool.score([text], ["pass"], "misbehave") == [Verdict(True, text, "match")]


def test_workers_load_neither_jax_nor_the_callers_main(shared_pool):
    [verdict] = shared_pool.score([""], ["jax,transformers,numpy,pytest,misbehaving_verifiers"], "process")
    assert verdict.reason == "misbehaving_verifiers"


def test_bounded_verifiers_run_in_this_process():
    with RewardPool() as pool:
        assert pool.score(["", ""], ["", ""], "process_bounded") == [Verdict(True, str(os.getpid()), "")] * 2


def test_many_threads_may_share_a_pool(shared_pool):
    results: dict[int, list[str | None]] = {}

    def score(caller: int) -> None:
        outputs = [f"{caller}.{i}" for i in range(20)]
        results[caller] = [verdict.answer for verdict in shared_pool.score(outputs, ["pass"] * 20, "misbehave")]

    threads = [threading.Thread(target=score, args=(caller,)) for caller in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert results == {caller: [f"{caller}.{i}" for i in range(20)] for caller in range(5)}


def test_user_errors_reach_the_caller(shared_pool):
    with pytest.raises(UserError, match="no such gold"):
        shared_pool.score(["a", "b"], ["pass", "reject gold"], "misbehave")
    with pytest.raises(UserError, match="did you mean 'misbehave'"):
        shared_pool.score(["a"], ["pass"], "misbehav")
    with pytest.raises(UserError, match=r"'unprepared': ValueError in .*misbehaving_verifiers"):
        shared_pool.score(["a"], ["pass"], "unprepared")
    assert shared_pool.score(["a"], ["pass"], "misbehave")[0].correct


def test_a_verifier_that_workers_cannot_import_is_a_user_error(shared_pool):
    def verify(output: str, gold: str) -> Verdict:
        return Verdict(True, output, "match")

    verify.__module__ = "__main__"
    register("defined_in_main")(verify)
    with pytest.raises(UserError, match="defined in __main__"):
        shared_pool.score([""], [""], "defined_in_main")


def test_outputs_and_golds_must_pair_up(shared_pool):
    with pytest.raises(ValueError, match="shorter"):
        shared_pool.score(["a", "b"], ["pass"], "misbehave")
    assert shared_pool.score([], [], "misbehave") == []


def score_in_thread(pool, *arguments, **options) -> tuple[threading.Thread, list[Verdict]]:
    verdicts: list[Verdict] = []
    caller = threading.Thread(target=lambda: verdicts.extend(pool.score(*arguments, **options)))
    caller.start()
    return caller, verdicts


def test_close_ends_all_workers_even_busy_ones():
    pool = RewardPool(num_workers=2)
    pids = {int(verdict.answer) for verdict in pool.score([""] * 50, [""] * 50, "process")}
    caller, verdicts = score_in_thread(pool, [""] * 3, ["hang"] * 3, "misbehave", deadline_s=60)
    time.sleep(0.5)
    start = time.monotonic()
    pool.close()
    caller.join(timeout=10)
    assert time.monotonic() - start < 5
    assert [verdict.reason for verdict in verdicts] == ["closed"] * 3
    assert all(map(is_gone, pids))
    pool.close()
    with pytest.raises(RuntimeError):
        pool.score([""], ["pass"], "misbehave")


def test_close_does_not_wait_for_the_rest_of_a_chunk():
    pool = RewardPool(num_workers=1)
    pool.score([""], ["pass"], "misbehave")
    caller, verdicts = score_in_thread(pool, [""] * 60, ["hang"] * 60, "misbehave", deadline_s=0.1)
    time.sleep(3)
    start = time.monotonic()
    pool.close()
    caller.join(timeout=20)
    assert time.monotonic() - start < 2
    assert {verdict.reason for verdict in verdicts} == {"timeout", "closed"}
    assert len(verdicts) == 60


def test_close_is_prompt_while_a_worker_starts():
    pool = RewardPool(num_workers=1)
    caller, _ = score_in_thread(pool, [""], [""], "slow_start")
    time.sleep(0.05)
    pool.close()
    caller.join(timeout=5)
    assert not caller.is_alive()


def test_a_verifier_that_only_waits_is_ended_by_the_wall_clock_and_the_verdict_says_so():
    with RewardPool(num_workers=1) as pool:
        pool.score([""], ["pass"], "misbehave")
        start = time.monotonic()
        verdicts = pool.score(["a", "b"], ["wait", "pass"], "misbehave", deadline_s=0.2)
        assert time.monotonic() - start >= WALL_FACTOR * 0.2
    assert [verdict.reason for verdict in verdicts] == ["wall timeout", "match"]


def test_a_worker_that_is_frozen_for_longer_than_the_limit_of_processor_time_keeps_its_verdict():
    with RewardPool(num_workers=1) as pool:
        [first] = pool.score([""], [""], "process")
        os.kill(int(first.answer), signal.SIGSTOP)
        caller, verdicts = score_in_thread(pool, ["a"], ["doze"], "misbehave", deadline_s=0.3)
        time.sleep(1.0)
        os.kill(int(first.answer), signal.SIGCONT)
        caller.join(timeout=10)
    assert verdicts == [Verdict(True, "a", "match")]


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_worker_that_is_killed_while_it_starts_is_started_again(tmp_path, monkeypatch, deaths):
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    (tmp_path / "starts").write_bytes(b"x" * deaths)
    with RewardPool(num_workers=1) as pool:
        assert pool.score(["a"], ["b"], "killed_at_start") == [Verdict(True, "a", "match")]


def test_a_worker_that_never_starts_is_a_user_error(tmp_path, monkeypatch):
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    (tmp_path / "starts").write_bytes(b"x" * 100)
    with (
        RewardPool(num_workers=1) as pool,
        pytest.raises(UserError, match=rf"did not start \(crashed, {MAX_STARTS} times\)"),
    ):
        pool.score(["a"], ["b"], "killed_at_start")
    assert (tmp_path / "starts").stat().st_size == 100 - MAX_STARTS


def test_a_pool_is_refused_in_a_forked_child():
    script = """
import os, misbehaving_verifiers
from pods_jax.rewards import RewardPool, verify
pool = RewardPool(1)
[before] = pool.score([""], [""], "process")
assert verify("", "pass", "misbehave")
child = os.fork()
if child == 0:
    try:
        pool.score([""], ["pass"], "misbehave")
    except RuntimeError as error:
        assert "forked child" in str(error)
        assert verify("", "pass", "misbehave")
        raise SystemExit(7)
_, status = os.waitpid(child, 0)
[after] = pool.score([""], [""], "process")
print(os.waitstatus_to_exitcode(status), before.answer == after.answer)
"""
    with run_script(script) as program:
        assert program.communicate(timeout=60)[0].split() == ["7", "True"]


def test_troubles_are_told_in_one_line_and_again_when_they_change(caplog):
    troubles = Troubles()
    good = [Verdict(True, "1", "match")] * 250
    bad = [Verdict(False, None, "timeout")] * 10
    for verdicts in (good, good, good + bad, good + bad, good + good[:7] + bad[:3], good + bad, good + bad):
        troubles.note("math", verdicts)
    assert [record.message for record in caplog.records] == [
        "verifier of task 'math': of the last 260 outputs 3.8% timeout; they count as wrong",
        "verifier of task 'math': verdicts on nearly all of the last 260 outputs again",
        "verifier of task 'math': of the last 260 outputs 3.8% timeout; they count as wrong",
    ]


def test_a_program_that_forgets_to_close_leaves_no_worker():
    script = (
        "import misbehaving_verifiers; from pods_jax.rewards import RewardPool;"
        "print(RewardPool(1).score([''], [''], 'process')[0].answer)"
    )
    with run_script(script) as program:
        pid = int(program.communicate(timeout=30)[0])
    assert program.returncode == 0
    assert wait_until_gone(pid, limit_s=5)


def test_what_a_verifier_has_forked_does_not_outlive_a_killed_program():
    script = """
import os, signal, misbehaving_verifiers
from pods_jax.rewards import RewardPool
pool = RewardPool(1)
[worker] = pool.score([""], [""], "process")
pool.score([""], ["fork and hang"], "misbehave")
print(worker.answer, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with run_script(script) as program:
        group = int(program.communicate(timeout=30)[0])
    assert program.returncode == -signal.SIGKILL
    assert wait_until_gone(-group, limit_s=5)


def test_a_hung_worker_does_not_outlive_a_killed_program(tmp_path):
    pid_file = tmp_path / "pid"
    script = (
        "import misbehaving_verifiers; from pods_jax.rewards import RewardPool;"
        "RewardPool(1).score([''], ['hang and tell'], 'misbehave', deadline_s=0.5)"
    )
    with run_script(script, PID_FILE=str(pid_file)) as program:
        while not (pid_file.exists() and pid_file.read_text()):
            assert program.poll() is None
            time.sleep(0.02)
        program.kill()
    assert wait_until_gone(int(pid_file.read_text()), limit_s=10)
