"""Errors that the user can act on: the command lines print them on one line and exit with code 2."""

import traceback


class UserError(Exception):
    """Bad input: the message says what is wrong and where."""


def raised(error: Exception) -> str:
    """An exception of a user's code on one line: its class, its message, and the file and line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return " ".join(f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})".split())
