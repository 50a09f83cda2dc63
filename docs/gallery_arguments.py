"""What the examples are called with when the gallery runs them."""

from typing import Any


def write_nothing(gallery_conf: Any, script_vars: Any) -> list[str]:
    """Tell an example to write no file: the gallery takes the figure itself."""
    return ["--output", ""]
