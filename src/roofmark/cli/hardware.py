"""`roofmark hardware`: the catalogue, and the machine at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofmark.cli.output import JsonOption, check_json_target, emit, new_table
from roofmark.cli.progress import watcher

if TYPE_CHECKING:
    from rich.table import Table

    from roofmark.hardware import Gpu

app = typer.Typer(help="The catalogue of accelerators, and the machine at hand.", no_args_is_help=True)
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")


@app.command("list")
def list_(json: JsonOption = None) -> None:
    """List the catalogue with dense peaks (TFLOP/s, int8 TOP/s) and bandwidth (TB/s)."""
    from roofmark import hardware

    check_json_target(json)
    gpus = [hardware.load(name) for name in hardware.names()]
    table = new_table("name", right=(*DTYPES, "TB/s"))
    for gpu in gpus:
        roofline = gpu.roofline
        peaks = [roofline.peak_flops.get(d) for d in DTYPES]
        cells = ["-" if p is None else f"{p / 1e12:,.1f}" for p in peaks]
        table.add_row(gpu.name, *cells, f"{roofline.bandwidth_bytes_per_s / 1e12:.2f}")
    emit(gpus, json, table, "\ndense peaks in TFLOP/s (int8: TOP/s); `roofmark hardware show NAME` has the sources")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A GPU of the catalogue, or cpu.")],
    json: JsonOption = None,
) -> None:
    """Show one accelerator: every figure with its unit and source. For cpu: measure this one."""
    from roofmark import hardware

    check_json_target(json)
    if name == "cpu":
        calibrate("cpu", json)
        return
    gpu = hardware.load(name)
    head = f"{gpu.name}: {gpu.title}, {gpu.target}"
    if gpu.devices:
        head += f"\n  the driver calls it {', '.join(gpu.devices)}"
    if gpu.note:
        head += f"\n  {gpu.note}"
    emit(gpu, json, f"{head}\n", *tables_of(gpu))


@app.command()
def calibrate(
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    json: JsonOption = None,
) -> None:
    """Measure the machine at hand: peaks per dtype, bandwidth; on a GPU also the launch floor."""
    from roofmark.evaluate.request import choose_device
    from roofmark.hardware import calibrate as measure

    check_json_target(json)
    where = choose_device(device)
    with watcher(f"calibrating {where}"):
        if where == "cuda":
            from roofmark.hardware.cuda import calibrate_cuda

            found = calibrate_cuda()
        else:
            found = measure.calibrate_cpu()
    if where == "cuda":
        from roofmark.hardware.measured import measured_toml

        emit(found, json, measured_toml(found))
        return
    from roofmark.report.words import si

    units = found.details.get("unit", {})
    table = new_table("limit", right=("measured",), fold=("by",))
    for dtype, peak in sorted(found.roofline.peak_flops.items()):
        table.add_row(dtype, si(peak, "OP/s" if dtype.startswith("int") else "FLOP/s"), str(units.get(dtype, "")))
    table.add_row("memory", si(found.roofline.bandwidth_bytes_per_s, "B/s"), str(units.get("bytes", "")))
    head = f"{found.details.get('cpu', 'cpu')}, {found.details.get('cores', '?')} cores, {found.taken_at}\n"
    emit(found, json, head, table)


def tables_of(gpu: Gpu) -> list[Table | str]:
    """Peaks, other figures, what was measured on such a device, and the sources."""
    peaks = new_table("dense peak", right=("value",), fold=("unit", "source", "note"))
    for dtype, peak in gpu.peak.items():
        value = f"{gpu.peak_flops(dtype) / 1e12:,g}"
        note = "; ".join(part for part in (f"as {peak.via}" if peak.via else "", peak.note, peak.unchecked) if part)
        unit = peak.unit or (gpu.peak[peak.via].unit if peak.via else "")
        peaks.add_row(dtype, value, unit, peak.source or "", note)
    figures = new_table("figure", right=("value",), fold=("unit", "source", "note"))
    for name, figure in gpu.figures.items():
        unit = "" if figure.unit == "count" else figure.unit
        figures.add_row(name.replace("_", " "), f"{figure.value:,g}", unit, figure.source, figure.note)
    sources = [
        f"{key} ({s.confidence}, {s.checked}): {s.title}: {s.where}\n  {s.url}" for key, s in gpu.sources.items()
    ]
    parts: list[Table | str] = [peaks, "", figures, ""]
    if gpu.measured:
        measured = new_table("measured, never in a score", fold=("value",))
        for name, value in leaves(gpu.measured):
            measured.add_row(name, f"{value:,g}" if isinstance(value, float) else str(value))
        parts += [measured, ""]
    return [*parts, *(text.rstrip() for text in sources)]


def leaves(data: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The leaves of nested tables, each with its name in words: `bandwidth copy best`."""
    rows: list[tuple[str, Any]] = []
    for key, value in data.items():
        name = f"{prefix} {key}".strip()
        rows += leaves(value, name) if isinstance(value, dict) else [(name.replace("_", " "), value)]
    return rows
