"""The commands of `mcdensity bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["bench"]

bench = typer.Typer(help="Repeat the experiments of the paper, and more.", no_args_is_help=True)

_RESULTS = Path("results.db")
Results = Annotated[
    Path, typer.Option("--results", "-r", help="Results file, or a folder that export wrote.")
]


def _list(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


@bench.command("run")
def bench_run(
    protocol: Annotated[str, typer.Argument(help="What to run, for example density-models.")],
    methods: Annotated[
        str | None,
        typer.Option(help="Some methods, separated by commas; module:function for your own."),
    ] = None,
    problems: Annotated[
        str | None, typer.Option(help="Some problems, separated by commas.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 2,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, to run on its workers.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small budgets: to try, not to compare.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed cells again.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which a cell is ended.")
    ] = None,
    results: Results = _RESULTS,
) -> None:
    """Run a protocol; cells that are done already, or that another process runs, are skipped."""
    from mcdensity.benchmark.protocols import get_protocol
    from mcdensity.benchmark.runner import plan, run, stored_name
    from mcdensity.benchmark.store import Store

    plan(get_protocol(protocol), _list(methods), seeds, _list(problems), quick)  # before any file

    with Store(results) as store, _progress(protocol) as report:
        ran = run(
            protocol,
            store,
            methods=_list(methods),
            problems=_list(problems),
            seeds=seeds,
            jobs=jobs,
            scheduler=scheduler,
            quick=quick,
            retry_failed=retry_failed,
            time_limit=time_limit,
            report=report,
        )
        elsewhere = store.count_claims(stored_name(protocol, quick))
    counts = {s: sum(r.status == s for r in ran) for s in ("done", "failed", "unavailable")}
    said = ", ".join(f"{n} {s}" for s, n in counts.items() if n) or "nothing left to run"
    also = f", {elsewhere} run by other processes" if elsewhere else ""
    typer.echo(f"{protocol}: {said}{also}; results in {results}.")


@contextmanager
def _progress(protocol: str) -> Iterator[Callable[[Any, int, int], None]]:
    """Show a bar, and what failed; gives what `run` calls with each result."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = [
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
    ]  # fmt: skip
    console = Console(stderr=True)
    unavailable: set[str] = set()

    def say(text: str) -> None:
        # What a method says is no markup.
        console.print(text, markup=False, highlight=False)

    # Cells may take minutes: the time left is estimated from all of the last day.
    with Progress(*columns, console=console, speed_estimate_period=86400) as bar:
        task = bar.add_task(protocol, total=None)

        def report(result: Any, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            if result is None or result.status == "done":
                return
            cell = result.cell
            if result.status == "unavailable":
                if cell.problem not in unavailable:
                    say(f"not available: {cell.problem}: {result.error}")
                unavailable.add(cell.problem)
            else:
                say(f"failed: {cell.problem}, {cell.method}, seed {cell.seed}: {_last(result)}")

        yield report


@bench.command("status")
def bench_status(results: Results = _RESULTS) -> None:
    """Say what is done, and what failed and why."""
    from mcdensity.benchmark.export import read_results

    own = read_results(results)
    for name in sorted({r.cell.protocol for r in own}):
        cells = [r for r in own if r.cell.protocol == name]
        counts = {s: sum(r.status == s for r in cells) for s in ("done", "failed", "unavailable")}
        typer.echo(f"{name}: " + ", ".join(f"{n} {s}" for s, n in counts.items() if n))
        for r in cells:
            if r.status == "failed":
                typer.echo(f"  {r.cell.problem}, {r.cell.method}, seed {r.cell.seed}: {_last(r)}")
        for problem in sorted({r.cell.problem for r in cells if r.status == "unavailable"}):
            reason = next(_last(r) for r in cells if r.cell.problem == problem)
            typer.echo(f"  {problem} is not available: {reason}")


def _last(result: Any) -> str:
    return ((result.error or "").strip().splitlines() or ["the reason was not kept"])[-1]


@bench.command("table")
def bench_table(
    protocol: Annotated[str, typer.Argument(help="Whose results.")],
    metric: Annotated[
        str | None, typer.Option(help="Another metric than the protocol's own.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of Markdown.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file.")] = None,
    results: Results = _RESULTS,
) -> None:
    """Print the table of a protocol."""
    from mcdensity._files import write_file
    from mcdensity.benchmark.export import read_results
    from mcdensity.benchmark.protocols import get_protocol
    from mcdensity.benchmark.tables import summarize

    chosen = get_protocol(protocol.removesuffix("-quick"))
    own = read_results(results, protocol)
    if not own:
        known = sorted({r.cell.protocol for r in read_results(results)})
        raise ValueError(
            f"{results} has no results of {protocol}, only of {', '.join(known) or 'nothing'}; "
            f"run `mcdensity bench run {chosen.name}`."
        )
    table = summarize(own, chosen, metric)
    text = table.csv() if as_csv else table.markdown()
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_file(output, text)


@bench.command("export")
def bench_export(
    folder: Annotated[Path, typer.Argument(help="Where the CSV files go.")],
    results: Results = _RESULTS,
) -> None:
    """Write results as small CSV files with a manifest."""
    from mcdensity.benchmark.export import export
    from mcdensity.benchmark.store import Store

    if not results.is_file():
        raise ValueError(f"There is no results file {results}.")
    with Store(results) as store:
        for path in export(store, folder, "mcdensity bench run PROTOCOL, for each protocol"):
            typer.echo(str(path))


@bench.command("page")
def bench_page(
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file.")] = Path(
        "results.html"
    ),
    results: Results = _RESULTS,
) -> None:
    """Build the result page: one HTML file that needs no network."""
    from mcdensity._files import write_file
    from mcdensity.benchmark.export import read_commits, read_results
    from mcdensity.benchmark.page import build_page

    write_file(output, build_page(read_results(results), read_commits(results)))
    typer.echo(f"Wrote {output}.")
