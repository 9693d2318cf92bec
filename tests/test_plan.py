from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from g3_plans import BASE, DUT, SHAPES, TARGET, make

from kvbench import content, plan
from kvbench.errors import UsageError
from kvbench.model import Arm, Check, Engine, Storage, Target


def test_g3_runs_every_arm_once_in_every_cell_of_every_round() -> None:
    waves = [step for step in make().steps if step.kind == "wave"]
    counts = Counter((step.round, step.cell, step.arm) for step in waves)
    assert len(counts) == 10 * 3 * 2
    assert set(counts.values()) == {1}


def test_arms_take_turns_in_going_first() -> None:
    waves = [step for step in make().steps if step.kind == "wave"]
    first = Counter(step.arm for step in waves[::2])
    assert min(first.values()) > 5


def test_both_arms_of_a_round_meet_the_same_prompts_and_rounds_meet_others() -> None:
    seeds: dict[tuple[int, str], set[int]] = {}
    for step in make().steps:
        if step.kind == "wave":
            seeds.setdefault((step.round, step.cell), set()).add(step.seed)
    assert all(len(both) == 1 for both in seeds.values())
    assert len(set.union(*seeds.values())) == len(seeds)


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert make(seed=7) == make(seed=7)
    assert make(seed=7).steps != make(seed=8).steps


def test_quick_takes_fewer_rounds_and_cells() -> None:
    quick = make(quick=True)
    assert {step.cell for step in quick.steps if step.kind == "wave"} == {"c8", "c16"}
    assert max(step.round for step in quick.steps) == 3
    assert max(step.round for step in make(quick=True, rounds=2).steps) == 2


REAL = replace(TARGET, arms=(replace(DUT, engine=Engine("launch", command=("serve",))), BASE))
HOOKS = {"node_add": ("add",), "node_remove": ("remove",)}


def scaled(target: Target, **options: object) -> list[tuple[int, str, str]]:
    return [(step.round, step.cell, step.arm) for step in make(target, **options).steps if step.kind == "scaling"]


@pytest.mark.parametrize("target", [TARGET, replace(REAL, hooks=HOOKS)], ids=["own pool", "hooks"])
def test_nodes_of_the_dut_come_and_go_in_three_rounds(target: Target) -> None:
    assert scaled(target) == [(number, cell, "dut") for number in (3, 6, 9) for cell in ("add-c8", "fail-c8")]
    assert scaled(target, quick=True) == []


def test_nodes_that_can_neither_come_nor_go_stay() -> None:
    assert scaled(REAL) == []
    assert scaled(replace(REAL, hooks={"node_add": ("add",)})) == []
    assert scaled(replace(TARGET, arms=(replace(DUT, storage=Storage(("/dev/nvme0n1",))), BASE))) == []


def test_a_gate_says_whether_nodes_come_or_fail() -> None:
    loaded = content.load_gate("G3")
    steps = tuple(replace(step, scaling=()) if step.id == "scaling" else step for step in loaded.gate.steps)
    with pytest.raises(UsageError, match=r"step scaling: params\.scaling"):
        plan.make_plan(replace(loaded, gate=replace(loaded.gate, steps=steps)), TARGET, SHAPES, plan.Options())


def test_a_target_may_shorten_sessions() -> None:
    waves = [s for s in make(replace(TARGET, session_tokens=2049)).steps if s.kind == "wave"]
    assert {step.params["session_tokens"] for step in waves} == {2049}


def test_the_ceiling_reads_pages_of_the_arm_s_model() -> None:
    (ceiling,) = [step for step in make().steps if step.kind == "ceiling"]
    assert (ceiling.arm, ceiling.params["page_bytes"]) == ("dut", 256 * 131_072)


def test_a_wave_costs_what_its_sessions_store() -> None:
    made = make(replace(TARGET, session_tokens=2049), quick=True)
    step = next(s for s in made.steps if s.cell == "c16" and s.arm == "dut")
    assert plan.cost(step, made, SHAPES).written_bytes == 16 * 8 * 256 * 131_072
    baseline = next(s for s in made.steps if s.cell == "c16" and s.arm == "base")
    assert plan.cost(baseline, made, SHAPES).written_bytes == 0


def test_a_throttled_node_takes_longer() -> None:
    throttled = Storage(nodes=("/mnt/a", "/mnt/b"), rate_limit_bytes_per_s=50e6)
    at_will, at_100_mb_per_s = (
        sum(plan.cost(step, made, SHAPES).seconds for step in made.steps if step.cell == "c16" and step.arm == "dut")
        for made in (make(), make(replace(TARGET, arms=(replace(DUT, storage=throttled), BASE))))
    )
    moved = sum(
        2 * plan.cost(step, make(), SHAPES).written_bytes
        for step in make().steps
        if step.cell == "c16" and step.arm == "dut"
    )
    assert at_100_mb_per_s - at_will == pytest.approx(moved / 100e6 - moved / 1e9)


@pytest.mark.parametrize("told", [{"model": "unheard-of"}, {"model": "llama-3.1-8b", "extra_args": ("--dtype=int3",)}])
def test_pages_of_a_size_that_is_not_known_are_refused_before_a_run(told: dict[str, Any]) -> None:
    dut = replace(DUT, engine=Engine("launch", command=("serve",), **told))
    with pytest.raises(UsageError, match="step ceiling-dut reads whole pages, and the size of a page of arm dut"):
        plan.make_plan(content.load_gate("G3"), replace(TARGET, arms=(dut, BASE)), SHAPES, plan.Options(1))


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ((DUT, replace(BASE, name="dut")), "two arms have the same name"),
        ((DUT, replace(BASE, name="../x")), r"arm name '\.\./x'"),
        ((DUT,), "exactly one arm must have the role baseline"),
        ((replace(DUT, storage=None), BASE), "has no storage.nodes"),
        ((DUT, replace(BASE, storage=DUT.storage)), "kv is recompute, but it has storage"),
        ((DUT, replace(BASE, engine=Engine(kind="openai"))), "engine openai needs urls"),
        ((DUT, replace(BASE, engine=Engine(kind="launch"))), "engine launch needs a recipe or a command"),
    ],
)
def test_a_target_that_cannot_be_run_is_refused(arms: tuple[Arm, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(Target("t", arms))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "ttft_p5_s"}, "step wave yields no metric 'ttft_p5_s'"),
        ({"step": "wav"}, "there is no step 'wav'"),
        ({"divide_by": "ceiling.nothing"}, "step ceiling yields no metric 'nothing'"),
        ({"limit": None}, "needs op and limit"),
        ({"op": "in"}, "goes with a limit of two numbers"),
    ],
)
def test_a_check_that_could_never_be_judged_is_refused(changes: dict[str, object], message: str) -> None:
    loaded = content.load_gate("G3")
    check = next(check for check in loaded.gate.checks if check.id == "ttft-reduction")
    broken: Check = replace(check, **changes)  # type: ignore[arg-type]
    gate = replace(loaded.gate, checks=(broken,))
    with pytest.raises(UsageError, match=message):
        plan.make_plan(replace(loaded, gate=gate), TARGET, SHAPES, plan.Options())


def test_a_wrong_param_names_the_gate_and_the_key(tmp_path: Path) -> None:
    text = (content.content_root() / "gates" / "g3.yaml").read_text()
    file = tmp_path / "g.yaml"
    file.write_text(text.replace("runtime_s: 8", "runtime_s: 8 parsecs"))
    with pytest.raises(UsageError, match=r"g\.yaml: step ceiling: params.runtime_s: '8 parsecs' is not a duration"):
        plan.make_plan(content.load_gate(str(file)), TARGET, SHAPES, plan.Options(quick=True))


def lasting(tmp_path: Path) -> content.Loaded:
    """A gate of slices with a second step in every third of them."""
    file = tmp_path / "g4.yaml"
    file.write_text(
        "version: 1\nid: X\ntitle: t\nwhy: w\nrounds: 1\nquick_rounds: 1\n"
        "duration_s: 72h\nslice_s: 10m\nquick_duration_s: 10m\nquick_slice_s: 1m\n"
        "steps:\n"
        "  - {id: often, probe: fake.wave, why: w, arms: dut, per_round: true, concurrency: [8]}\n"
        "  - {id: seldom, probe: fake.wave, why: w, arms: dut_twice, per_round: true, every: 3, concurrency: [8]}\n"
        "checks: []\n"
    )
    return content.load_gate(str(file))


def test_a_gate_that_lasts_has_a_round_for_every_slice(tmp_path: Path) -> None:
    full = plan.make_plan(lasting(tmp_path), TARGET, SHAPES, plan.Options())
    assert Counter(step.kind for step in full.steps) == {"often": 432, "seldom": 2 * 144}
    assert full.steps[0].id == "often-r001-c8-dut"
    quick = plan.make_plan(lasting(tmp_path), TARGET, SHAPES, plan.Options(quick=True))
    assert max(step.round for step in quick.steps) == 10
    short = plan.make_plan(lasting(tmp_path), TARGET, SHAPES, plan.Options(duration_s=120, slice_s=30))
    assert max(step.round for step in short.steps) == 4


def test_the_dut_against_itself_is_an_arm_of_its_own(tmp_path: Path) -> None:
    made = plan.make_plan(lasting(tmp_path), TARGET, SHAPES, plan.Options())
    assert {step.arm for step in made.steps if step.kind == "seldom"} == {"dut", "dut-again"}
    assert replace(made.target.arm("dut-again"), name="dut", role="dut") == DUT


def test_a_duration_without_a_slice_or_a_gate_of_rounds_with_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no slice"):
        plan.make_plan(lasting(tmp_path), TARGET, SHAPES, plan.Options(duration_s=5))
    with pytest.raises(UsageError, match="has rounds, not a duration"):
        make(duration_s=600)


def test_every_page_size_with_every_queue_depth_is_a_cell_and_the_model_s_page_is_the_arm_s_own() -> None:
    loaded = content.load_gate("G2")
    steps = plan.make_plan(loaded, TARGET, SHAPES, plan.Options(quick=True)).steps
    pages = {
        step.cell: (step.params["page_bytes"], step.params["concurrency"]) for step in steps if step.kind == "page-read"
    }
    assert pages == {
        "256KiB-c1": (262_144, 1),
        "256KiB-c8": (262_144, 8),
        "8126464B-c1": (8_126_464, 1),
        "8126464B-c8": (8_126_464, 8),
        "model-c1": (33_554_432, 1),
        "model-c8": (33_554_432, 8),
    }


def test_an_arm_against_itself_takes_turns_on_the_same_storage_and_takes_no_other_step() -> None:
    made = plan.make_plan(content.load_gate("G2"), TARGET, SHAPES, plan.Options())
    again = made.target.arm("dut-again")
    assert (again.role, again.storage) == ("again", DUT.storage)
    assert {step.kind for step in made.steps if step.arm == again.name} == {"aa"}
    pairs = Counter((step.round, step.cell) for step in made.steps if step.kind == "aa")
    assert set(pairs.values()) == {2}


def test_reads_beside_a_pool_of_checkpoints_are_planned_where_there_is_one():
    pool = replace(DUT, storage=Storage(("/mnt/a",), checkpoint_nodes=("/mnt/c",)))
    shapes, loaded = content.model_shapes(), content.load_gate("G2")
    plans = [
        plan.make_plan(loaded, replace(TARGET, arms=(dut, *TARGET.arms[1:])), shapes, plan.Options())
        for dut in (DUT, pool)
    ]
    found = [{step.arm for step in made.steps if step.kind == "read-beside-pool"} for made in plans]
    assert found == [set(), {"dut"}]


def test_a_node_of_both_pools_is_refused():
    both = replace(DUT, storage=Storage(("/mnt/a",), checkpoint_nodes=("/mnt/a",)))
    with pytest.raises(UsageError, match="names a directory twice"):
        plan.make_plan(content.load_gate("G2"), replace(TARGET, arms=(both, *TARGET.arms[1:])), {}, plan.Options())
