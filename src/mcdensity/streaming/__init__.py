"""Fitting and predicting where the data lie: files that do not fit into memory, clusters."""
