"""The study at CPU scale: its definition, runs, step costs, tables, figures and their place in docs/results.md."""
