"""Errors that the user can act on: the command lines print them on one line and exit with code 2."""


class UserError(Exception):
    """Bad input: the message says what is wrong and where."""
