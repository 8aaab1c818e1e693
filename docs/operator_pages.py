"""A page for each operator under `docs/operators/`, from its folder, the release and the errata."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from roofmark import hardware, operators, releases
from roofmark.errors import DeviceError
from roofmark.hardware import t_sol_us
from roofmark.operators import Operator
from roofmark.records import Roofline
from roofmark.releases import ReleaseOperator, ReleaseShape
from roofmark.releases.totals import deployed_s, deployed_us
from roofmark.report.words import dims, fixed_dims, intensity, score, si, us

HERE = Path(__file__).parent
RELEASE = "2026.07"
DEPLOYED_ON = "xpu_a"


def pages() -> dict[Path, str]:
    """The text of every page by its path."""
    release = releases.load(RELEASE)
    errata = sections((HERE / "errata.md").read_text(encoding="utf-8"))
    return {
        HERE / "operators" / f"{one.name}.md": page(operators.load(one.name), one, errata.get(one.name, ""))
        for one in release.operators
    }


def sections(errata: str) -> dict[str, str]:
    """The section of the errata that speaks of an operator, by the operator's name."""
    found: dict[str, str] = {}
    for title, body in (part.split("\n", 1) for part in re.split(r"^## ", errata, flags=re.M)[1:]):
        for name in title.split(", "):
            found[name.strip()] = body.strip()
    return found


def page(operator: Operator, one: ReleaseOperator, errata: str) -> str:
    """The page of one operator."""
    spec = operator.spec
    parts = [
        f"# `{spec.name}`: {spec.title}",
        f"Generated from the code by `make docs`, for release {RELEASE}. [All operators](../operators.md).",
        f"```text\n{spec.formula}\n```",
        *([spec.notes] if spec.notes else []),
        f"```python\n{signature(operator.reference_text())}\n```",
        "\n".join(facts(operator, one)),
        "## Shapes",
        sizes_text(one.shapes),
        "\n".join(shapes_table(one)),
        "## T_SOL in µs on each GPU of the catalogue",
        "\n".join(bounds_table(one)),
        "## What differs from the published set",
        # links of the errata are from the folder above
        re.sub(r"\]\((?!https?:|#)", "](../", errata) or "Nothing is written down.",
    ]
    return "\n\n".join(parts) + "\n"


def signature(reference: str) -> str:
    """The heads of `Model`'s methods, each with the first line of what it says of itself."""
    model = next(n for n in ast.parse(reference).body if isinstance(n, ast.ClassDef) and n.name == "Model")
    lines = ["class Model(nn.Module):"]
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "forward"):
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            lines.append(f"    def {node.name}({ast.unparse(node.args)}){returns}: ...")
            if said := ast.get_docstring(node):
                lines.append(f"    # {' '.join(said.split(chr(10) * 2)[0].split())}")
    return "\n".join(lines)


def facts(operator: Operator, one: ReleaseOperator) -> list[str]:
    """What the operator weighs, where it is deployed, what a candidate may do."""
    legality, s = operator.spec.legality, deployed_s(one, DEPLOYED_ON, lambda shape, gpu: shape.t_sol_us[gpu])
    rows = {
        "weight": f"{one.weight:.6f}",
        "regime": one.regime,
        "dtype": one.dtype,
        "phase": one.phase,
        "outputs": ", ".join(f"`{name}`" for name in operator.spec.outputs),
        "deployed as": f"`{one.symbol}` of {one.framework}",
        "deployed S on XPU-A": score(s),
        "`forward` may change": ", ".join(f"`{name}`" for name in legality.mutates) or "no input",
        "`__init__` may prepare": ", ".join(legality.prepare) or "nothing",
    }
    return ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]


def sizes_text(shapes: Sequence[ReleaseShape]) -> str:
    """What the sizes are called, and those that all shapes share."""
    same = fixed_dims(shape.sizes for shape in shapes)
    varying = dict.fromkeys(key for shape in shapes for key in shape.sizes if key not in same)
    text = f"Sizes are {' x '.join(f'`{key}`' for key in varying)}" if varying else "All shapes have the same sizes"
    return text + (
        f"; in all shapes {', '.join(f'`{k}` is {dims({k: v})}' for k, v in same.items())}." if same else "."
    )


def shapes_table(one: ReleaseOperator) -> list[str]:
    """A row a shape: sizes, work, and what the deployed kernel takes."""
    same = fixed_dims(shape.sizes for shape in one.shapes)
    varying = dict.fromkeys(key for shape in one.shapes for key in shape.sizes if key not in same)
    rows = ["| shape | sizes | work | reads | writes | FLOP/byte | deployed µs | S | works differ |"]
    rows.append("|---|---|" + "---:|" * 6 + "---|")
    for shape in one.shapes:
        sizes = dims({key: shape.sizes.get(key, "-") for key in varying}) if varying else ""
        work, time = shape.work, deployed_us(shape, DEPLOYED_ON)
        s = None if time is None else shape.t_sol_us[DEPLOYED_ON] / time
        cells = (
            shape.shape_id, sizes, si(sum(work.flops.values()), "FLOP"), si(work.bytes_read, "B"),
            si(work.bytes_written, "B"), intensity(work.intensity), us(time), score(s), "yes" if shape.errata else "",
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def bounds_table(one: ReleaseOperator) -> list[str]:
    """A row a shape: the least time on every GPU, `-` on one whose constants lack a dtype."""
    gpus = [hardware.load(name).roofline for name in hardware.names()]
    rows = [f"| shape | {' | '.join(f'`{gpu.device}`' for gpu in gpus)} |", "|---|" + "---:|" * len(gpus)]
    rows += [f"| {shape.shape_id} | {' | '.join(bound(shape, gpu) for gpu in gpus)} |" for shape in one.shapes]
    return rows


def bound(shape: ReleaseShape, gpu: Roofline) -> str:
    """The least time of a shape on a GPU."""
    try:
        return us(t_sol_us(shape.work, gpu))
    except DeviceError:
        return us(None)
