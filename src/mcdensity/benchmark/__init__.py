"""The paper's experiments, and more: what is run, running it, results, tables, a page.

Nothing in the package imports this module; ``mcdensity bench`` does.
"""
