"""The frozen records that reach disk. Units are in the names; `schema` is raised when a meaning changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1


class Record(BaseModel):
    """A frozen record that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


# ---- what: operators, shapes, work -------------------------------------------------------------


class Work(Record):
    """FLOPs per dtype and the bytes that must be read and written at least once."""

    flops: dict[str, int]
    bytes_read: int
    bytes_written: int

    @property
    def bytes_total(self) -> int:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOP per byte moved."""
        return sum(self.flops.values()) / self.bytes_total


class Shape(Record):
    """One set of sizes of an operator. `stand_in` lowers some `dims` for a machine that can't hold it."""

    operator: str
    shape_id: str
    dims: dict[str, Any]
    init: dict[str, Any] = {}
    stand_in: dict[str, Any] | None = None

    @property
    def sizes(self) -> dict[str, Any]:
        """`init` and `dims` in one mapping: the keyword arguments of inputs, work and oracle."""
        return {**self.init, **self.dims}


class Baseline(Record):
    """The time that the deployed kernel took on one accelerator of the source."""

    shape_id: str
    gpu: str
    backend: str
    time_us: float = Field(gt=0, allow_inf_nan=False)


class Legality(Record):
    """What a candidate of an operator may do besides computing its outputs."""

    mutates: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ("tables", "workspaces")
    stationary: tuple[str, ...] = ()
    streams: Literal["joined", "none"] = "joined"
    graphs: bool = True


class OutputSpec(Record):
    """Shape and dtype (torch's name, e.g. `bfloat16`) of one output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class OperatorSpec(Record):
    """The visible description of an operator, from `operator.toml`."""

    name: str
    title: str
    formula: str
    dtype: str
    phase: str
    outputs: tuple[str, ...]
    legality: Legality = Legality()
    notes: str = ""


class Provenance(Record):
    """Where an operator comes from and what it weighs; hidden from agents.

    `origins` names, by shape, the model, application and host that it was seen in, where that is known.
    """

    framework: str
    symbol: str
    raw_importance: float
    weight: float
    num_profiles: int
    source: str
    baselines: tuple[Baseline, ...]
    frameworks: dict[str, str] = {}
    call_counts: dict[str, int] = {}
    origins: dict[str, dict[str, str]] = {}


# ---- where: hardware ---------------------------------------------------------------------------


class Roofline(Record):
    """The limits that a score is held against: dense peaks and bandwidth of one device."""

    device: str
    peak_flops: dict[str, float]
    bandwidth_bytes_per_s: float = Field(gt=0)


class Calibration(Record):
    """A roofline measured on the machine at hand, with how and when it was measured."""

    schema_: int = Field(SCHEMA, alias="schema")
    taken_at: str
    roofline: Roofline
    details: dict[str, Any] = {}

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


# ---- what the gates said -----------------------------------------------------------------------


class Status(StrEnum):
    """How a shape ended."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_SHAPE_OR_DTYPE = "wrong_shape_or_dtype"
    NOT_FINITE = "not_finite"
    WRONG_VALUES = "wrong_values"
    RULE_BROKEN = "rule_broken"
    OVER_TIME_BUDGET = "over_time_budget"
    UNSTABLE = "unstable"
    IMPOSSIBLE = "impossible"
    INFRASTRUCTURE = "infrastructure"


class Gate(StrEnum):
    """The gate at which a shape ended."""

    COMPILE = "compile"
    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"


class Compiled(StrEnum):
    """What gate 1 found."""

    ARTEFACT = "artefact"
    FALLBACK = "fallback"
    FAILED = "failed"
    NOT_RUN = "not_run"


class Isolation(StrEnum):
    """What stood between the candidate and the referee, strongest first."""

    BUBBLEWRAP = "bubblewrap"
    NATIVE = "namespaces+landlock+seccomp"
    UNSAFE = "none"


class Interval(Record):
    """A 95 % interval."""

    low: float
    high: float


class Timing(Record):
    """What the clocks said of one shape. All figures are µs per call; `samples_us` are in call order.

    `median_us` is T of the score. `referee_us` is the referee's own clock less a null call's,
    `timeline_us` the profiler's span (CUDA), `floor_us` an empty forward behind the same gate.
    """

    samples_us: tuple[float, ...]
    median_us: float
    interval_us: Interval
    processes: int = 1
    host_us: float | None = None
    referee_us: float | None = None
    timeline_us: float | None = None
    floor_us: float | None = None
    host_bound_calls: int = 0
    discarded_calls: int = 0
    clocks: dict[str, Any] = {}


class Artefact(Record):
    """One compiled object that the compile step produced."""

    name: str
    kind: str
    sha256: str
    size_bytes: int


class Verdict(Record):
    """What the three gates said of one subject on one shape: a line of `verdicts.jsonl`.

    `subject` is `candidate`, or `eager` for the PyTorch reference timed in the same run.
    `adoption` maps classes of code (the backend's name, `framework`, `other`…) to shares of device time.
    Where it did not pass, `case_dims` and `seed` (hex) are those of the last inputs drawn: they make it again.
    `wall_s` is what judging took, all gates and processes of the shape together.
    """

    schema_: int = Field(SCHEMA, alias="schema")
    subject: Literal["candidate", "eager"]
    operator: str
    shape_id: str
    dims: dict[str, Any]
    stand_in: bool
    status: Status
    gate: Gate | None = None
    case: str = ""
    message: str = ""
    compiled: Compiled = Compiled.NOT_RUN
    work: Work
    timing: Timing | None = None
    adoption: dict[str, float] | None = None
    artefacts: tuple[Artefact, ...] = ()
    max_error_ratio: float | None = None
    calls_checked: int = 0
    case_dims: dict[str, Any] | None = None
    seed: str = ""
    wall_s: float
    finished_at: str

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class OperatorPlan(Record):
    """What a run is about to judge of one operator: the shapes asked for, out of all of the release.

    `baselines` are the deployed kernels' times on those shapes, on whatever GPUs the release has them of.
    """

    operator: str
    weight: float
    shape_ids: tuple[str, ...]
    all_shape_ids: tuple[str, ...]
    candidate_sha256: str
    candidate_name: str
    baselines: tuple[Baseline, ...] = ()


class Manifest(Record):
    """Everything that must be equal for two sessions to be one run, and what the machine was.

    `unavailable` says what the release offers no means to check, one line each.
    """

    schema_: int = Field(SCHEMA, alias="schema")
    run_id: str
    release: str
    release_sha256: str
    backend: str
    device: str
    roofline: Roofline | None
    plans: tuple[OperatorPlan, ...]
    release_weights: dict[str, float]
    unavailable: tuple[str, ...] = ()
    config: dict[str, Any]
    isolation: Isolation
    environment: dict[str, str]
    started_at: str

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


# ---- verdicts to numbers -----------------------------------------------------------------------


class ShapeScore(Record):
    """The figures of one shape.

    `s` is what enters the operator's median: S if it passed, 0 if `unstable`, None for all others.
    `s_strict` is S if it passed, 0 if it failed, None for a stand-in or where the run is incomplete.
    `counts_compiled` and `counts_correct` say how it counts in the rates; None: not at all.
    `status` is `missing` where the run holds no verdict, and `impossible` where S turned out above 1.
    Times are µs; `adoption` is the share of device time in code of the target language. `baseline_us` is that of
    the fastest deployed kernel on the GPU of the run; None where the release has none of that GPU.
    """

    operator: str
    shape_id: str
    dims: dict[str, Any]
    stand_in: bool
    status: Status | Literal["missing"]
    gate: Gate | None
    compiled: Compiled
    counts_compiled: bool | None
    counts_correct: bool | None
    intensity: float | None
    t_sol_us: float | None
    time_us: float | None
    interval_us: Interval | None
    s: float | None
    s_strict: float | None
    s_interval: Interval | None
    s_attainable: float | None
    eager_us: float | None
    eager_s: float | None
    speedup_over_eager: float | None
    baseline_us: float | None
    baseline_s: float | None
    speedup_over_baseline: float | None
    adoption: float | None
    message: str = ""
    notes: tuple[str, ...] = ()


class OperatorScore(Record):
    """The figures of one operator: each the median over the shapes where it is defined, None where none is.

    `s` is 0 where shapes were scored and none passed. It speaks of `s_shapes` shapes, and `eager_s` of the
    `eager_shapes` among those on which the reference has a time; `baseline_s` is the deployed kernels' own, of all
    shapes on which they have one. `weight` is normalised. `shapes` are those asked for, out of
    `shapes_of_release`; `scored` of them have an `s_strict`, `passed` ended `ok` (stand-ins too).
    Rates count a failed shape as 0; `counts` maps each status to how many shapes ended so. `regime` is
    `memory`, `compute` or `index`; `unknown` where no shape was judged.
    """

    operator: str
    weight: float
    shapes: int
    shapes_of_release: int
    stand_ins: int
    scored: int
    passed: int
    compile_rate: float | None
    compile_rate_without_fallbacks: float | None
    correct_rate: float | None
    s: float | None
    s_strict: float | None
    s_interval: Interval | None
    s_attainable: float | None
    s_shapes: int
    eager_s: float | None
    eager_shapes: int
    speedup_over_eager: float | None
    baseline_s: float | None
    speedup_over_baseline: float | None
    adoption: float | None
    regime: str
    counts: dict[str, int]


class RunScore(Record):
    """The figures of a run.

    `s_agg` and its companions are None unless the run is complete and covers the release; the three
    `_covered` are the same means over the operators scored so far, to be shown with `weight_covered`.
    Rates are means over operators, ratios medians, each over the `_operators` where it is defined. `dtypes`
    are those that the shapes' arithmetic uses. `incomplete` says why the run is not complete, `notes` what
    else a reader should know.
    """

    schema_: int = Field(SCHEMA, alias="schema")
    run_id: str
    release: str
    release_sha256: str
    device: str
    backend: str
    isolation: Isolation
    roofline: Roofline | None
    roofline_source: str
    dtypes: tuple[str, ...]
    complete: bool
    partial: bool
    ranked: bool
    weight_covered: float
    compile_rate: float | None
    compile_rate_without_fallbacks: float | None
    correct_rate: float | None
    adoption: float | None
    adoption_operators: int
    speedup_over_eager: float | None
    speedup_over_eager_operators: int
    speedup_over_baseline: float | None
    speedup_over_baseline_operators: int
    s_agg: float | None
    s_agg_interval: Interval | None
    s_strict_agg: float | None
    eager_s_agg: float | None
    baseline_s_agg: float | None
    s_covered: float | None
    s_strict_covered: float | None
    eager_s_covered: float | None
    median_wall_s: float | None = None
    operators: tuple[OperatorScore, ...]
    shapes: tuple[ShapeScore, ...]
    incomplete: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)
