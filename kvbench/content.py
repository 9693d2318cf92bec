"""Find, load and validate what people edit: gates, workloads, targets. Errors name file, line and key.

Content ships inside the wheel as `kvbench/_content`; in a checkout it lies beside the package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

import kvbench
from kvbench.adapters import adapter
from kvbench.errors import UsageError
from kvbench.kv import ModelShape
from kvbench.load.workload import Kind
from kvbench.model import Gate, Target
from kvbench.probes.table import PROBES

T = TypeVar("T")

CONTENT_VERSION = 1
_MOST_VALUES = 100_000  # of a file that somebody wrote
_NO_TEXT = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
CONTENT_KEYS = {
    "workload": "inference",
    "profile": "fio",
    "pages": "kv",
}  # a step's param that names a file, and its folder
ABOUT_KEYS = ("version", "id", "kind", "why")


def content_root() -> Path:
    """The folder that holds gates/, workloads/ and reports/: the installed copy, else the checkout."""
    package = Path(kvbench.__file__).parent
    installed = package / "_content"
    return installed if installed.is_dir() else package.parent


@dataclass(frozen=True, slots=True)
class Loaded:
    """A gate with everything that it names. `files` maps a path such as `gates/g3.yaml` to the bytes that were read;
    `params` maps a gate step's id to the params of the workload or profile that it names."""

    gate: Gate
    source: Path
    params: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, bytes]


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over names and bytes of a set of files, in the order of their names."""
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\0{len(files[name])}\0".encode())
        whole.update(files[name])
    return whole.hexdigest()


def load_gate(name: str) -> Loaded:
    """Load the gate `name` (`G3`, or the path of a file) with its workloads. Raises UsageError."""
    path = _gate_path(name)
    gate: Gate = read(path, Gate)
    files = {f"gates/{path.name}": path.read_bytes()}
    params = {}
    for step in gate.steps:
        if step.probe not in PROBES:
            raise UsageError(
                f"{path}: step {step.id}: there is no probe {step.probe!r}", f"one of: {', '.join(PROBES)}"
            )
        for key, folder in CONTENT_KEYS.items():
            if key in step.params:
                found = _named(folder, str(step.params[key]), path)
                params[step.id] = _workload(found, step.probe)
                files[f"workloads/{folder}/{found.name}"] = found.read_bytes()
    models = models_path()
    files["workloads/models.yaml"] = models.read_bytes()
    return Loaded(gate, path, params, files)


def load_target(path: Path) -> Target:
    """Load a target file. Raises UsageError, also for an engine of ours with a model or accelerator that we lack."""
    target = read(path, Target)
    for arm in target.arms:
        if arm.engine.kind == "emulated":
            where = f"{path}: arm {arm.name}"
            _check_known(f"{where}: there is no model", arm.engine.model, model_shapes())
            _check_known(f"{where}: there is no accelerator", arm.engine.accelerator, _accelerators())
    return target


def _check_known(absence: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise UsageError(f"{absence} {name!r}", f"one of: {', '.join(known)}")


def demo_target(demo_dir: Path) -> Target:
    """The target of a run without one: this machine's disk, under `demo_dir`, against recompute."""
    path = content_root() / "workloads" / "target-demo.yaml"
    text = path.read_text().replace('"{demo_dir}"', json.dumps(str(demo_dir)))  # a JSON string is a YAML string
    return _validated(path, _document(text, path), Target)


def models_path() -> Path:
    return content_root() / "workloads" / "models.yaml"


def model_shapes() -> Mapping[str, ModelShape]:
    """The model shapes that kvbench knows, by id or by the path of a model's folder."""
    from kvbench.engine.catalog import Shapes, models

    return Shapes(models(models_path()))


def _accelerators() -> Collection[str]:
    from kvbench.engine.catalog import accelerators

    return accelerators(content_root() / "workloads" / "accelerators.yaml")


def workload_path(folder: str, name: str) -> Path:
    """The file workloads/FOLDER/NAME.yaml, or the one that is a path. Raises UsageError."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    path = content_root() / "workloads" / folder / f"{name}.yaml"
    if Path(name).name != name or not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
        raise UsageError(f"there is no workloads/{folder}/{name}.yaml", f"one of: {known}, or the path of a file")
    return path


def request_workload(name: str) -> Kind:
    """A workload that makes requests (`workloads/inference/NAME.yaml`, or a file's path). Raises UsageError."""
    path = _named("inference", name, Path(name))
    document = _document(_text(path), path)
    kinds = {get_args(get_type_hints(kind)["kind"])[0]: kind for kind in get_args(Kind)}
    chosen = document.get("kind") if isinstance(document, dict) else None
    if chosen not in kinds:
        where = f"{path}:{_line(document, ('kind',))}"
        raise UsageError(f"{where}: key kind: {chosen!r} makes no requests by itself", f"one of: {', '.join(kinds)}")
    made: Kind = _validated(path, document, kinds[chosen], besides=("id", "why"))
    return made


def read(path: Path, kind: type[T]) -> T:
    """One YAML file as the frozen type `kind`. Raises UsageError with file:line, the key and what was expected."""
    return _validated(path, _document(_text(path), path), kind)


def _gate_path(name: str) -> Path:
    is_file = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_file else content_root() / "gates" / f"{name.lower()}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem.upper() for p in (content_root() / "gates").glob("*.yaml")))
        hint = f"one of {known}, or the path of a gate file ending in .yaml"
        raise UsageError(f"{name}: no such file" if is_file else f"there is no gate {name!r}", hint)
    return path


def _named(folder: str, name: str, asked_by: Path) -> Path:
    if name.endswith((".yaml", ".yml")):
        return asked_by.parent / name
    path = content_root() / "workloads" / folder / f"{name}.yaml"
    if Path(name).name != name or not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise UsageError(f"{asked_by}: there is no workloads/{folder}/{name}.yaml", f"one of: {known}")
    return path


def _workload(path: Path, probe: str) -> dict[str, Any]:
    """The params that a workload or profile file gives to a step of `probe`."""
    document = _document(_text(path), path)
    if not isinstance(document, dict) or document.get("version") != CONTENT_VERSION:
        raise UsageError(f"{path}: key version: expected {CONTENT_VERSION}", "see docs/content.md for the format")
    known = {field.name for field in fields(PROBES[probe].params)}
    for key in document:
        if key not in known and key not in ABOUT_KEYS:
            raise UsageError(
                f"{path}:{_line(document, (key,))}: unknown key {key!r} for a step of {probe}",
                f"one of: {', '.join(sorted(known))}",
            )
    return {key: value for key, value in _plain(document).items() if key not in ABOUT_KEYS}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", "kvbench init writes a target.yaml to edit") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


@lru_cache(maxsize=64)
def _document(text: str, path: Path) -> Any:
    """What a YAML text says, with its lines, to be read and not to be changed: a run asks for the same again and again.

    Raises UsageError; `path` is for its message.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = YAML(typ="rt").load(text)
        if sum(1 for _ in islice(_values(document), _MOST_VALUES + 1)) > _MOST_VALUES:
            raise UsageError(f"{path}: more than {_MOST_VALUES:,} values, its aliases filled in", "use fewer aliases")
        for value in _values(document):
            if isinstance(value, str) and _NO_TEXT.search(value):
                raise UsageError(
                    f"{path}: {str(value)!a} has a control character or half a surrogate pair", "write text"
                )
        return document
    except RecursionError:
        raise UsageError(f"{path}: not valid YAML: nested too deeply") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        hint = "indent with blanks: YAML takes no tabs there" if "'\\t'" in str(error.problem) else ""
        raise UsageError(f"{path}:{line}: not valid YAML: {error.problem}", hint) from None
    except (YAMLError, ValueError) as error:  # the latter: a number or a date that there is not
        raise UsageError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from None


def _values(document: Any) -> Iterator[Any]:
    """Every key and value of a document, one that has aliases once an alias."""
    waiting = [document]
    while waiting:
        yield (node := waiting.pop())
        waiting += (*node, *node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ()


def _validated(path: Path, document: Any, kind: type[T], besides: Collection[str] = ()) -> T:
    """The document as `kind`, which knows nothing of the keys `besides`. Raises UsageError as `read` does."""
    from pydantic import ValidationError

    content = _plain(document)
    if not isinstance(content, dict):
        found = "the file is empty" if content is None else "the file holds no `key: value`"
        raise UsageError(f"{path}:1: {found}", "kvbench init writes a commented example")
    if content.get("version", CONTENT_VERSION) != CONTENT_VERSION:
        raise UsageError(
            f"{path}:{_line(document, ('version',))}: key version: this kvbench reads version {CONTENT_VERSION}"
        )
    for key in (*besides, *(() if kind is Gate else ("version",))):
        content.pop(key, None)
    try:
        validated: T = adapter(cast(Any, kind)).validate_python(content)
        return validated
    except ValidationError as error:
        lines = [_explain(path, document, dict(problem)) for problem in error.errors(include_url=False)]
        raise UsageError("\n".join(lines), "kvbench init writes a commented example") from None


def _explain(path: Path, document: Any, problem: Mapping[str, Any]) -> str:
    location: tuple[Any, ...] = problem["loc"]
    key = ".".join(str(part) for part in location)
    where = f"{path}:{_line(document, location)}"
    match problem["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"{where}: unknown key {key}"
        case "missing" | "missing_argument":
            return f"{where}: key {key} is missing"
    given = problem.get("input")
    shown = f", got {given!r}" if isinstance(given, str | int | float | bool) else ""
    return f"{where}: key {key}: {problem['msg'].removeprefix('Value error, ')}{shown}"


def _line(document: Any, location: Iterable[Any]) -> int:
    """Line (from 1) of the deepest part of `location` that the document has."""
    line, node = 1, document
    for part in location:
        position = getattr(node, "lc", None)
        try:
            line = (position.key(part) if isinstance(node, dict) else position.item(part))[0] + 1  # type: ignore[union-attr]
            node = node[part]
        except (KeyError, IndexError, TypeError, AttributeError):
            return line
    return line


def _plain(node: Any) -> Any:
    """The same document as plain dicts and lists, without the positions that ruamel keeps."""
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node
