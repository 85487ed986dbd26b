"""What trials found, in a file, so that a search that was interrupted can go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sardonyx.api.settings import Settings
from sardonyx.base.bounded_json import MOST_BYTES, parse_json
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.files import check_target, read_file
from sardonyx.tools.tune.outcome import DEFAULT, Outcome
from sardonyx.tools.tune.search import TrialBench


class Journal:
    """Asks a bench what is not in the file, and adds the answers to it: a line each.

    The file is there when there is a first answer.

    Args:
        path: The file.
        header: What the search is of; another one's answers are not taken.
        bench: Measures.
        resume: Whether to take what is there; else the file begins anew.

    Raises:
        InvalidArgument: The file is of another search, or no journal.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], bench: TrialBench, resume: bool
    ) -> None:
        self._path, self._bench = path, bench
        self._outcomes: dict[str, Outcome] = {}
        self._kernels: dict[str, tuple[Mapping[str, Any], ...]] = {}
        # A search that finds nothing leaves no file.
        self._header = json.dumps(dict(header)) + "\n"
        check_target(path)
        if resume and path.exists():
            self._read(dict(header))
            self._header = ""

    def _read(self, header: dict[str, Any]) -> None:
        name = str(self._path)
        lines = read_file(name, MOST_BYTES).decode("utf-8", "replace").split("\n")
        # The last line ends without a newline if its writer was killed: it is measured again.
        complete, torn = lines[:-1], lines[-1]
        try:
            entries = [parse_json(line, name, is_strict=False) for line in complete]
        except InvalidArgument:
            entries = []
        if not entries or entries[0] != header:
            what = "It is of another search: model, inputs, device or options differ"
            raise InvalidArgument(message(str(self._path), what, do="Leave out --resume"))
        try:
            for entry in entries[1:]:
                if "kernels" in entry:
                    self._kernels[entry["kernels"]] = tuple(entry["results"])
                else:
                    outcome = Outcome.from_json(entry)
                    self._outcomes[outcome.settings.key] = outcome
        except (AttributeError, KeyError, TypeError, ValueError):
            what = "It is damaged: a line is none that a search writes"
            raise InvalidArgument(message(str(self._path), what, do="Leave out --resume")) from None
        if torn:
            with open(self._path, "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in complete)

    def _add(self, entry: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "w" if self._header else "a", encoding="utf-8") as file:
            file.write(self._header + json.dumps(entry) + "\n")
        self._header = ""

    def trial(self, settings: Settings, best: Outcome) -> Outcome:
        """See `search.TrialBench`."""
        key = settings.key
        if key not in self._outcomes:
            found = self._outcomes[key] = self._bench.trial(settings, best)
            if found.works or key != DEFAULT.key:  # else the search is over, and found nothing
                self._add(found.to_json())
        return self._outcomes[key]

    def tuned_kernels(self, settings: Settings) -> tuple[Mapping[str, Any], ...]:
        """See `search.TrialBench`."""
        key = settings.key
        if key not in self._kernels:
            self._kernels[key] = self._bench.tuned_kernels(settings)
            self._add({"kernels": key, "results": list(self._kernels[key])})
        return self._kernels[key]
