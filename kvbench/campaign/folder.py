"""The folder of a campaign: what was agreed, what is frozen, and the runs that lie in it.

DIR/campaign.yaml   who, how, until when (edited by people)
DIR/target.yaml     what is tested; absent in a campaign on the demonstration target
DIR/frozen.json     digests of what may not change any more, written when the first gate begins
DIR/runs/           the run folders; of independent parties each in a folder of its own, runs/PARTY/
DIR/summary.*       the report over all gates
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kvbench import content, demonstration, journal
from kvbench.campaign.carry import carried
from kvbench.campaign.ladder import (
    LADDER,
    Attempt,
    Campaign,
    Frozen,
    Rung,
    advice,
    changes,
    climb,
    commented_yaml,
    hindrance,
    party_of,
)
from kvbench.errors import KvbenchError, UsageError
from kvbench.model import FORMAT_VERSION, Outcome


class CampaignFolder:
    """A campaign on disk. `create` makes one, `open` takes one up; both raise UsageError that says what is wrong."""

    def __init__(self, path: Path, campaign: Campaign) -> None:
        self.path = path
        self.campaign = campaign

    @classmethod
    def create(cls, path: Path, campaign: Campaign, target_file: Path | None) -> CampaignFolder:
        """Write campaign.yaml and a copy of the target file, which is read first to see that it is one."""
        _check(campaign, path)
        if (path / "campaign.yaml").exists():
            raise UsageError(f"{path} holds a campaign already", f"kvbench campaign status {path}")
        if target_file:
            content.load_target(target_file)
        try:
            (path / "runs").mkdir(parents=True, exist_ok=True)
            if target_file:
                journal.write_atomically(path / "target.yaml", target_file.read_bytes())
            journal.write_atomically(path / "campaign.yaml", commented_yaml(campaign).encode())
        except OSError as error:
            raise KvbenchError(f"{path} cannot be made: {error.strerror}", "choose another folder") from None
        return cls(path, campaign)

    @classmethod
    def open(cls, path: Path) -> CampaignFolder:
        file = path / "campaign.yaml"
        if not file.is_file():
            raise UsageError(f"{path} is not a campaign: it holds no campaign.yaml", f"kvbench campaign new {path}")
        campaign = content.read(file, Campaign)
        _check(campaign, file)
        return cls(path, campaign)

    @property
    def target_file(self) -> Path | None:
        """The campaign's target file; None: the demonstration target."""
        file = self.path / "target.yaml"
        return file if file.is_file() else None

    @property
    def demonstration(self) -> bool:
        return self.target_file is None or bool(demonstration.of_target(content.load_target(self.target_file)))

    @property
    def frozen(self) -> Frozen | None:
        file = self.path / "frozen.json"
        if not file.is_file():
            return None
        try:
            return journal.from_json(json.loads(file.read_bytes()), Frozen, file)
        except ValueError as error:
            raise KvbenchError(f"{file} is damaged: {error}", "restore it from a copy") from None

    def rungs(self) -> list[Rung]:
        attempts = {lane: list(self._attempts(lane)) for lane in self.campaign.lanes}
        return climb(self.campaign, self.demonstration, attempts)

    def enter(self, gate: str, party: str, ungated: str, now: datetime) -> Entry:
        """Admit a gate. Raises KvbenchError while the gate below has not passed, or when frozen settings changed."""
        lane = self._lane(party)
        if gate not in LADDER:
            raise UsageError(f"{gate} is not a gate of a campaign", f"one of {', '.join(LADDER)}")
        self._check_frozen()
        rungs = self.rungs()
        obstacle = hindrance(rungs, gate, lane)
        if obstacle and not ungated:
            command = advice(rungs, lane, self.path)[1]
            raise KvbenchError(obstacle, f"{command}; or --ungated REASON, which page one prints")
        if ungated and not obstacle:
            raise UsageError("--ungated: nothing keeps this gate from running", "leave --ungated out")
        run_path = self._runs(lane) / f"{now:%Y-%m-%dT%H-%M-%S}-{gate}"
        return Entry(self, run_path, self.target_file, {"ungated": ungated, **self._carried(gate, rungs, lane)})

    def freeze(self, gate: str, now: datetime) -> None:
        """Take the digests that no later gate may differ from. The first gate does it; later ones find it done."""
        if self.frozen is None:
            frozen = Frozen(FORMAT_VERSION, now.isoformat(timespec="seconds"), gate, self.settings())
            journal.write_atomically(self.path / "frozen.json", journal.to_json(frozen))

    def settings(self) -> dict[str, str]:
        """SHA-256 by name of everything that the parties agree on: target, mode, and every gate with its workloads."""
        target = self.target_file or content.content_root() / "workloads" / "target-demo.yaml"
        files = {target.name: target.read_bytes(), "mode in campaign.yaml": self.campaign.mode.encode()}
        for gate in LADDER:
            files |= content.load_gate(gate).files
        return {name: content.digest({name: files[name]}) for name in sorted(files)}

    def changed(self) -> list[str]:
        """What is not as it was frozen, as clauses."""
        return changes(self.frozen.digests, self.settings()) if self.frozen else []

    def _check_frozen(self) -> None:
        if (frozen := self.frozen) and (changed := self.changed()):
            raise KvbenchError(
                f"{self.path}: {', '.join(changed)} since the settings were frozen ({frozen.at[:10]}, {frozen.gate})",
                "restore what was frozen; other settings are another campaign: kvbench campaign new",
            )

    def _lane(self, party: str) -> str:
        lanes = self.campaign.lanes
        if self.campaign.mode == "collaborative":
            if party:
                raise UsageError("--party is for a campaign of mode independent", "leave --party out")
        elif party not in lanes:
            said = f"there is no party {party!r}" if party else "every party runs the gates itself"
            raise UsageError(f"{self.path}: {said}", f"--party with one of {', '.join(lanes)}")
        return party

    def _runs(self, lane: str) -> Path:
        return self.path / "runs" / lane if lane else self.path / "runs"

    def _attempts(self, lane: str) -> Iterator[Attempt]:
        folder = self._runs(lane)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (path / "plan.json").is_file():
                run = journal.RunFolder.open(path)
                yield Attempt(path, run.plan, tuple(run.measurements()), run.load_verdict())

    def _carried(self, gate: str, rungs: Sequence[Rung], lane: str) -> dict[str, Any]:
        """What the lane's own G2 measured that the gate's plan is made with."""
        baseline = next(rung.decisive for rung in rungs if (rung.gate, rung.lane) == ("G2", lane))
        if baseline is None or baseline.verdict is None:
            return {}
        outcome = baseline.verdict.outcome
        name = baseline.path.name + (f", which was {outcome}" if outcome is not Outcome.PASS else "")
        return carried(content.load_gate(gate).gate, baseline.plan, baseline.measurements, name)


@dataclass(frozen=True, slots=True)
class Entry:
    """A gate that may run: where the run goes, on what, and what earlier gates and the parties put into its plan.

    `target_file` is None for the demonstration target; `options` are fields of `plan.Options`.
    """

    campaign: CampaignFolder
    run_path: Path
    target_file: Path | None
    options: Mapping[str, Any]


def _check(campaign: Campaign, where: Path) -> None:
    names = [party_of(party.name).name for party in campaign.parties]
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: two parties have the same name", "give each a name of its own")
    if campaign.mode == "independent" and len(names) < 2:
        raise UsageError(f"{where}: mode independent needs two parties or more", "--party vendor --party centre")
    if unknown := [gate for gate in campaign.due if gate not in LADDER]:
        raise UsageError(f"{where}: due: {unknown[0]} is not a gate", f"one of {', '.join(LADDER)}")
