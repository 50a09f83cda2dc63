"""The command line. Only what is needed is imported, when it is needed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ImportError:  # pragma: no cover
    sys.exit("The command line needs typer and rich: pip install 'mcdensity[cli]'")

from mcdensity.benchmark.commands import bench
from mcdensity.cli.drawing import plot
from mcdensity.cli.exploring import explore
from mcdensity.cli.exporting import export
from mcdensity.cli.fitting import fit
from mcdensity.cli.predicting import predict
from mcdensity.cli.reporting import evaluate, info, report
from mcdensity.cli.serving import serve

__all__ = ["app", "main"]

app = typer.Typer(
    name="mcdensity",
    help="The whole distribution of y given x: quantiles, intervals, P(y > v), from a table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fit, predict, evaluate, report, explore, plot, info, serve, export):
    app.command()(command)


def main() -> None:
    """Run the command line; errors a user can fix are reported in one line, without a traceback.

    Exit codes: 0 all went well, 1 something is wrong with the data, the model or a file, 2 the
    command was not understood, 130 interrupted.
    """
    try:
        app()
    except SystemExit as stop:
        if stop.code == 130:
            # A library may have noted the interruption, too, and raise it again while Python ends.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            typer.secho("Finished results are kept; no file is half written.", err=True)
        raise
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        typer.secho("Error: there is not enough memory for this.", fg=typer.colors.RED, err=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError, ImportError) as error:
        typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from mcdensity import __version__

        typer.echo(f"mcdensity {__version__}")
        raise typer.Exit


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")] = Path(
        "demo"
    ),
) -> None:
    """Show the way from a CSV file to a report and an explorer, on data of scikit-learn."""
    from sklearn.datasets import load_diabetes

    from mcdensity.tables import write_table

    table = load_diabetes(as_frame=True, scaled=False).frame
    table["sex"] = table["sex"].map({1.0: "female", 2.0: "male"})
    table = table.rename(columns={"target": "progression"})
    output.mkdir(parents=True, exist_ok=True)
    names = ("diabetes.csv", "model.mcd", "model-held-out.csv", "predictions.csv", "report.html",
             "explore.html")  # fmt: skip
    data, model, held_out, predictions, page, explorer = (output / name for name in names)
    write_table(table, data)
    steps: tuple[tuple[str, Any], ...] = (
        (f"fit {data} --target progression --hold-out 0.3 -o {model}",
         lambda: fit(data, "progression", model, hold_out=0.3)),
        (f"predict {model} {held_out} --interval 0.9 --above 200 --keep progression "
         f"-o {predictions}",
         lambda: predict(model, held_out, predictions, interval="0.9", above="200",
                         keep="progression")),
        (f"report {model} {held_out} -o {page}", lambda: report(model, held_out, page)),
        (f"explore {model} {held_out} -o {explorer}", lambda: explore(model, held_out, explorer)),
    )  # fmt: skip
    for text, step in steps:
        typer.secho(f"$ mcdensity {text}", bold=True)
        step()
    typer.echo(f"Open {page} and {explorer} in a browser.")


# The experiments come last in the help.
app.add_typer(bench, name="bench")
