"""Figures and numbers of your own runs, from their files, and of the PODS authors' published runs. Imports no JAX."""
