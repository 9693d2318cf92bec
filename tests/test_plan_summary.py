"""What `kvbench plan gate` says of a plan."""

from dataclasses import replace

import pytest
from g3_plans import BASE, DUT, SHAPES, TARGET, make

from kvbench import content, plan
from kvbench.model import Engine, Storage, Target
from kvbench.plan_summary import summary


def test_the_summary_says_what_can_be_decided() -> None:
    lines = summary(make(), SHAPES)
    asked = "ttft-reduction: asks for ttft_p50_s <= 0.75 × the baseline's; a true "
    assert any(line.strip().startswith(asked) for line in lines)
    assert any("destructive: nothing" in line for line in lines)


OPENAI = Engine("openai", urls=("http://127.0.0.1:8000",))
ENDPOINTS = replace(
    TARGET,
    arms=(replace(DUT, engine=OPENAI), replace(BASE, engine=OPENAI, kv="storage", storage=Storage(("/mnt/b",)))),
)


def test_the_summary_says_what_makes_it_a_demonstration() -> None:
    assert "a demonstration, not an acceptance test: emulated engine, recompute baseline" in summary(make(), SHAPES)
    assert not any("demonstration" in line for line in summary(make(ENDPOINTS), SHAPES))


@pytest.mark.parametrize(
    ("told", "size"),
    [((), "131,072 B"), (("--kv-cache-dtype", "fp8"), "65,536 B"), (("--dtype=float32",), "262,144 B")],
)
def test_the_summary_says_how_much_kv_it_counts_for_a_token(told: tuple[str, ...], size: str) -> None:
    dut = replace(DUT, engine=Engine("launch", "llama-3.1-8b", command=("serve", *told)))
    lines = summary(make(replace(TARGET, arms=(dut, BASE))), SHAPES)
    assert any(line.endswith(f"llama-3.1-8b, {size} of KV a token") for line in lines)
    assert not any("not known" in line for line in lines)


def test_the_summary_names_the_steps_that_there_will_not_be_and_why() -> None:
    def said(gate: str, target: Target = TARGET, **options: object) -> list[str]:
        made = plan.make_plan(content.load_gate(gate), target, SHAPES, plan.Options(**options))  # type: ignore[arg-type]
        return [line for line in summary(made, SHAPES) if line.startswith("without the step")]

    no_hooks = "the target has no hooks node_add and node_remove"
    assert said("G3") == []
    assert said("G3", quick=True) == ["without the step scaling: a quick run leaves it out"]
    assert said("S1", ENDPOINTS) == [f"without the step {step}: {no_hooks}" for step in ("paced", "unpaced")]
    assert "the target has no hook fault_…" in said("G4")[0]


def test_the_summary_says_that_endpoints_cannot_pass() -> None:
    lines = summary(make(ENDPOINTS), SHAPES)
    assert any(line.startswith("it cannot PASS: endpoints that run already") for line in lines)
    assert not any("PASS" in line for line in summary(make(), SHAPES))


def test_the_summary_says_when_a_storage_is_held_against_itself() -> None:
    base = replace(BASE, kv="storage", storage=DUT.storage)
    same = "dut and baseline are on the same storage, /mnt/a: it is held against itself"
    assert same in summary(make(replace(TARGET, arms=(DUT, base))), SHAPES)
    assert not any("itself" in line for line in summary(make(ENDPOINTS), SHAPES))


def test_the_summary_names_a_throttle() -> None:
    dut = replace(DUT, storage=Storage(nodes=("/mnt/a", "/mnt/b"), rate_limit_bytes_per_s=2e8))
    lines = summary(make(replace(TARGET, arms=(dut, BASE))), SHAPES)
    assert any("/mnt/a, /mnt/b, throttled to 200 MB/s each; engine" in line for line in lines)


def test_the_summary_folds_the_rounds_of_a_step() -> None:
    lines = [line for line in summary(make(), SHAPES, steps=True) if "expected" in line]
    assert "  environment: 2 s expected" in lines
    for folded in ("wave-r01-c8-dut … wave-r10-c8-dut: 10", "scaling-r03-add-c8-dut … scaling-r09-add-c8-dut: 3"):
        assert any(line.startswith(f"  {folded} steps, each ") for line in lines)
    assert len(lines) == len({(step.kind, step.cell, step.arm) for step in make().steps})


def test_the_summary_gives_no_time_to_what_depends_on_a_capacity_that_is_not_known() -> None:
    made = plan.make_plan(content.load_gate("G1"), TARGET, SHAPES, plan.Options(1))
    lines = summary(made, SHAPES, steps=True)
    assert "  verify-dut: time and bytes known only in the run" in lines
    assert " beside 1 step whose time only the run tells (an estimate" in lines[0]
