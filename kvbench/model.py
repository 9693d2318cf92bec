"""The few types that every part of kvbench shares. Frozen, validated once at the edge, importing nothing of ours
but the units.

YAML becomes these dataclasses through pydantic (`content.py`); JSON in a run folder does too (`journal.py`).
`__pydantic_config__` forbids unknown keys, so that a misspelt one is an error and never a silent default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from kvbench.units import Count, RateBytes, Seconds, SizeBytes

FORMAT_VERSION = 1  # of plan.json, journal.jsonl and verdict.json; a reader refuses what is newer

_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}

Role = Literal["dut", "baseline", "reference", "again"]  # again: the dut a second time, made by plan.py for A/A
Basis = Literal["measured", "emulated", "simulated"]


# ---------------------------------------------------------------- the target: what is tested


@dataclass(frozen=True, slots=True)
class Expect:
    """What was ordered: every key that is given becomes a check of G1. Devices are the leaves below the arm's nodes."""

    device_count: int | None = None
    model: str | None = None
    serials: tuple[str, ...] | None = None
    firmware: str | None = None
    capacity_bytes: SizeBytes | None = None  # of all devices together, at least
    logical_block_bytes: int | None = None
    transport: str | None = None  # as `host/machine/blockdev.py` names it
    pcie_speed_gt_s: float | None = None  # of every device's link as it runs
    pcie_width: int | None = None
    paths: int | None = None  # live paths to every namespace
    ana_state: str | None = None
    multipath_policy: str | None = None
    numa_node: int | None = None
    scheduler: str | None = None
    fs_type: str | None = None
    mount_options: tuple[str, ...] | None = None  # each must be set
    mtu: int | None = None
    port_rate_gbit_s: float | None = None

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class DataSheet:
    """What the vendor states, at the conditions of the specification runs (gates/g1.yaml), for the arm as a whole."""

    read_bandwidth_bytes_per_s: RateBytes | None = None
    write_bandwidth_bytes_per_s: RateBytes | None = None
    read_iops: float | None = None
    write_iops: float | None = None

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Storage:
    """Where an arm keeps its KV pages. Each node is a directory, and the arm's pages are spread over all of them.

    For a gate that drives the storage with fio alone (G1) a node may be a block device, all of which is written over.
    """

    nodes: tuple[str, ...]
    checkpoint_nodes: tuple[str, ...] = ()  # a pool of its own for checkpoints, if there is one: directories too
    direct: bool = True  # O_DIRECT; without it reads may come from the page cache, and the run says so
    rate_limit_bytes_per_s: RateBytes | None = None  # each node throttled to stand for a slower medium; always labelled
    link_bytes_per_s: RateBytes | None = None  # what link and medium can give at most: nothing measured may exceed it
    array_cache_bytes: SizeBytes | None = None  # declared cache of a fabric target
    hosts: tuple[str, ...] = ()  # on which `fio --server` listens: host or host:port; they drive fio profiles together
    expect: Expect = Expect()
    datasheet: DataSheet = DataSheet()
    settings: Mapping[str, str] = field(default_factory=dict)  # declared: cache, deduplication, compression, QoS …
    wear_limit_share: float = 0.05  # most wear (percentage used, as a share) that was agreed for a new device

    __pydantic_config__ = _STRICT

    @property
    def every_node(self) -> tuple[str, ...]:
        return (*self.nodes, *self.checkpoint_nodes)


@dataclass(frozen=True, slots=True)
class Engine:
    """What serves the requests of an arm.

    `emulated`: kvbench's own engine, computing by a roofline of `model` on `accelerator` and doing real storage I/O.
    `openai`: endpoints that somebody else has started. `launch`: started, awaited and stopped by kvbench, either by
    `recipe` (engines/NAME.yaml, with `parameters` of its own, and `extra_args` for the process that serves), or by
    `command`, in which `{port}`, `{kv_dir}` and `{python}` are filled in.
    `model` is one of workloads/models.yaml; with a recipe it is what the engine loads, a folder or a name.
    """

    kind: Literal["emulated", "openai", "launch"] = "emulated"
    model: str = "llama-3.1-8b"
    accelerator: str = "L4"
    tensor_parallel: Count = 1
    host_memory_bytes: SizeBytes = 0  # the host tier between GPU memory and storage; 0: none
    urls: tuple[str, ...] = ()
    api_key_env: str = ""  # names the environment variable with the key of openai endpoints; "": KVBENCH_API_KEY
    recipe: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    stop_command: tuple[str, ...] = ()
    flush_command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    health_path: str = "/health"
    start_timeout_s: Seconds = 300.0

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison. `kv` says where a returning session's KV comes from."""

    name: str
    role: Role
    engine: Engine
    kv: Literal["storage", "recompute"] = "storage"
    storage: Storage | None = None

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Target:
    """What is tested: the arms, and the commands that act on the storage from outside.

    `hooks` maps an event to an argv: `before_wave`, `node_add`, `node_remove`, `show_settings` (prints the array's
    settings, digested before and after), and `fault_…` (path pull, failover, rebuild …) for G4.
    `session_tokens` shortens the workload's sessions for a target too small for them; page one says so.
    """

    name: str
    arms: tuple[Arm, ...]
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    session_tokens: Count | None = None

    __pydantic_config__ = _STRICT

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def has_node_hooks(self) -> bool:
        return {"node_add", "node_remove"} <= self.hooks.keys()

    @property
    def can_scale(self) -> bool:
        """Whether a node of the dut can come and go: by hooks, or in the embedded engine's own pool of directories."""
        pools = [arm.storage for arm in self.arms if arm.role == "dut" and arm.engine.kind == "emulated"]
        nodes = [node for storage in pools if storage for node in storage.nodes]
        has_directories = bool(nodes) and not any(node.startswith("/dev/") for node in nodes)
        return has_directories or self.has_node_hooks


# ---------------------------------------------------------------- the gate: what must hold


@dataclass(frozen=True, slots=True)
class GateStep:
    """A step as the gate file states it; `plan.py` multiplies it over arms, cells and rounds.

    `arms`: which arms it runs on (`none`: once, without one; `dut_twice`: the dut against itself, the second time
    under the role `again`; `two_pools`: those with `checkpoint_nodes`, and without any there is no such step).
    `every`: of a step per round, only each so-manieth round has it; in a run with fewer than three times as many
    rounds, each third of them. `hook`: the beginning of names of the target's hooks, of which each
    such step runs the next one; a target without any has no such step.
    `scaling`: what becomes of the storage's nodes in mid-wave, each a cell; a target whose nodes can neither come nor
    go has no such step.
    `page_bytes`: sizes of pages, each with every concurrency a cell; `model` is the page of the arm's own model.
    `quick` holds the params that --quick replaces.
    """

    id: str
    probe: str
    why: str
    arms: Literal["none", "storage", "two_pools", "dut", "dut_twice", "all"] = "all"
    per_round: bool = False
    every: Count = 1
    hook: str = ""
    engine: Literal["none", "keep", "restart"] = "none"
    concurrency: tuple[Count, ...] = ()
    scaling: tuple[Literal["add", "fail"], ...] = ()
    page_bytes: tuple[Literal["model"] | SizeBytes, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


Rule = Literal[
    "each", "paired_log_ratio", "no_difference", "cv", "drift", "growth", "hourly_ratio", "availability", "present",
    "arms_equal", "outputs_equal", "expected",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, of one metric.

    kind  `integrity`: a breach is FAIL always. `performance`: judged by its interval, and INCONCLUSIVE while the
          cell's evidence is not complete. `evidence`: a breach or absence makes the cell INCONCLUSIVE.
    rule  `each`: every selected measurement meets `op limit`. `paired_log_ratio`: the ratio of arm `of` to arm
          `against` over rounds, with Student's t on its logarithm. `cv`: coefficient of variation over rounds.
          `no_difference`: of an arm against itself; that very comparison may not pass, either way round.
          `drift`: Theil–Sen trend over the run, as a share of the median. `growth`: the last figure of the run less
          the first. `hourly_ratio`: of every hour, the median ratio of the rounds of arm `of` to those of `against`.
          `availability`: seconds without service over the run, between measurements and, by `metric`, within them.
          `present`: the metric is there.
          `arms_equal`: the arms of the target differ in storage only (`metric` unused).
          `outputs_equal`: answers from stored KV part from computed ones no sooner than two computations do;
          `limit` is the least probability of that being chance.
          `expected`: one finding for every expectation in the measurement's facts (`metric` unused).
    arms  which arms' measurements: `storage` those whose KV comes from storage, `recompute` those that recompute;
          `own_store` those whose pages kvbench's own engine keeps, and checks byte for byte.
    against_step  where arm `against` is looked up, if not in the check's own step: in its measurements of the same
          concurrency and round.
    divide_by  "step.metric": the observed value is divided by that metric of the same arm (mean over its steps);
          "datasheet.figure": by what the arm's data sheet states.
    demonstration  in a demonstration a breach only warns (`warn`), or the check is not judged, either never (`skip`)
          or where there is no figure (`known`: the others are judged).
    at    `every` cell, or only the one of `highest` concurrency.
    """

    id: str
    kind: Literal["integrity", "performance", "evidence"]
    step: str
    metric: str
    rule: Rule
    why: str
    op: Literal["<=", ">=", "==", "in", ""] = ""
    limit: float | tuple[float, float] | None = None
    unit: str = ""
    of: Role = "dut"
    against: Role = "baseline"
    against_step: str = ""
    arms: Literal["all", "dut", "baseline", "storage", "recompute", "own_store"] = "all"
    divide_by: str = ""
    at: Literal["every", "highest"] = "every"
    only_if: str = ""  # a fact; measurements that state it as false are left out
    note_above: float | None = None  # a pass beyond this value carries `note`
    note: str = ""
    demonstration: Literal["judge", "warn", "skip", "known"] = "judge"

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate file: what is run, what must hold, and why each of it is what it is.

    A gate that lasts (G4) has `duration_s` and `slice_s`: its rounds are slices, as many as fit.
    """

    version: int
    id: str
    title: str
    why: str
    rounds: Count
    quick_rounds: Count
    steps: tuple[GateStep, ...]
    checks: tuple[Check, ...]
    duration_s: Seconds = 0.0
    quick_duration_s: Seconds = 0.0
    slice_s: Seconds = 0.0
    quick_slice_s: Seconds = 0.0

    __pydantic_config__ = _STRICT


# ---------------------------------------------------------------- the plan: what will run


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement to take: the unit of the journal, of resuming and of raw evidence.

    `id` is unique in its plan and safe as a folder name. `kind` is the gate step it came from. `cell` names the
    point at which arms are compared (`"c8"`); it is "" where a step belongs to no cell.
    """

    id: str
    kind: str
    probe: str
    arm: str
    cell: str
    round: int
    params: Mapping[str, Any]
    seed: int
    engine: Literal["none", "keep", "restart"]


@dataclass(frozen=True, slots=True)
class Override:
    """Params of a gate step that are not those of its file, because an earlier run of the campaign measured them."""

    step: str
    params: Mapping[str, Any]
    source: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run is going to do, fixed before it begins.

    `slice_s` is 0 unless the gate lasts. `round_cv` is the spread of rounds that an earlier A/A run measured, and
    `ungated` the reason given for running a gate whose predecessor has not passed.
    """

    version: int
    kvbench_version: str
    gate: Gate
    target: Target
    steps: tuple[Step, ...]
    seed: int
    quick: bool
    content_digest: str
    keep_data: bool = False
    slice_s: float = 0.0
    round_cv: float | None = None
    round_cv_source: str = ""
    ungated: str = ""
    overrides: tuple[Override, ...] = ()
    destroy_data: tuple[str, ...] = ()  # serial numbers of the drives that may be written over


# ---------------------------------------------------------------- the measurement: what came out


@dataclass(frozen=True, slots=True)
class Stamp:
    """One moment on both clocks: `wall` is ISO 8601 in UTC, `monotonic_ns` is CLOCK_MONOTONIC of this boot."""

    wall: str
    monotonic_ns: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure with its unit, the number of samples behind it, and the raw file it can be traced to.

    `value` is None where there is no figure, and `note` then says why: absent is never 0.
    `unit`: `s`, `B`, `B/s`, `share` (0 to 1), `ratio`, `count`, or a written one such as `tok/s`.
    """

    value: float | None
    unit: str
    n: int
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one step yielded. `error` is "" when the step was measured, else the sentence of why it was not.

    `series` names tables beside it (`"requests"`, `"devices"`) by their path in the run folder; `facts` holds what
    was observed but not measured (versions, mount options, mode of the page-cache probe).
    `overhead` is seconds spent by phase (`"populate"`, `"settle"` …).
    """

    step_id: str
    attempt: int
    basis: Basis
    start: Stamp
    end: Stamp
    boot_id: str
    metrics: Mapping[str, Metric]
    series: Mapping[str, str] = field(default_factory=dict)
    raw_files: tuple[str, ...] = ()
    overhead: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: str = ""


# ---------------------------------------------------------------- the verdict: what it means


class Outcome(StrEnum):
    """FAIL > INCONCLUSIVE > PASS: the worst finding wins."""

    PASS = "PASS"
    INCONCLUSIVE = "INCONCLUSIVE"
    FAIL = "FAIL"

    @property
    def severity(self) -> int:
        return list(Outcome).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check on one cell (and arm): what was observed, what it means, and where it can be looked up.

    `observed`, `interval` and `limit` are in `unit`. `n` counts the independent units: rounds for an interval.
    `evidence` are paths in the run folder.
    """

    check: str
    kind: str
    cell: str
    arm: str
    outcome: Outcome
    reason: str
    why: str
    observed: float | None = None
    interval: tuple[float, float] | None = None
    op: str = ""
    limit: float | tuple[float, float] | None = None
    unit: str = ""
    n: int = 0
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's outcome. `basis` lists what makes it a demonstration; it is empty for a real one.

    `why` is the one sentence of page one. `rejudged` names the other gate file, if one was used.
    """

    version: int
    gate: str
    title: str
    outcome: Outcome
    basis: tuple[str, ...]
    why: str
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    rejudged: str = ""

    @property
    def headline(self) -> str:
        """`PASS`, or `PASS (demonstration: emulated engine, …)`."""
        return f"{self.outcome} (demonstration: {', '.join(self.basis)})" if self.basis else str(self.outcome)
