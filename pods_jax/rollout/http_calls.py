"""Calls of an HTTP server that may be slow, overloaded or away for a while: attempts, waits, and many at a time."""

import http.client
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pods_jax.errors import UserError
from pods_jax.fields import one_line

_log = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
"""Seconds between two attempts, at most."""


class Unavailable(Exception):
    """A call failed in a way in which the next one need not."""


class Server:
    """POST calls, each over a connection of its own."""

    def __init__(self, url: str, timeout_s: float, key: str = ""):
        """timeout_s: seconds without a byte after which a call has failed. key: sent as a bearer token; "": none."""
        self._given = url
        self._url = parsed_url(url)
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def post(self, path: str, body: Any) -> bytes:
        """The answer's body.

        Raises:
          Unavailable: no answer, or a status of a server that is overloaded, not ready or broken.
          UserError: another status than 2xx.
        """
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname, self._url.port, timeout=self._timeout_s)
        try:
            connection.request("POST", self._url.path + path, json.dumps(body), self._headers)
            response = connection.getresponse()
            content = response.read()
        except TimeoutError as error:
            raise Unavailable(f"{self._given}{path}: nothing came in {self._timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._given}{path}: {one_line(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if 200 <= response.status < 300:
            return content
        message = f"{self._given}{path}: HTTP {response.status} {one_line(content.decode(errors='replace'))}"
        if response.status >= 500 or response.status in (408, 429):
            raise Unavailable(message)
        raise UserError(message)


def parsed_url(url: str) -> SplitResult | None:
    """The parts of a server's URL, without the "/v1" that OpenAI's clients want; None for what is none."""
    try:
        parts = urlsplit(url)
        port_is_number = parts.port is None or parts.port > 0
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_number:
        return None
    return parts._replace(path=parts.path.rstrip("/").removesuffix("/v1").rstrip("/"))


class Patience:
    """A limited number of failures in a row, each with a longer wait."""

    def __init__(self, attempts: int, backoff_s: float):
        """backoff_s: the first wait; each further one is twice as long, up to `LONGEST_WAIT_S`."""
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._failures = 0

    def restore(self) -> None:
        """Counts from 0 again, as something has succeeded."""
        self._failures = 0

    def spend(self, error: Unavailable) -> None:
        """Waits before the next attempt. Raises UserError after the last."""
        self._failures += 1
        if self._failures >= self._attempts:
            raise UserError(f"{error} ({self._failures} attempts)") from error
        wait_s = min(self._backoff_s * 2 ** (self._failures - 1), LONGEST_WAIT_S)
        _log.warning("%s; attempt %d of %d in %.3g s", error, self._failures + 1, self._attempts, wait_s)
        time.sleep(wait_s)


def concurrently(call: Callable[[int], bytes], items: Sequence[int], limit: int) -> Iterator[tuple[int, bytes]]:
    """(item, call(item)) in the order in which they are done, at most `limit` at a time.

    After a failure no further call is begun; those that are under way are waited for, and the failure is raised in the
    end. (So no request reaches a server that was started anew before the loss of the old one is noticed.) A UserError
    is raised at once. The threads keep no process alive.
    """
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    done: queue.SimpleQueue = queue.SimpleQueue()
    stop = threading.Event()
    for item in items:
        waiting.put(item)

    def work() -> None:
        while not stop.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                done.put((item, call(item)))
            except Exception as error:
                stop.set()
                done.put((item, error))
        done.put(None)

    count = min(limit, len(items))
    for _ in range(count):
        threading.Thread(target=work, name="engine", daemon=True).start()
    try:
        yield from _results(done, count)
    finally:
        stop.set()


def _results(done: queue.SimpleQueue, workers: int) -> Iterator[tuple[int, bytes]]:
    """The results as they come, until all workers have ended; raises as `concurrently`."""
    failure: Exception | None = None
    while workers:
        entry = done.get()
        if entry is None:
            workers -= 1
        elif not isinstance(entry[1], Exception):
            yield entry
        elif isinstance(entry[1], Unavailable):
            failure = failure or entry[1]
        else:
            raise entry[1]
    if failure is not None:
        raise failure
