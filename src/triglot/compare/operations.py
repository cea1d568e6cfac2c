"""The first operation in which two libraries' trainings differ, for every pair of a comparison."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..backends import libraries
from ..core.errors import TriglotError, describe
from ..core.records import JSONDict
from .jobs import environments
from .options import CompareOptions
from .rungs import Rung, rung_named, rung_of_arithmetic
from .search import Search, Update
from .traced import shared_weights

Result = TypeVar("Result")

COMPILED = "compilation"
# What the searches beyond the judged rung in the first environment may take together.
MAX_SECONDS = 60.0


class Operations:
    """Finds operations; what was recorded and found is kept."""

    def __init__(self, options: CompareOptions) -> None:
        """Search nothing yet.

        Args:
          options: of the comparison; its folder holds the shared weights.
        """
        self.options = options
        self._searches: dict[tuple[str, str], Search] = {}
        # By environment, rung and libraries; a text says why a search failed.
        self._updates: dict[tuple[str, ...], Update | str | None] = {}
        self._located: dict[tuple[str, ...], tuple[JSONDict | None, list[JSONDict]] | str] = {}
        self._seconds = 0.0

    def update_cause(
        self, env: str, rung: Rung, backends: Sequence[str], *, functions_only: bool
    ) -> JSONDict | None:
        """Name the cause of a difference that lies in the agent's own update.

        Args:
          env: one of the environments.
          rung: what the libraries share.
          backends: the two libraries.
          functions_only: look for differences that are larger than rounding.

        Returns:
          An entry of `causes`; None if the updates are equal, or the search failed.
        """
        key = (env, rung.name, *backends)
        if key not in self._updates:
            self._updates[key] = self._try(
                env, rung, lambda search: search.update(backends, functions_only=functions_only)
            )
        update = self._updates[key]
        return update.cause if isinstance(update, Update) else None

    def add(
        self, env: str, rung: Rung, pairs: Sequence[JSONDict], programs: Sequence[JSONDict] = ()
    ) -> None:
        """Locate the differences of pairs, and name the causes of other functions.

        Args:
          env: one of the environments.
          rung: on which the pairs were trained.
          pairs: their entries of `comparison.json`; `first_difference` gets `operation`, None if
            none was located, or with the reason as `not_located` if the search failed; causes of
            another function are named by what `triglot diff` finds.
          programs: the compared training programs of these pairs.
        """
        compared = {tuple(program["backends"]): program for program in programs}
        for pair in pairs:
            place = pair["first_difference"]
            if place is None:
                continue
            place["operation"] = None
            key = (env, rung.name, *pair["backends"])
            update = self._updates.get(key)
            if any(cause.get("part") == "update" for cause in pair["causes"]):
                assert isinstance(update, Update)
                place["operation"] = update.operation
                continue
            if any(cause["name"] == COMPILED for cause in pair["causes"]):
                _add_compiled(pair, compared.get(tuple(pair["backends"])))
                if isinstance(update, str) and place["operation"] is None:
                    place["not_located"] = update
                continue
            if key not in self._located:
                located = self._try(env, rung, lambda search, pair=pair: search.locate(pair))
                self._located[key] = located or (None, [])
            located = self._located[key]
            if isinstance(located, str):
                place["not_located"] = located
                continue
            place["operation"] = located[0]
            pair["causes"] += located[1]

    def _try(self, env: str, rung: Rung, search: Callable[[Search], Result]) -> Result | str:
        """Search; give the reason of a failure as text."""
        main = rung_of_arithmetic(self.options.arithmetic)
        is_extra = (env, rung.name) != (self.options.env, main.name)
        start = time.monotonic()
        try:
            if is_extra and self._seconds > MAX_SECONDS:
                raise TriglotError(
                    f"operations beyond those of {self.options.env} on the rung {main.name} are "
                    f"located for {MAX_SECONDS:.0f} s in all: compare fewer environments."
                )
            return search(self._search(env, rung))
        except Exception as error:  # the trainings are done, and their report has the rest
            return describe(error)
        finally:
            if is_extra:
                self._seconds += time.monotonic() - start

    def _search(self, env: str, rung: Rung) -> Search:
        key = (env, rung.name)
        if key not in self._searches:
            assert self.options.out is not None
            weights = shared_weights(self.options.out, environments(self.options).index(env))
            self._searches[key] = Search(self.options, env, rung, weights)
        return self._searches[key]


def add_operations(operations: Operations, result: JSONDict, envs: Sequence[str]) -> None:
    """Locate the differences of all pairs of a comparison, and add them to its sentences.

    Args:
      operations: of the comparison.
      result: the contents of `comparison.json`.
      envs: the environments in which two libraries were trained.
    """
    options = operations.options
    main = rung_of_arithmetic(options.arithmetic)
    by_env = result["environments"] or {envs[0]: result}
    for env, facts in by_env.items():
        programs = result["programs"]["pairs"] if env == options.env else ()
        operations.add(env, main, facts["pairs"], programs)
    for entry in result["ladder"] or ():
        if entry["run"]:
            programs = result["programs"]["pairs"] if entry["rung"] == main.name else ()
            operations.add(options.env, rung_named(entry["rung"]), entry["pairs"], programs)
            add_places({"sentence": ""}, entry["pairs"])
    pairs = [pair for facts in by_env.values() for pair in facts["pairs"]]
    result["verdict"] = add_places(result["verdict"], pairs)


def add_places(verdict: JSONDict, pairs: Iterable[JSONDict]) -> JSONDict:
    """Add to the sentences of a verdict and of its pairs where the libraries differ first."""
    for pair in pairs:
        operation = (pair["first_difference"] or {}).get("operation")
        if operation is None:
            continue
        place = f" {operation['sentence']}."
        if pair["sentence"] in verdict["sentence"]:
            whole = verdict["sentence"].replace(pair["sentence"], pair["sentence"] + place)
            verdict = {**verdict, "sentence": whole}
        pair["sentence"] += place
    return verdict


def _add_compiled(pair: JSONDict, compared: JSONDict | None) -> None:
    """Name the first operation in which the compiled training programs differ, if there is one."""
    if not (compared and compared["place"]):
        return
    place = compared["place"]
    computes = " and ".join(
        f"{libraries.title(backend)} computes {compared[side]['text']}"
        for backend, side in zip(pair["backends"], ("one", "other"), strict=True)
        if compared[side]
    )
    for cause in pair["causes"]:
        if cause["name"] == COMPILED:
            cause["where"] += f", first at {place}"
            cause["evidence"] += f"; where the compiled programs first differ, {computes}"
    pair["first_difference"]["operation"] = {
        "one": compared["one"],
        "other": compared["other"],
        "max_abs": None,
        "max_rel": None,
        "compiled_only": True,
        "part": "program",
        "sentence": f"The compiled trainings differ first at {place}",
    }
