"""Density experts: what gives the density of y given x by itself."""
