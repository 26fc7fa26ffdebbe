"""One study that several nodes of a class search together, through the storage alone.

Each node measures its own default and tells ratios to it, so that nodes of different pace can
share what they learn. What a node is measuring carries its name and a heartbeat; a trial whose
node has died is failed and queued again by whoever notices. A node whose fingerprint differs from
the class is set aside with the reason. Settings confirmed on one node are confirmed on the next
before that node looks for its own.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from collbench.errors import CollbenchError, Exit
from collbench.search.history import Heard, History
from collbench.space.axes import Key, key

CLASS = "class"
ASIDE = "aside/"
CONFIRMED = "confirmed/"
GOOD_FROM = 2
"""Nodes that must have confirmed settings before they are called good for the class."""
BEAT_S = 10.0
STALE_S = 60.0
"""A trial whose heartbeat stands still for this long belongs to a node that is dead."""
RETRIES = 3
"""How often a trial is queued again before its settings are taken for what kills nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """This node, as the others see it."""

    name: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    """What the nodes of a class have in common: GPUs, CPUs, libraries."""


class Peers:
    """This node's part in a shared study.

    Args:
        study: The study of the class, in a storage that every node reaches.
        node: This node.

    Raises:
        CollbenchError: the node differs from the class, and is set aside.
    """

    def __init__(self, study: optuna.Study, node: Node) -> None:
        self.study = study
        self.node = node
        self._heard: set[int] = set()
        self._beats: dict[int, tuple[str, float]] = {}
        self._looked = 0.0
        self._heart: _Heart | None = None
        self.launches = 0
        """Search launches of the other nodes, as far as they have told."""
        self._join()

    def _join(self) -> None:
        mine = json.loads(json.dumps(self.node.machine, sort_keys=True))
        there = self.study.user_attrs.get(CLASS)
        if there is None:
            self.study.set_user_attr(CLASS, mine)
            return
        differs = [
            f"{name} is {_short(mine.get(name))} here, {_short(there.get(name))} in the class"
            for name in sorted({*mine, *there})
            if mine.get(name) != there.get(name)
        ]
        if differs:
            reason = "; ".join(differs)
            self.study.set_user_attr(f"{ASIDE}{self.node.name}", reason)
            raise CollbenchError(
                f"node {self.node.name} is set aside: {reason}",
                fix="tune it without --storage, or with a storage for nodes of its class",
                code=Exit.NOT_COMPARABLE,
            )

    # -- trials

    def ask(self) -> Trial:
        """Take the next trial, mark it as this node's and keep it alive until `release`."""
        self.release()
        with warnings.catch_warnings():
            # Optuna beats inside `optimize` only; here the node does it itself
            warnings.filterwarnings("ignore", message="Heartbeat of storage", category=UserWarning)
            trial = self.study.ask()
        trial.set_user_attr("node", self.node.name)
        self._heart = _Heart(self.study._storage, trial._trial_id)
        return trial

    def release(self) -> None:
        """Stop the heartbeat: the trial has been told."""
        if self._heart is not None:
            self._heart.stop()
            self._heart = None

    def lost(self, trial: Trial) -> bool:
        """Return whether another node took this node for dead; then the trial runs again there."""
        frozen = self.study._storage.get_trial(trial._trial_id)
        if frozen.state == TrialState.RUNNING:
            return False
        self.release()
        return True

    def is_mine(self, trial: FrozenTrial) -> bool:
        """Return whether this node was measuring a trial."""
        return bool(trial.user_attrs.get("node") == self.node.name)

    def busy(self) -> set[Key]:
        """Return what other nodes are measuring just now."""
        return {
            key(trial.user_attrs["asked"])
            for trial in self._trials(TrialState.RUNNING)
            if not self.is_mine(trial) and "asked" in trial.user_attrs
        }

    def hear(self, history: History) -> None:
        """Take in what other nodes have finished since the last time."""
        for trial in self._trials(TrialState.COMPLETE):
            attributes = trial.user_attrs
            if trial.number in self._heard or self.is_mine(trial):
                continue
            self._heard.add(trial.number)
            self.launches += int(attributes.get("launches", 0))
            if "settings" not in attributes:
                continue
            history.hear(
                Heard(
                    key=key(attributes["settings"]),
                    log=attributes.get("log"),
                    guard=float(attributes.get("guard", 0.0)),
                    outcome=str(attributes.get("outcome", "ok")),
                    reason=str(attributes.get("reason", "")),
                )
            )

    def _trials(self, state: TrialState) -> list[FrozenTrial]:
        return list(self.study.get_trials(deepcopy=False, states=(state,)))

    def retry_stale(self) -> list[int]:
        """Fail the trials of dead nodes and queue their settings again; return their numbers.

        Databases tell by their own clock whose heartbeat is old. Beyond that, and where there is
        none, a beat must have stood still while this node watched, so that clocks need not agree.
        Looks at most once a heartbeat.
        """
        now = time.monotonic()
        if now < self._looked + BEAT_S:
            return []
        self._looked = now
        before = {trial.number for trial in self._trials(TrialState.RUNNING)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)
        running = self._trials(TrialState.RUNNING)
        gone = before - {trial.number for trial in running}
        failed = {t.number for t in self._trials(TrialState.FAIL)}
        retried = sorted(gone & failed)
        for trial in running:
            beat = str(trial.user_attrs.get("beat", ""))
            seen, since = self._beats.get(trial.number, (None, now))
            if beat != seen:
                self._beats[trial.number] = (beat, now)
            elif now > since + STALE_S and not self.is_mine(trial) and self._fail(trial):
                retry(self.study, trial)
                retried.append(trial.number)
        return retried

    def _fail(self, trial: FrozenTrial) -> bool:
        """Fail a trial; False where another node was faster."""
        try:
            return bool(
                self.study._storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
            )
        except optuna.exceptions.UpdateFinishedTrialError:
            return False

    # -- confirmations

    def confirmed(self) -> list[dict[str, str]]:
        """Return the settings that other nodes have confirmed, those of most nodes first."""
        found: dict[Key, set[str]] = {}
        for node, settings in self._confirmations():
            found.setdefault(key(settings), set()).add(node)
        order = sorted(found, key=lambda name: (-len(found[name]), name))
        return [dict(name) for name in order if found[name] - {self.node.name}]

    def report(
        self, settings: Mapping[str, str], *, adopted: bool, ratio: float | None
    ) -> tuple[str, ...]:
        """Tell the class how a confirmation ended here; return the nodes that confirmed it."""
        text = json.dumps(sorted(settings.items()))
        plain = {"settings": dict(settings), "adopted": adopted, "ratio": ratio}
        self.study.set_user_attr(f"{CONFIRMED}{self.node.name}/{text}"[:500], plain)
        return tuple(
            sorted({node for node, found in self._confirmations() if found == dict(settings)})
        )

    def _confirmations(self) -> list[tuple[str, dict[str, str]]]:
        found = []
        for name, plain in self.study.user_attrs.items():
            if name.startswith(CONFIRMED) and plain["adopted"]:
                node = name.removeprefix(CONFIRMED).split("/", 1)[0]
                found.append((node, dict(plain["settings"])))
        return found


class _Heart:
    """Says in the storage that a trial's node lives, from a thread of its own."""

    def __init__(self, storage: BaseStorage, trial_id: int) -> None:
        self._storage, self._trial_id = storage, trial_id
        self._native = has_heartbeat(storage)
        self._end = threading.Event()
        self._say(0)
        self._thread = threading.Thread(target=self._beat, daemon=True, name="heartbeat")
        self._thread.start()

    def _say(self, count: int) -> None:
        self._storage.set_trial_user_attr(self._trial_id, "beat", count)
        if self._native:
            self._storage.record_heartbeat(self._trial_id)

    def _beat(self) -> None:
        count = 0
        while not self._end.wait(BEAT_S):
            count += 1
            try:
                self._say(count)
            except optuna.exceptions.UpdateFinishedTrialError:
                return  # told in the meantime, or taken from this node
            except Exception:  # the storage is away for a moment: the next beat may reach it
                continue

    def stop(self) -> None:
        self._end.set()
        self._thread.join(timeout=BEAT_S)


def has_heartbeat(storage: BaseStorage) -> bool:
    """Return whether a storage records heartbeats itself."""
    interval = getattr(storage, "get_heartbeat_interval", None)
    return interval is not None and interval() is not None


def retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue the settings of a trial whose node died, unless they have cost a few nodes already.

    Also the callback of storages with heartbeats.
    """
    tries = int(trial.user_attrs.get("retries", 0))
    if tries < RETRIES and trial.params:
        study.enqueue_trial(trial.params, user_attrs={"again": trial.number, "retries": tries + 1})


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= 80 else text[:77] + "..."
