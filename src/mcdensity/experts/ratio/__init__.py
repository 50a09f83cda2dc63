"""Ratio experts: classifiers that tell joint pairs from broken ones."""
