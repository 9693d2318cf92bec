"""`kvbench engine serve`: the emulated engine by itself; `kvbench engine recipe`: how a real one would be started."""

import gc
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kvbench.cli.options import quantity
from kvbench.errors import KvbenchError, UsageError
from kvbench.units import parse_bytes, parse_rate

if TYPE_CHECKING:
    from kvbench.engine.cost import CostModel

T = TypeVar("T")


app = typer.Typer(
    no_args_is_help=True,
    help="Serve an emulated engine, or show how a real one is started.\n\n"
    "Example:  kvbench engine serve --model llama-3.1-8b --accelerator L4 --kv-dir /mnt/kv",
)


Model = Annotated[str, typer.Option(metavar="NAME", help="A model of workloads/models.yaml.")]
Accelerator = Annotated[str, typer.Option(metavar="NAME", help="An accelerator of workloads/accelerators.yaml.")]
TensorParallel = Annotated[int, typer.Option(metavar="N", min=1, help="Accelerators that share the model.")]
KvDirs = Annotated[
    list[Path] | None,
    typer.Option("--kv-dir", metavar="DIR", help="Directory for KV pages; repeat it, one a storage node."),
]
Recompute = Annotated[bool, typer.Option("--recompute", help="Keep no KV below GPU memory.")]
HostMemory = Annotated[
    int, typer.Option(parser=quantity(parse_bytes), metavar="SIZE", help="Host memory for KV, as '64 GiB'.")
]
PrefixCaching = Annotated[
    bool, typer.Option("--prefix-caching", help="Keep the KV of finished requests in GPU memory.")
]
NoDirect = Annotated[
    bool, typer.Option("--no-direct", help="Read and write through the page cache instead of O_DIRECT.")
]
RateLimit = Annotated[
    int | None,
    typer.Option(
        parser=quantity(parse_rate),
        metavar="RATE",
        help="Throttle each node, as '2.5 GB/s', to stand for a slower medium.",
    ),
]
Salt = Annotated[
    str, typer.Option(metavar="NAME", help="Name of the run; the pages of another run are then found wrong.")
]
FaultLog = Annotated[Path | None, typer.Option(metavar="FILE", help="JSON lines of bad pages.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0: any that is free.")]
ReadyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="JSON, url and pid: written as soon as the server answers.")
]


@app.command()
def serve(
    model: Model,
    accelerator: Accelerator,
    tensor_parallel: TensorParallel = 1,
    kv_dir: KvDirs = None,
    recompute: Recompute = False,
    host_memory: HostMemory = 0,
    prefix_caching: PrefixCaching = False,
    no_direct: NoDirect = False,
    rate_limit: RateLimit = None,
    salt: Salt = "",
    fault_log: FaultLog = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    ready_file: ReadyFile = None,
) -> None:
    """Serve a model whose computing is emulated and whose KV storage is real, with an OpenAI-compatible API.

    Example:  kvbench engine serve --model Qwen3-Coder-480B-A35B --accelerator MI308X --tensor-parallel 8
    --kv-dir /mnt/fx100/kv
    """
    gc.disable()  # what a start makes stays, and going through it again and again takes a tenth of the time
    from kvbench.engine import server
    from kvbench.engine.driver import StorageOptions, driver
    from kvbench.engine.protocol import EngineConfig

    if bool(kv_dir) == recompute:
        raise UsageError("give --kv-dir for an engine that stores its KV, or --recompute for one that does not")
    storage = StorageOptions(
        directories=tuple(kv_dir or ()),
        direct=not no_direct,
        rate_limit_bytes_per_s=rate_limit,
        salt=salt,
        fault_log=fault_log,
    )
    config = EngineConfig(
        _cost(model, accelerator, tensor_parallel), host_memory_bytes=host_memory, prefix_caching=prefix_caching
    )
    with server.listen(host, port) as listening, driver(config, storage) as engine:
        url = f"http://{host}:{listening.getsockname()[1]}"
        if ready_file:
            _write_whole(ready_file, json.dumps({"url": url, "pid": os.getpid()}))
        print(f"{model} on {tensor_parallel} × {accelerator} (emulated) at {url}", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):  # the server stops on them, and then raises them once more
            signal.signal(number, signal.SIG_IGN)
        gc.enable()
        gc.freeze()  # what is there by now stays: neither a collection amid tokens nor the end need go through it
        server.web_server(engine).run(sockets=[listening])


@app.command()
def recipe(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A recipe of engines/, or a file.")] = None,
    target: Annotated[
        Path | None, typer.Option("--target", metavar="FILE", help="Show the engines of this target's arms instead.")
    ] = None,
) -> None:
    """Print the exact commands of a recipe, for an arm with KV on storage and for one that recomputes. Starts nothing.

    Ports and folders are chosen when an engine is started; here they are examples.

    Example:  kvbench engine recipe vllm-lmcache-mp
    """
    from kvbench.content import load_target
    from kvbench.engine import launch
    from kvbench.engine.recipe import Place, described, port_names
    from kvbench.model import Arm, Engine, Storage

    if bool(name) == bool(target):
        raise UsageError("give either the name of a recipe or --target", launch.choices())
    engine = Engine(kind="launch", recipe=name or "", model="MODEL", host_memory_bytes=64 * 2**30)
    arms: tuple[Arm, ...] = (
        Arm("dut", "dut", engine, storage=Storage(("/mnt/kv",))),
        Arm("recompute", "baseline", engine, "recompute"),
    )
    for arm in load_target(target).arms if target else arms:
        if not arm.engine.recipe:
            print(f"# arm {arm.name} has an engine of kind {arm.engine.kind}, without a recipe\n")
            continue
        found = launch.load_recipe(arm.engine)
        ports = {port: 8000 + number for number, port in enumerate(port_names(found))}
        kv_dir = arm.storage.nodes[0] if arm.storage else ""
        example = Place(kv_dir, "/tmp/engine", "kvbench_kv", ports, "/opt/engine/bin/python")
        print("\n".join(described(found, arm, example)) + "\n")


def _cost(model: str, accelerator: str, tensor_parallel: int) -> "CostModel":
    from kvbench.content import content_root
    from kvbench.engine import catalog
    from kvbench.engine.cost import CostModel

    workloads = content_root() / "workloads"
    return CostModel(
        _known("model", model, catalog.models(workloads / "models.yaml")),
        _known("accelerator", accelerator, catalog.accelerators(workloads / "accelerators.yaml")),
        tensor_parallel,
    )


def _known(what: str, name: str, catalog: Mapping[str, T]) -> T:
    if name not in catalog:
        raise UsageError(f"there is no {what} {name!r}", f"one of: {', '.join(catalog)}")
    return catalog[name]


def _write_whole(path: Path, text: str) -> None:
    """Write a file that another process waits for: it is there as a whole, or not at all."""
    unfinished = path.with_name(f"{path.name}.part")
    try:
        unfinished.write_text(text)
        unfinished.rename(path)
    except OSError as error:
        raise KvbenchError(f"cannot write {path}: {error.strerror}") from None
