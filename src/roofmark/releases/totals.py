"""A release in a few figures: counts, regimes, and what the deployed kernels themselves reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import fsum
from statistics import median

from roofmark.records import Baseline
from roofmark.releases.records import Release, ReleaseOperator, ReleaseShape, Totals

Bound = Callable[[ReleaseShape, str], float]


def totals(release: Release) -> Totals:
    """Counts of a release, and the deployed kernels' S_agg on each GPU of its constants that has times."""
    operators = release.operators
    return Totals(
        operators=len(operators),
        shapes=len(release.shapes),
        weight=fsum(release.weights.values()),
        regimes=counted(operator.regime for operator in operators),
        dtypes=counted(operator.dtype for operator in operators),
        frameworks=counted(operator.upstream for operator in operators for _ in operator.shapes),
        backends=counted(baseline.backend for shape in release.shapes for baseline in shape.baseline),
        deployed_s=_by_gpu(release, lambda shape, gpu: shape.t_sol_us[gpu]),
        deployed_s_published=_by_gpu(release, lambda shape, gpu: shape.t_sol_published_us[gpu]),
    )


def counted(words: object) -> dict[str, int]:
    """How often each word occurs, the most frequent first."""
    return dict(Counter(words).most_common())  # type: ignore[call-overload]


def catalogue_name(gpu: str) -> str:
    """The catalogue's name of an accelerator as a baseline names it: `xpu_a` for `XPU-A`."""
    return gpu.casefold().replace("-", "_")


def deployed_us(shape: ReleaseShape, gpu: str) -> float | None:
    """The time of the fastest deployed kernel on a GPU, None where there is none."""
    return min((b.time_us for b in shape.baseline if _is_on(b, gpu)), default=None)


def deployed_s(operator: ReleaseOperator, gpu: str, bound: Bound) -> float | None:
    """The median S of the deployed kernels of an operator, None where it has no time on the GPU."""
    found = [bound(shape, gpu) / time for shape in operator.shapes if (time := deployed_us(shape, gpu)) is not None]
    return median(found) if found else None


def _by_gpu(release: Release, bound: Bound) -> dict[str, float]:
    """S_agg of the deployed kernels on each GPU on which every operator has a time."""
    result = {}
    weight = fsum(release.weights.values())
    for gpu in release.constants:
        every = [deployed_s(operator, gpu, bound) for operator in release.operators]
        known = [s for s in every if s is not None]
        if known and len(known) == len(every):
            shares = [o.weight / weight * s for o, s in zip(release.operators, known, strict=True)]
            result[gpu] = fsum(shares)
    return result


def _is_on(baseline: Baseline, gpu: str) -> bool:
    return catalogue_name(baseline.gpu) == gpu
