"""A shim for tools that ask for it: the metadata and the extras are in pyproject.toml."""

from setuptools import setup

setup()
