"""Neural networks and their training; the only part of the package that imports torch."""
