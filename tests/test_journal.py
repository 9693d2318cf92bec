import json
from pathlib import Path

import pytest

from kvbench import clock, content, plan
from kvbench.errors import KvbenchError, UsageError
from kvbench.host.machine.footing import Footing
from kvbench.journal import RunFolder, write_atomically
from kvbench.model import Arm, Engine, Measurement, Metric, Storage, Target

GATE = str(Path(__file__).parent / "fixtures" / "gates" / "fake.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    loaded = content.load_gate(GATE)
    arms = (Arm("dut", "dut", Engine(), storage=Storage((str(tmp_path),))), Arm("b", "baseline", Engine(), "recompute"))
    made = plan.make_plan(loaded, Target("t", arms), content.model_shapes(), plan.Options(quick=True))
    return RunFolder.create(tmp_path / "run", made, loaded.files, loaded.source)


def measurement(folder: RunFolder, position: int = 0, error: str = "") -> Measurement:
    step_id = folder.plan.steps[position].id
    metrics = {"ttft_p50_s": Metric(1.5, "s", 8, "raw/x"), "gone": Metric(None, "B", 0, note="no counter")}
    return Measurement(step_id, 1, "measured", clock.stamp(), clock.stamp(), "boot", metrics, error=error)


def test_a_run_comes_back_as_it_was_written(folder: RunFolder) -> None:
    folder.finish(measurement(folder))
    again = RunFolder.open(folder.path)
    assert again.plan == folder.plan
    assert again.measurements() == folder.measurements()
    assert again.measurements()[0].metrics["gone"].value is None


def test_a_torn_last_line_is_dropped_and_its_step_is_still_to_do(folder: RunFolder) -> None:
    folder.finish(measurement(folder, 0))
    whole = (folder.path / "journal.jsonl").read_bytes()
    folder.finish(measurement(folder, 1))
    content_ = (folder.path / "journal.jsonl").read_bytes()
    for cut in range(len(whole), len(content_)):
        (folder.path / "journal.jsonl").write_bytes(content_[:cut])
        assert [m.step_id for m in folder.measurements()] == [folder.plan.steps[0].id]
        assert folder.mend() == (cut > len(whole))
        assert (folder.path / "journal.jsonl").read_bytes() == whole


def test_zeros_that_a_power_loss_left_at_the_end_are_a_torn_tail(folder: RunFolder) -> None:
    folder.finish(measurement(folder, 0))
    with (folder.path / "journal.jsonl").open("ab") as file:
        file.write(b"\0" * 4096)
    assert len(folder.measurements()) == 1
    assert folder.mend()


def test_damage_before_the_end_is_an_error_and_not_a_silent_loss(folder: RunFolder) -> None:
    folder.finish(measurement(folder, 0))
    folder.finish(measurement(folder, 1))
    lines = (folder.path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder.path / "journal.jsonl").write_bytes(b"{broken\n" + lines[1])
    with pytest.raises(KvbenchError, match=r"journal\.jsonl:1: the journal is damaged before its end"):
        folder.measurements()


def test_a_full_disk_loses_the_step_in_flight_and_nothing_else(folder: RunFolder) -> None:
    import resource
    import signal

    folder.finish(measurement(folder, 0))
    before = (folder.path / "journal.jsonl").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(KvbenchError, match="the last step was not recorded"):
            folder.finish(measurement(folder, 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (folder.path / "journal.jsonl").read_bytes() == before


def test_attempts_are_counted_across_restarts(folder: RunFolder) -> None:
    step = folder.plan.steps[0]
    assert [RunFolder.open(folder.path).begin(step) for _ in range(3)] == [1, 2, 3]
    assert folder.begin(folder.plan.steps[1]) == 1


def test_the_last_measurement_of_a_step_counts(folder: RunFolder) -> None:
    folder.finish(measurement(folder, error="the endpoint refused"))
    assert plan.remaining(folder.plan, folder.measurements()) == list(folder.plan.steps)
    folder.finish(measurement(folder))
    assert len(folder.measurements()) == 1
    assert len(plan.remaining(folder.plan, folder.measurements())) == len(folder.plan.steps) - 1


def test_the_evidence_of_an_attempt_before_is_removed(folder: RunFolder) -> None:
    step = folder.plan.steps[0]
    (folder.raw_dir(step) / "old").touch()
    assert list(folder.raw_dir(step).iterdir()) == []


def test_a_folder_of_a_newer_version_is_refused(folder: RunFolder) -> None:
    document = json.loads((folder.path / "plan.json").read_text()) | {"version": 99, "kvbench_version": "9.0"}
    (folder.path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="written by a newer kvbench") as caught:
        RunFolder.open(folder.path)
    assert "kvbench 9.0" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": "x"}'])
def test_a_damaged_plan_is_one_clear_message(folder: RunFolder, text: str) -> None:
    (folder.path / "plan.json").write_text(text)
    with pytest.raises(KvbenchError, match="is damaged"):
        RunFolder.open(folder.path)


def test_content_that_was_changed_in_the_run_folder_is_refused(folder: RunFolder) -> None:
    folder.check_content()
    copy = folder.path / "content" / "gates" / "fake.yaml"
    copy.write_text(copy.read_text().replace("0.75", "0.95"))
    with pytest.raises(KvbenchError, match="was changed after the run began"):
        folder.check_content()


def test_what_the_nodes_stood_on_is_noted_once(folder: RunFolder) -> None:
    first = {"/mnt/kv": Footing("/mnt/kv", ("eui.01",), {"uuid": "a-b"})}
    assert folder.first_footings(first) == first
    assert RunFolder.open(folder.path).first_footings({"/mnt/kv": Footing("/")}) == first


def test_a_run_of_before_knows_the_mount_of_a_node_alone(folder: RunFolder) -> None:
    write_atomically(folder.path / "mounts.json", b'{"version": 1, "mounts": {"/mnt/kv/pages": "/mnt/kv"}}')
    assert folder.first_footings({}) == {"/mnt/kv/pages": Footing("/mnt/kv")}


def test_a_second_kvbench_on_the_same_run_is_refused(folder: RunFolder) -> None:
    with (
        folder.locked(),
        pytest.raises(KvbenchError, match="is being run by another"),
        RunFolder.open(folder.path).locked(),
    ):
        pass
    with folder.locked():
        pass


def test_an_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_atomically(file, b"old")
    (tmp_path / ".x.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
