"""`mcdensity serve`: models behind HTTP. Needs the extra `serve`."""

from mcdensity._validation import require

for _name in ("fastapi", "uvicorn"):
    require(_name, "serve")

from mcdensity.serve._app import TOKEN, create_app  # noqa: E402
from mcdensity.serve._running import run  # noqa: E402

__all__ = ["TOKEN", "create_app", "run"]
