"""`mcdensity export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mcdensity.cli.shared import Model, load_model, working

__all__ = ["export"]


def export(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file.")] = Path(
        "model.onnx"
    ),
) -> None:
    """Write a model as an ONNX file, for programs without Python; it is distilled if need be."""
    from mcdensity._validation import require

    require("onnx", "onnx")
    from mcdensity._distilling import network_only
    from mcdensity.exporting import export_onnx

    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; name a file in it.")
    estimator: Any = load_model(model)
    if hasattr(estimator, "distill") and not hasattr(estimator, "distill_loss_"):
        with working("Distilling"):
            estimator = network_only(estimator)
    about = export_onnx(estimator, output)
    names = ", ".join(dict.fromkeys(entry["feature"] for entry in about["inputs"]))
    typer.echo(
        f"The small network is {about['distill_loss']:.3f} nats from the model. It takes "
        f"{len(about['inputs'])} standardised columns ({names}); how to make them is in the "
        f"metadata of the file: {output}"
    )
