"""An operator's oracle seen otherwise: of some rows as if they were all, remembered, or ten times looser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor

from roofmark.errors import ProblemError
from roofmark.operators import Operator, Sizes, fresh_module
from roofmark.operators.expected import Expected
from roofmark.operators.zoo import Zoo

REMEMBERED = 1 << 26  # elements

Said = dict[tuple[int, ...], Mapping[str, Expected]]


@dataclass(frozen=True)
class View(Operator):
    """An operator as `check_outputs` asks it.

    rows: answers hold these rows of the whole alone; None: they are whole.
    oracle: another oracle than the operator's own.
    slack: bounds of these outputs, times a factor.
    said: what was said before; one such memory serves one set of inputs.
    """

    rows: Tensor | None = None
    oracle: ModuleType | None = None
    slack: Mapping[str, float] = field(default_factory=dict)
    said: Said = field(default_factory=dict)

    @classmethod
    def of(cls, operator: Operator, rows: Tensor | None, **changes: Any) -> Self:
        """A view of an operator."""
        return cls(
            operator.folder, operator.spec, operator.shapes, operator.provenance, operator.parts, rows, **changes
        )

    @property
    def checker(self) -> bool:
        """Whether a checker judges the answers."""
        return super().checker if self.oracle is None else hasattr(self.oracle, "judge_rows")

    @property
    def whole(self) -> bool:
        """As the operator's, where answers are whole."""
        return self.rows is None and super().whole

    def rows_of(self, sizes: Sizes, index: Tensor) -> Mapping[str, Tensor]:
        """The rows `index` of what an answer holds, for every output."""
        if self.rows is None:
            return super().rows_of(sizes, index)
        return dict.fromkeys(self.spec.outputs, index)

    def expected_rows(self, inputs: Mapping[str, Tensor], sizes: Sizes, index: Tensor) -> Mapping[str, Any]:
        """`Expected` of the rows `index` of what an answer holds."""
        where = index if self.rows is None else self.rows.to(index.device)[index]
        key = (len(where), int(where[0]), int(where[-1]), int(where.sum())) if len(where) else ()
        if key not in self.said:
            if self.oracle is None:
                made = super().expected_rows(inputs, sizes, where)
            else:
                made = self.oracle.expected_rows(inputs, sizes, where)
            if sum(expected.value.numel() for expected in made.values()) > REMEMBERED:
                return self._slackened(made)
            self.said[key] = made
        return self._slackened(self.said[key])

    def _slackened(self, made: Mapping[str, Expected]) -> Mapping[str, Expected]:
        if not self.slack:
            return made
        return {
            name: Expected(e.value, e.bound * self.slack[name], e.replaces_tolerance)
            if name in self.slack and e.bound is not None
            else e
            for name, e in made.items()
        }

    def judge_rows(
        self, inputs: Mapping[str, Tensor], sizes: Sizes, index: Tensor, outputs: Mapping[str, Tensor]
    ) -> str | None:
        """What the checker says of the rows `index` of what an answer holds."""
        where = index if self.rows is None else self.rows.to(index.device)[index]
        if self.oracle is None:
            return super().judge_rows(inputs, sizes, where, outputs)
        return str(self.oracle.judge_rows(inputs, sizes, where, outputs)) if self.checker else None


def looser(
    operator: Operator, zoo: Zoo, view: View, inputs: Mapping[str, Tensor], sizes: Sizes, index: Tensor, factor: float
) -> dict[str, View]:
    """For each tolerance a view in which it alone is `factor` times looser.

    A tolerance is the bound of an output, or a constant of oracle.py that the zoo names.
    """
    views: dict[str, View] = {}
    if not view.checker:
        part = torch.arange(len(index)) if view.rows is not None else index
        expected = view.expected_rows(inputs, sizes, part.to(next(iter(inputs.values())).device))
        for name, one in expected.items():
            if one.bound is not None and bool((one.bound > 0).any()):
                views[name] = View.of(operator, view.rows, slack={name: factor}, said=view.said)
    for constant in zoo.tolerances:
        oracle = fresh_module(operator.folder, "oracle")
        value = getattr(oracle, constant, None)
        if not isinstance(value, float):
            raise ProblemError(f"{operator.folder / 'oracle.py'} has no float {constant}, which zoo.py names")
        setattr(oracle, constant, value * factor)
        views[constant] = View.of(operator, view.rows, oracle=oracle)
    return views
