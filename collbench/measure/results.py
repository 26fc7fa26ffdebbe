"""What came of everything one rank was asked: its result file, rewritten as it goes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace

from collbench.backends import Backend, Refused, Unsupported
from collbench.job import Case, Job, Outcome, RankCase, RankResult, to_plain


class ResultFile:
    """A rank's result file: rewritten whole, so that a death loses one case and no more."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = path
        self._done: list[RankResult] = []
        self.part = RankResult(rank=rank, outcome="hung", reason="opening the group")
        self.write()

    def update(self, **fields: object) -> None:
        """Change fields of the part in progress and write the file."""
        self.part = replace(self.part, **fields)  # type: ignore[arg-type]
        self.write()

    def next_part(self) -> None:
        """Close the part in progress and begin another."""
        self._done.append(self.part)
        self.part = RankResult(rank=self.part.rank, outcome="hung", facts=self.part.facts)

    def write(self) -> None:
        """Write all parts. No fsync: a machine that dies takes the launch with it."""
        text = json.dumps({"parts": to_plain([*self._done, self.part])})
        temporary = f"{self._path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        os.replace(temporary, self._path)  # noqa: PTH105


class Findings:
    """The cases of one part of a job and what went wrong, kept in a result file."""

    def __init__(self, job: Job, backend: Backend, results: ResultFile) -> None:
        self.results = results
        self.measured = False
        """Whether anything came of the part."""
        self._job = job
        self._backend = backend
        self._shares: dict[Case, RankCase] = {}
        self._problems: list[tuple[Outcome, str]] = []

    def problem(self, kind: Outcome, text: str) -> None:
        """Note that something was ``wrong`` or ``unsupported``."""
        self._problems.append((kind, text))

    def keep(self, *shares: RankCase) -> None:
        """Keep what there is of cases so far; a failure that stands already stays."""
        for share in shares:
            before = self._shares.get(share.case)
            if before is None or before.error is None:
                self._shares[share.case] = share
        done = (self._shares.get(case) for case in self._job.cases)
        self.results.update(cases=tuple(share for share in done if share is not None))

    def finished(self, share: RankCase) -> None:
        """Keep the last of a case."""
        self.measured = True
        if share.wrong:
            self.problem("wrong", f"{share.case.key}: {share.wrong} wrong elements")
        self.keep(share)

    @contextlib.contextmanager
    def attempt(self, case: Case) -> Iterator[None]:
        """Do a part of a case: what the backend cannot do is noted, and the others go on.

        Raises:
            Exception: any other failure, as the backend explains it; it ends the launch.
        """
        self.results.update(reason=case.key)
        try:
            yield
        except Exception as error:
            explained = self._backend.explain(error)
            unsupported = isinstance(explained, Unsupported)
            refused = isinstance(explained, Refused)
            kind = "unsupported" if unsupported else "refused" if refused else "died"
            text = " ".join(str(explained).split())[:300]
            self.keep(RankCase(case=case, error=f"{kind}: {text}"))
            if not unsupported:
                raise explained from error
            self.problem("unsupported", f"{case.key}: {text}")
            # An exception that its own traceback refers to keeps all that its frames hold.
            del explained

    def outcome(self) -> tuple[Outcome, str]:
        """Return the outcome of the part and its reason."""
        for kind in ("wrong", "unsupported"):
            found = [text for name, text in self._problems if name == kind]
            if found and (kind == "wrong" or not self.measured):
                return ("wrong" if kind == "wrong" else "unsupported"), found[0]
        return "ok", ""
