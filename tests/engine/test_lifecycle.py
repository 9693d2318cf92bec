"""Engines that are started, found, and not found."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench import clock
from kvbench.cli.engine import serve
from kvbench.engine import endpoint
from kvbench.engine.lifecycle import running
from kvbench.errors import KvbenchError, StepError, UsageError
from kvbench.load import engine_metrics
from kvbench.model import Arm, Engine, Storage
from kvbench.process import Survivors

FAKE_ENGINE = Path(__file__).parent.parent / "fixtures" / "engine" / "fake_engine.py"


def arm(kind: str = "emulated", *, kv: str = "storage", **engine: object) -> Arm:
    storage = Storage(nodes=("unused",), direct=False) if kv == "storage" else None
    return Arm("dut", "dut", Engine(kind=kind, **engine), kv, storage)  # type: ignore[arg-type]


def start(given: Arm, tmp_path: Path) -> None:
    with running(given, (tmp_path / "kv",), tmp_path, Survivors(tmp_path / "survivors")):
        pass


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked after does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    """Whether a process that was just killed ends."""
    deadline_ns = clock.monotonic_ns() + 10 * 10**9
    while alive(pid) and clock.monotonic_ns() < deadline_ns:
        clock.sleep_s(0.01)
    return not alive(pid)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A listener that gives the same bytes to whoever asks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def give() -> None:
            for _ in range(20):
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connection.recv(65536)
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=give, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


MODELS = http('{"data": [{"id": "served"}]}')


# ---------------------------------------------------------------- emulated


def test_an_emulated_engine_starts_restarts_and_ends_with_its_block(tmp_path: Path) -> None:
    with running(arm(), (tmp_path / "kv",), tmp_path, Survivors(tmp_path / "survivors")) as engine:
        (first,) = engine.pids
        assert (engine.basis, engine.epoch, engine.model) == ("emulated", 1, "llama-3.1-8b")
        assert engine_metrics.read(engine.metrics_text())["external_hit_tokens"] == 0
        engine.restart()
        (second,) = engine.pids
        assert (engine.epoch, alive(first), alive(second)) == (2, False, True)
        assert endpoint.model_names(engine.urls[0]) == ["llama-3.1-8b"]
    assert not alive(second)


def test_an_arm_that_recomputes_is_given_no_storage(tmp_path: Path) -> None:
    with running(arm(kv="recompute"), (), tmp_path, Survivors(tmp_path / "survivors")) as engine:
        command = Path(f"/proc/{engine.pids[0]}/cmdline").read_text().split("\0")
    assert "--recompute" in command
    assert "--kv-dir" not in command


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"model": "gpt-2"}, "there is no model 'gpt-2'"),
        ({"accelerator": "abacus"}, "there is no accelerator 'abacus'"),
        ({"model": "llama-3.1-70b"}, "leaves no memory for KV on 1 × L4"),
    ],
)
def test_an_engine_that_ends_at_once_is_quoted(tmp_path: Path, engine: dict[str, str], message: str) -> None:
    with pytest.raises(StepError, match="the engine ended with exit code") as caught:
        start(arm(**engine), tmp_path)
    assert message in caught.value.message


# ---------------------------------------------------------------- launched by a command


def fake(*arguments: str, **engine: object) -> Arm:
    return arm("launch", command=("{python}", str(FAKE_ENGINE), "{port}", "{kv_dir}", *arguments), **engine)


def test_a_command_is_given_its_port_and_directory_and_ended_with_its_children(tmp_path: Path) -> None:
    with running(fake("child"), (tmp_path / "kv",), tmp_path, Survivors(tmp_path / "survivors")) as engine:
        assert (engine.basis, engine.model) == ("measured", "served")
        pids = {*engine.pids, int(endpoint.get(f"{engine.urls[0]}/child"))}
        assert endpoint.get(f"{engine.urls[0]}/kv_dir") == str(tmp_path / "kv")
        assert all(map(alive, pids))
    assert all(map(gone, pids))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (fake("fail"), r"ended with exit code 1: no GPU found"),
        (fake("mute", start_timeout_s=0.3), r"did not answer within 0.3 s: loading weights"),
        (arm("launch", command=("no-such-engine",)), r"cannot start no-such-engine"),
        (arm("launch"), r"kind launch has no command"),
    ],
)
def test_a_command_that_does_not_become_healthy_is_quoted(tmp_path: Path, given: Arm, message: str) -> None:
    with pytest.raises(StepError, match=message):
        start(given, tmp_path)


def test_an_engine_is_ended_where_its_stop_command_is_not_there(tmp_path: Path) -> None:
    survivors = Survivors(tmp_path / "survivors")
    with (
        pytest.raises(StepError, match="cannot start no-such-stop"),
        running(fake(stop_command=("no-such-stop",)), (tmp_path / "kv",), tmp_path, survivors) as engine,
    ):
        pids = engine.pids
    assert all(map(gone, pids))


# ---------------------------------------------------------------- launched by a recipe


def by_recipe(how: str = "ok", *, kv: str = "storage", **engine: object) -> Arm:
    parameters = {"python": sys.executable, "script": str(FAKE_ENGINE), "how": how}
    return arm("launch", kv=kv, recipe=str(FAKE_ENGINE.parent / "recipe.yaml"), parameters=parameters, **engine)


@pytest.fixture
def kv_dir(tmp_path: Path) -> Path:
    made = tmp_path / "kv"
    made.mkdir()
    return made


def test_a_recipe_s_processes_are_started_read_and_ended_together(tmp_path: Path, kv_dir: Path) -> None:
    other = kv_dir / "left-behind-2"
    other.touch()
    with running(by_recipe(), (kv_dir,), tmp_path, Survivors(tmp_path / "survivors")) as engine:
        first = engine.pids
        assert (len(first), engine.model, engine.chunk_tokens) == (2, "served", 64)
        assert engine_metrics.read(engine.metrics_text())["external_hit_tokens"] == 6  # of both processes
        assert json.loads((tmp_path / "server.json").read_text())["directory"] == str(kv_dir)
        assert (kv_dir / "left-behind-1").exists()
        engine.restart()
        assert not any(map(alive, first))
        assert (engine.epoch, len(engine.pids)) == (2, 2)
    assert all(map(gone, engine.pids or first))
    # what the server had mapped is removed, and nobody else's file of such a name
    assert [file.name for file in kv_dir.iterdir()] == [other.name]


def test_an_arm_that_recomputes_tells_the_same_of_its_engine(tmp_path: Path, kv_dir: Path) -> None:
    told = []
    for given, folders in ((by_recipe(), (kv_dir,)), (by_recipe(kv="recompute"), ())):
        with running(given, folders, tmp_path, Survivors(tmp_path / "survivors")) as engine:
            told.append(engine.about)
            assert len(engine.pids) == (2 if folders else 1)
    assert told[0] == told[1]
    assert told[0] is not None
    assert (told[0]["version"], told[0]["recipe"], list(told[0]["commands"])) == ("7", "fake", ["front"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (by_recipe("fail"), "front, a part of the engine, ended with exit code 1: no GPU found"),
        (by_recipe(start_timeout_s=0.0), "server, a part of the engine, did not answer within 0 s"),
    ],
)
def test_a_recipe_that_does_not_come_up_is_quoted(tmp_path: Path, kv_dir: Path, given: Arm, message: str) -> None:
    with (
        pytest.raises(StepError, match=message),
        running(given, (kv_dir,), tmp_path, Survivors(tmp_path / "survivors")),
    ):
        pass


def test_an_engine_without_a_counter_of_hits_is_not_measured(tmp_path: Path, kv_dir: Path) -> None:
    plain = (FAKE_ENGINE.parent / "recipe.yaml").read_text().replace("cache_hits", "cache_visits")
    (tmp_path / "recipe.yaml").write_text(plain)
    given = by_recipe()
    silent = replace(given, engine=replace(given.engine, recipe=str(tmp_path / "recipe.yaml")))
    with (
        pytest.raises(StepError, match="exports none of vllm:external_prefix_cache_visits, so no hit could be proven"),
        running(silent, (kv_dir,), tmp_path, Survivors(tmp_path / "survivors")),
    ):
        pass


def test_a_package_that_the_engine_s_python_lacks_is_named(tmp_path: Path, kv_dir: Path) -> None:
    text = (FAKE_ENGINE.parent / "recipe.yaml").read_text().replace("packages: {}", "packages: {no-such-engine: '1'}")
    (tmp_path / "recipe.yaml").write_text(text)
    given = by_recipe()
    lacking = replace(given, engine=replace(given.engine, recipe=str(tmp_path / "recipe.yaml")))
    with (
        pytest.raises(StepError, match=r"recipe fake needs no-such-engine in .*: .*no-such-engine"),
        running(lacking, (kv_dir,), tmp_path, Survivors(tmp_path / "survivors")),
    ):
        pass


def test_a_recipe_keeps_its_pages_in_one_folder(tmp_path: Path, kv_dir: Path) -> None:
    with (
        pytest.raises(StepError, match="keeps its pages in one folder, and the arm dut has 2 nodes"),
        running(by_recipe(), (kv_dir, kv_dir), tmp_path, Survivors(tmp_path / "survivors")),
    ):
        pass


# ---------------------------------------------------------------- endpoints that are there


def test_an_endpoint_with_one_model_is_asked_for_it_by_its_own_name(tmp_path: Path) -> None:
    with answering(MODELS) as url, running(arm("openai", urls=(f"{url}/v1/",)), (), tmp_path, Survivors(tmp_path)) as e:
        assert (e.urls, e.model, e.basis, e.pids) == ((url,), "served", "measured", ())
        e.restart()


def test_an_endpoint_that_cannot_be_emptied_says_so(tmp_path: Path) -> None:
    given = fake(start_timeout_s=10)
    with running(given, (tmp_path / "kv",), tmp_path, Survivors(tmp_path / "survivors")) as other:
        there = arm("openai", urls=other.urls)
        with (
            running(there, (), tmp_path, Survivors(tmp_path)) as engine,
            pytest.raises(
                StepError, match=r"the engine cannot be emptied: .*/reset_prefix_cache answered with HTTP 501"
            ),
        ):
            engine.restart()


def test_a_flush_command_that_fails_is_told(tmp_path: Path) -> None:
    failing = (sys.executable, "-c", "raise SystemExit('no such cache')")
    with answering(MODELS) as url:
        given = arm("openai", urls=(url,), flush_command=failing)
        with (
            running(given, (), tmp_path, Survivors(tmp_path)) as engine,
            pytest.raises(StepError, match="flush_command ended with exit code 1: no such cache"),
        ):
            engine.restart()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http("<html>hello</html>"), "does not answer as OpenAI's API does: '<html>hello"),
        (http("{}"), "does not answer as OpenAI's API does"),
        (http("[" * 100_000), "does not answer as OpenAI's API does"),
        (http("", "503 Service Unavailable"), "answered with HTTP 503"),
        (b"\x00\x01\x02 garbage\r\n\r\n", "does not answer in HTTP"),
        (b"", "broke off|cannot be reached|does not answer in HTTP"),
        (http('{"data": [{"id": "a"}, {"id": "b"}]}'), "serves a, b, and not llama-3.1-8b"),
        (http('{"data": []}'), "serves no model"),
    ],
)
def test_an_endpoint_that_is_no_engine_is_named(tmp_path: Path, answer: bytes, message: str) -> None:
    with answering(answer) as url, pytest.raises(StepError, match=message) as caught:
        start(arm("openai", urls=(url,)), tmp_path)
    assert url in caught.value.message


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (("http://127.0.0.1:1",), "cannot be reached: Connection refused"),
        (("file:///etc/passwd",), "is not the address of an engine"),
        (("http://[::1:8000",), "Invalid IPv6 URL"),
        ((), "names no urls"),
    ],
)
def test_an_endpoint_that_is_not_there_is_named(tmp_path: Path, urls: tuple[str, ...], message: str) -> None:
    with pytest.raises(StepError, match=message):
        start(arm("openai", urls=urls), tmp_path)


# ---------------------------------------------------------------- the command line


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KvbenchError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            serve("llama-3.1-8b", "L4", recompute=True, port=port)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give --kv-dir"),
        ({"recompute": True, "kv_dir": [Path("/tmp")]}, "give --kv-dir"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        serve("llama-3.1-8b", "L4", **options)  # type: ignore[arg-type]


def test_a_directory_that_cannot_be_written_to_is_named() -> None:
    with pytest.raises(KvbenchError, match="cannot keep pages in /dev/null/kv"):
        serve("llama-3.1-8b", "L4", kv_dir=[Path("/dev/null/kv")], port=0)
