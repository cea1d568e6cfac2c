"""Compare what an agent computed while acting with what its update computes of the same steps.

Rows are matched by content, not by place, so that minibatches, sequences, burn-in and wrapped
replays need no knowledge of the algorithm.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...core.specs import Discrete
from .differences import Difference
from .play import Play, Update, gradients, moved
from .recorder import MAX_CHANGED, Application, Forbidden

TOLERANCE = 1e-6  # relative to the largest number of a row, and at least absolute
ALIKE = 0.5  # share of equal numbers from which all must be equal
UNKNOWN = (2**31, 0, 0)


@dataclass(frozen=True, order=True)
class Finding:
    """A difference.

    Attributes:
      where: the update, the step in its rollout, and the environment.
      array: what differs.
      text: how.
    """

    where: tuple[int, int, int]
    array: str
    text: str

    @property
    def effect(self) -> int:
        """0 of what a network reads, 1 of what it returns, 2 of what is computed of that."""
        if self.array.startswith(("inputs", "carry", "network")):
            return 0
        return 2 if self.array.startswith("stored") else 1

    def __str__(self) -> str:
        update, step, env = self.where
        place = f"update {update + 1}, step {step}, environment {env}: " if update < 2**31 else ""
        return f"{place}{self.array} {self.text}"


@dataclass
class Outcome:
    """What was compared, what was not and why, and the differences.

    Attributes:
      compared: numbers of compared rows by array.
      left_out: reasons by array.
      findings: differences.
      num_steps: environment steps played.
      unfit: why nothing can be compared; "" if something can.
    """

    compared: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    num_steps: int = 0
    unfit: str = ""

    @property
    def first(self) -> Finding | None:
        """The difference at the earliest step, of those that are not the effect of others."""
        return min(self.findings, key=lambda finding: (finding.effect, finding), default=None)

    def __str__(self) -> str:
        rows = ", ".join(f"{name} ({count:,})" for name, count in self.compared.items())
        text = f"compared {rows or 'nothing'} in {self.num_steps:,} steps"
        reasons = [f"{name} ({reason})" for name, reason in self.left_out.items()]
        return "; not compared: ".join([text, *([", ".join(reasons)] if reasons else [])])


@dataclass(frozen=True)
class Reference:
    """One environment at one step, as the agent acted on it.

    Attributes:
      where: update, step, environment.
      follows: whether it is the step's true successor, rather than its observation.
    """

    where: tuple[int, int, int]
    follows: bool


class References:
    """What acting computed of each observation and true successor so far."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.rows: list[Reference] = []
        inputs, carries, forbidden = [], [], []
        self.outputs: dict[str, list[dict[str, np.ndarray]]] = {}
        self.acting = self._acting(updates)
        for number, update in enumerate(updates):
            for time, step in enumerate(update.steps):
                pairs = (step.main, step.acted), (step.next_main, step.after)
                for follows, (main, applications) in enumerate(pairs):
                    size = main.inputs.shape[0]
                    where = ((number, time, env) for env in range(size))
                    self.rows += [Reference(each, bool(follows)) for each in where]
                    inputs.append(main.inputs)
                    carries.append(main.carry)
                    mask = step.next_forbidden if follows else step.forbidden
                    forbidden.append(mask)
                    later_first = sorted(applications, key=lambda each: -each.site)
                    by_part = {application.part: application for application in later_first}
                    for part in self.acting:
                        self.outputs.setdefault(part, []).append(by_part[part].outputs)
        self.inputs = np.concatenate(inputs)
        self.carry = None if carries[0] is None else np.concatenate(carries)
        self.forbidden = None if forbidden[0] is None else np.concatenate(forbidden)
        self.size = inputs[0].shape[0]
        self.known: dict[bytes, list[int]] = {}
        for number, row in enumerate(self.inputs):
            self.known.setdefault(row.tobytes(), []).append(number)

    def find(self, row: np.ndarray) -> np.ndarray:
        """Find the rows that equal one: bit by bit, or else up to the tolerance."""
        same = self.known.get(row.tobytes())
        if same is None:  # remembered, since minibatches repeat rows
            same = self.known[row.tobytes()] = near(row, self.inputs).tolist()
        return np.asarray(same, np.int64)

    @staticmethod
    def _acting(updates: Sequence[Update]) -> set[str]:
        """Name the parts that read observations while acting."""
        step = updates[0].steps[0]
        main = step.main.inputs
        return {
            application.part
            for application in step.acted
            if application.inputs.shape == main.shape and np.array_equal(application.inputs, main)
        }

    def place(self, some: np.ndarray) -> tuple[int, int, int]:
        """Choose the step to name: one at which the agent acted, rather than the one before it."""
        rows = [self.rows[int(number)] for number in some]
        return min(rows, key=lambda row: (row.follows, row.where)).where

    def output(self, part: str, number: int) -> dict[str, np.ndarray]:
        """Return the outputs of a part for one row."""
        block, row = divmod(number, self.size)
        return {path: leaf[row] for path, leaf in self.outputs[part][block].items()}


def near(row: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Find the rows that equal one, as indices."""
    scale = max(1.0, float(np.max(np.abs(row), initial=0.0)))
    return np.flatnonzero(np.max(np.abs(rows - row), axis=-1, initial=0.0) <= TOLERANCE * scale)


def equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compare numbers, with the tolerance; infinite and undefined ones equal themselves."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    scale = np.maximum(1.0, np.maximum(np.abs(one), np.abs(other)))
    with np.errstate(invalid="ignore"):
        close = np.abs(one - other) <= TOLERANCE * scale
    return close | (one == other) | (np.isnan(one) & np.isnan(other))


class Comparison:
    """Compares the updates of one play."""

    def __init__(self, play: Play, updates: Sequence[Update]) -> None:
        self.play, self.updates = play, updates
        self.outcome = Outcome()
        num_envs = play.trainer.env.num_envs
        self.outcome.num_steps = num_envs * sum(len(update.steps) for update in updates)
        self.matches: dict[int, list[tuple[Application, list[np.ndarray]]]] = {}
        self.replays = False

    def run(self) -> Outcome:
        """Compare everything that can be compared."""
        if moved(self.updates[0].given[0], self.updates[-1].state):
            self.outcome.unfit = (
                "its parameters change although its optimizer changes nothing and learning rates "
                "are 0: take gradient steps by `self.learner`, whose `optimizer` is a field, or "
                "call the rates `learning_rate`."
            )
            return self.outcome
        if not len(self.updates[0].steps[0].main.inputs):
            self._without_references()
            return self.outcome
        self.references = References(self.updates)
        self._acting_carries()
        self._match()
        self._inputs()
        if self.references.carry is not None:
            self._carries()
        self._outputs()
        self._differences()
        self._masks()
        return self.outcome

    def _without_references(self) -> None:
        applied = any(update.applied for update in self.updates)
        if self.play.agent.explores_by_parameters and not applied:
            self.outcome.left_out["inputs"] = (
                "the agent declares explores_by_parameters, and its update reads returns, not what "
                "networks compute"
            )
            return
        self._find(UNKNOWN, "network", "is not applied to the observations while acting.")

    def _find(self, where: tuple[int, int, int], array: str, text: str) -> None:
        self.outcome.findings.append(Finding(where, array, text))

    @property
    def recorded(self) -> Iterator[tuple[int, Update]]:
        return ((n, update) for n, update in enumerate(self.updates) if update.recorded)

    def _acting_carries(self) -> None:
        """The network must start from the initial carry where an episode starts, and only there."""
        for number, update in enumerate(self.updates):
            for time, step in enumerate(update.steps):
                carry = step.main.carry
                if carry is None or step.carry is None or step.initial is None:
                    return
                if carry.shape != step.carry.shape:
                    return
                wanted = np.where(step.first[:, None], step.initial, step.carry)
                wrong = ~equal(carry, wanted).all(axis=-1)
                self.outcome.compared["carry while acting"] += len(carry)
                for env in np.flatnonzero(wrong)[:1]:
                    event = (
                        "is reset within" if not step.first[env] else "is not reset at the start of"
                    )
                    self._find((number, time, int(env)), "carry", f"{event} an episode, in `act`.")

    def _match(self) -> None:
        """Find for each row that an update reads the steps at which acting read it."""
        for number, update in self.recorded:
            matches = self.matches[number] = []
            seen_until = sum(2 * len(u.steps) for u in self.updates[: number + 1])
            limit = seen_until * self.references.size
            for application in update.applied:
                if not self._reads_observations(application):
                    continue
                matching = [
                    same[same < limit] for same in map(self.references.find, application.inputs)
                ]
                matches.append((application, matching))
                self.replays |= any(self._from_before(number, some) for some in matching)

    def _reads_observations(self, application: Application) -> bool:
        step = self.updates[0].steps[0]
        acting = {application.part for application in step.acted}
        if application.part in acting - self.references.acting:
            self.outcome.left_out[f"inputs of {application.part}"] = (
                "it reads something else than observations"
            )
            return False
        if application.inputs.shape[-1] != self.references.inputs.shape[-1]:
            name = application.part or "the network"
            self.outcome.left_out[f"inputs of {name}"] = "it reads more than an observation"
            return False
        return True

    def _inputs(self) -> None:
        spec = self.play.agent.obs_spec
        differ: list[tuple[str, np.ndarray, np.ndarray]] = []
        for number, matches in self.matches.items():
            later: np.ndarray | None = None
            for application, matching in matches:
                name = f"inputs of {application.part}" if application.part else "inputs"
                self.outcome.compared[name] += len(matching)
                for row, some in zip(application.inputs, matching, strict=True):
                    if len(some) or (isinstance(spec, Discrete) and _is_value(spec, row)):
                        continue
                    later = self._inputs_later(number) if later is None else later
                    same = near(row, later)
                    differ.append((name, row, same))
                    self.replays |= self._from_before(number, same)
        for name, row, same in differ:
            if len(same) and self.replays:
                reason = "replayed observations are read with the newest statistics"
                self.outcome.left_out["statistics"] = reason
                continue
            text = "differ from those that acting gave to the network"
            if len(same):
                text += ": the statistics changed between acting and learning"
            self._find(self._nearest(row, same), name, f"{text}.")
        if not sum(self.outcome.compared.values()):
            self._find(UNKNOWN, "inputs", "were never read by an update: nothing was compared.")

    def _from_before(self, number: int, some: np.ndarray) -> bool:
        """Whether a row can only be of steps from before the rollout of an update."""
        return len(some) > 0 and all(self.references.rows[i].where[0] < number for i in some)

    def _inputs_later(self, number: int) -> np.ndarray:
        """What acting reads of all observations so far, by the state after an update."""
        if self.play.agent.plans:
            return np.zeros((0, self.references.inputs.shape[-1]))
        state, rows = self.updates[number].state, []
        for update in self.updates[: number + 1]:
            trajectory = update.given[1]
            now, after = (self.play.look(state, o) for o in (trajectory.obs, trajectory.next_obs))
            for pair in zip(now, after, strict=True):
                rows.extend(pair)
        return np.concatenate(rows)

    def _nearest(self, row: np.ndarray, same: np.ndarray) -> tuple[int, int, int]:
        if len(same):
            return self.references.place(same)
        distance = np.max(np.abs(self.references.inputs - row), axis=-1)
        return self.references.rows[int(np.argmin(distance))].where

    def _carries(self) -> None:
        table = self.references.carry
        assert table is not None
        for matches in self.matches.values():
            for application, matching in matches:
                if application.carry is None or application.carry.shape[-1] != table.shape[-1]:
                    continue
                self.outcome.compared["carry"] += len(matching)
                for row, carry, some in zip(
                    application.inputs, application.carry, matching, strict=True
                ):
                    if not len(some) or equal(table[some], carry).all(axis=-1).any():
                        continue
                    some = near(row, self.references.inputs)  # with those equal up to rounding
                    if equal(table[some], carry).all(axis=-1).any():
                        continue
                    where = self.references.place(some)
                    size = np.min(np.max(np.abs(table[some] - carry), axis=-1))
                    text = "before the step differs from the one with which the agent acted"
                    self._find(where, "carry", f"{text}, by up to {size:.2g}.")

    def _outputs(self) -> None:
        """An agent that stores what its network returned must find the same in its loss."""
        reason = self.play.agent.learns_otherwise
        if not reason and self.replays:
            reason = "the agent replays steps: other parameters, noise or statistics acted then"
        if not reason and not self.play.stores:
            reason = "act stores none"
        if reason:
            self.outcome.left_out["outputs"] = reason
            return
        for matches in self.matches.values():
            for application, matching in matches:
                if application.part not in self.references.acting:
                    continue
                for row, some in enumerate(matching):
                    some = self._with_carry(application, row, some)
                    if len(some):
                        self.outcome.compared["outputs"] += 1
                        self._compare_outputs(application, row, some)

    def _with_carry(self, application: Application, row: int, some: np.ndarray) -> np.ndarray:
        table = self.references.carry
        if table is None or application.carry is None:
            return some
        return some[equal(table[some], application.carry[row]).all(axis=-1)]

    def _compare_outputs(self, application: Application, row: int, some: np.ndarray) -> None:
        wrong = ""
        for number in some:
            acted = self.references.output(application.part, int(number))
            differ = [
                path
                for path, leaf in acted.items()
                if path in application.outputs
                and application.outputs[path].shape[1:] == leaf.shape
                and not equal(application.outputs[path][row], leaf).all()
            ]
            if not differ:
                return
            wrong = wrong or differ[0]
        where = self.references.place(some)
        text = "of the network differs in the update from acting, for equal inputs and parameters"
        self._find(where, f"output {wrong}", f"{text} (noise, dropout, or another mode).")

    def _differences(self) -> None:
        for number, update in self.recorded:
            for difference in update.differences:
                same = equal(difference.stored, difference.computed)
                compared = same & ((difference.stored != 0) | (difference.computed != 0))
                if not difference.named and compared.mean() < ALIKE:
                    continue
                self.outcome.compared[f"stored {difference.name}"] += same.size
                if same.all():
                    continue
                index = np.unravel_index(int(np.argmin(same)), same.shape)
                stored, computed = (
                    float(a[index]) for a in (difference.stored, difference.computed)
                )
                self._find(
                    self._place(number, difference, index),
                    f"stored {difference.name}",
                    f"is {stored:.6g}, and the loss computes {computed:.6g} of the same step "
                    f"({int((~same).sum())} of {same.size} differ).",
                )
        if self.play.stores and not any(n.startswith("stored") for n in self.outcome.compared):
            self.outcome.left_out["stored numbers"] = "no loss subtracts or divides by them"

    def _place(
        self, number: int, difference: Difference, index: tuple[np.intp, ...]
    ) -> tuple[int, int, int]:
        """Find the step of one number: by where the batch has it, and the observation there."""
        shape = difference.stored.shape
        obs = [leaf for path, leaf in difference.batch.items() if path not in difference.names]
        for name in difference.names if obs else ():
            leaf = difference.batch[name]
            if leaf.shape[: len(shape)] == shape:
                spot = index[: leaf.ndim]
            elif leaf.ndim <= 2 and (leaf == difference.stored[index]).any():
                spot = tuple(np.argwhere(leaf == difference.stored[index])[0])
            else:
                continue
            rows = [part[spot[:2]] if part.ndim > 2 else part[spot[:1]] for part in obs]
            row = np.concatenate([np.ravel(r).astype(np.float32) for r in rows])
            if row.shape[-1] == self.references.inputs.shape[-1]:
                some = near(row, self.references.inputs)
                if len(some):
                    return self.references.place(some)
        return number, 0, 0

    def _masks(self) -> None:
        table = self.references.forbidden
        if table is None:
            self.outcome.left_out["masks"] = "the environment has no action mask"
            return
        if any(finding.effect == 0 for finding in self.outcome.findings):
            self.outcome.left_out["masks"] = "inputs or carries differ already"
            return
        counted = [n for n, matches in self.matches.items() if self._masked_rows(matches)]
        for number in [*counted[:1], *counted[-2:]]:
            self._masks_of(number, self._masked_rows(self.matches[number]))
        if not counted:
            reason = "no update reads outputs for actions of an observation that has forbidden ones"
            self.outcome.left_out["masks"] = reason

    def _masked_rows(self, matches: list[tuple[Application, list[np.ndarray]]]) -> list[int]:
        """List the references whose outputs by action an update reads, earliest first."""
        table = self.references.forbidden
        assert table is not None
        rows: set[int] = set()
        for application, matching in matches:
            pair = application.inputs.shape[0], table.shape[-1]
            shapes = (leaf.shape for leaf in application.outputs.values())
            if any(pair == s[at : at + 2] for s in shapes for at in range(len(s) - 1)):
                rows.update(int(i) for some in matching for i in some)
        # Where an observation comes with several masks, none of them is known to be meant.
        masks: dict[bytes, set[bytes]] = {}
        for row in rows:
            masks.setdefault(self.references.inputs[row].tobytes(), set()).add(table[row].tobytes())
        kept = [
            row
            for row in rows
            if table[row].any() and len(masks[self.references.inputs[row].tobytes()]) == 1
        ]
        return sorted(kept, key=lambda row: self.references.rows[row].where)

    def _masks_of(self, number: int, rows: list[int]) -> None:
        update = self.updates[number]
        base = gradients(update.state)
        if not base:
            reason = "the agent's state has no LearnerState, whose gradients would show an effect"
            self.outcome.left_out["masks"] = reason
            return
        rows, table = rows[:MAX_CHANGED], self.references.forbidden
        assert table is not None

        def changed(count: int) -> bool:
            forbidden = Forbidden.of(self.references.inputs[rows[:count]], table[rows[:count]])
            now = self.play.gradients_with(update, forbidden)
            return any(not _alike(base[name], now[name]) for name in base)

        self.outcome.compared["masks"] += len(rows)
        if not changed(len(rows)):
            return
        low, high = 0, len(rows)  # the first row that has an effect
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if changed(middle) else (middle, high)
        reference = self.references.rows[rows[high - 1]]
        array = "next_action_mask" if reference.follows else "action_mask"
        text = "is not applied in the update: the output of a forbidden action changes the gradient"
        self._find(reference.where, array, f"{text}.")


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    scale = np.max(np.abs(one), initial=0.0)
    return bool(np.all(np.abs(one - other) <= 1e-5 * scale + 1e-12))


def _is_value(spec: Discrete, row: np.ndarray) -> bool:
    return row.shape == (1,) and row[0] in range(spec.num_values)
