from pathlib import Path

import pytest

from kvbench import content
from kvbench.errors import UsageError

TARGET = """\
version: 1
name: t
arms:
  - name: dut
    role: dut
    storage: {nodes: [/mnt/a]}
    engine: {model: llama-3.1-8b}
  - name: base
    role: baseline
    kv: recompute
    engine: {model: llama-3.1-8b}
"""


def test_every_gate_that_ships_can_be_loaded() -> None:
    names = [path.stem for path in (content.content_root() / "gates").glob("*.yaml")]
    assert names
    for name in names:
        loaded = content.load_gate(name)
        assert f"gates/{name}.yaml" in loaded.files
        assert all(check.why for check in loaded.gate.checks)
        assert all(step.why for step in loaded.gate.steps)


def test_the_targets_that_ship_can_be_loaded(tmp_path: Path) -> None:
    assert content.demo_target(tmp_path).arm("dut").storage.nodes == (str(tmp_path),)  # type: ignore[union-attr]
    example = content.load_target(content.content_root() / "workloads" / "target-example.yaml")
    assert example.arm("fx100").storage.link_bytes_per_s == 12_500_000_000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("kv: recompute", "kv: recompte", r"t.yaml:10: key arms.1.kv: .* 'recompute', got 'recompte'"),
        ("role: baseline", "roll: baseline", r"t.yaml:9: unknown key arms.1.roll"),
        ("nodes: [/mnt/a]", "nodes: [/mnt/a], rate_limit_bytes_per_s: 2 GiB", r"t.yaml:6: .*'2 GiB' is not a rate"),
        ("    role: dut\n", "", r"t.yaml:4: key arms.0.role is missing"),
        ("name: t", "name: t\nname: u", r"t.yaml:3: not valid YAML: found duplicate key"),
        ("version: 1", "version: 2", r"t.yaml:1: key version: this kvbench reads version 1"),
        ("arms:", "arms: [", r"t.yaml:\d+: not valid YAML"),
        ("[/mnt/a]", r'["/mnt/\0"]', r"t.yaml: '/mnt/\\x00' has a control character"),
        ("name: t", r'name: "\e[2Jt"', r"t.yaml: '\\x1b\[2Jt' has a control character"),
        ("name: t", r'"na\eme": t', r"t.yaml: 'na\\x1bme' has a control character"),
        ("name: t", r'name: "\ud800"', r"t.yaml: '\\ud800' has .* half a surrogate pair"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_line_and_key(tmp_path: Path, before: str, after: str, message: str) -> None:
    file = tmp_path / "t.yaml"
    assert before in TARGET
    file.write_text(TARGET.replace(before, after))
    with pytest.raises(UsageError, match=message):
        content.load_target(file)


def test_a_missing_file_and_an_unknown_gate_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml: no such file"):
        content.load_target(tmp_path / "nowhere.yaml")
    with pytest.raises(UsageError, match="there is no gate 'G9'"):
        content.load_gate("G9")


def test_a_profile_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    gate = (content.content_root() / "gates" / "g3.yaml").read_text()
    file = tmp_path / "g.yaml"
    file.write_text(gate.replace("profile: page-read", "profile: ../../etc/passwd"))
    with pytest.raises(UsageError, match="there is no workloads/fio"):
        content.load_gate(str(file))


def test_a_yaml_tag_builds_no_object(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TARGET.replace("name: t", f"name: !!python/object/apply:os.mkdir [{tmp_path / 'made'}]"))
    with pytest.raises(UsageError):
        content.load_target(file)
    assert not (tmp_path / "made").exists()


def test_the_digest_covers_names_and_bytes() -> None:
    one = content.digest({"a": b"1", "b": b"2"})
    assert one == content.digest({"b": b"2", "a": b"1"})
    assert len({one, content.digest({"a": b"12", "b": b""}), content.digest({"a": b"1", "c": b"2"})}) == 3
