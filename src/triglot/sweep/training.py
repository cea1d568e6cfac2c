"""Train one batch of a sweep: start or continue it, save checkpoints, evaluate, write results."""

import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from ..core.experiment import Experiment, evaluation_keys
from ..core.learner import LearnerState
from ..core.loop import checkpoint
from ..core.loop.checkpoint import Checkpoints
from ..core.loop.state import RunnerState
from ..core.loop.trainer import Program
from ..core.manifest import DamagedError
from ..runs.jobs.job import RunningJob
from ..runs.jobs.ledger import Ledger
from ..runs.train import CHUNK_SECONDS
from .batches import Batch, by_pair
from .learning import SUMS, Learning
from .plan import SweepPlan

ARRAYS = "arrays.safetensors"
FINAL, UNSEEN = "final", "final_unseen"  # greedy returns, on levels held out if there are levels
STATE = "state"  # of trainings that successive halving may continue


@dataclass(frozen=True)
class Runner:
    """Trains batches of a sweep into its ledger.

    Attributes:
      plan: the sweep.
      ledger: its folder.
      programs: the last compiled program, by group and number of trainings.
    """

    plan: SweepPlan
    ledger: Ledger
    programs: dict[tuple[int, int], Program] = field(default_factory=dict)

    def run(self, batch: Batch, earlier: Sequence[Batch], job: RunningJob) -> None:
        """Train a batch, and write its results.

        Args:
          batch: which trainings.
          earlier: the batches of the stage before, which hold their states.
          job: shows the progress, and says whether to stop.

        Raises:
          Signalled: after an interruption, of which a checkpoint is kept.
        """
        experiment = self._experiment(batch)
        job.enter("initialize")
        state, learning, done = self._start(experiment, batch, earlier, job)

        def save() -> None:
            job.enter("save")
            folder = self.ledger.checkpoints(batch.name)
            experiment.save(folder, state, beside=learning.packed())
            job.enter("train")

        job.total = batch.stop - batch.start
        job.advance(done - batch.start)
        with closing(self._program(experiment, batch, state, job)) as program:
            job.saves = True
            job.enter("train")
            saved = time.perf_counter()
            chunks = experiment.chunks(
                state, program=program, until=batch.stop, target_seconds=CHUNK_SECONDS
            )
            for chunk in chunks:
                state = chunk.runner_states
                learning.add(done, chunk.metrics)
                done = chunk.num_updates
                job.advance(chunk.count)
                if job.interrupt.pressed:
                    break
                seconds = self.plan.options.checkpoint_seconds
                if seconds and time.perf_counter() - saved >= seconds:
                    save()
                    saved = time.perf_counter()
        if job.interrupt.pressed:
            save()
            job.interrupt.check()
        job.saves = False
        whole = experiment.whole(state)
        arrays = {
            "returns": learning.returns,
            "episodes": learning.episodes,
            "recent": learning.recent(batch.stop),
            "finite": finite_parameters(whole),
        }
        if batch.is_last and self.plan.options.eval_episodes:
            job.enter("evaluate")
            arrays |= self._evaluate(experiment, batch, state)
        job.enter("save")
        with self.ledger.writing(batch.name) as folder:
            save_file(arrays, folder / ARRAYS)
            if not batch.is_last:
                checkpoint.save(folder / STATE, whole)

    def _experiment(self, batch: Batch) -> Experiment:
        """Join the trainings of a batch."""
        devices = self.plan.options.devices or 1
        group = self.plan.groups[batch.group]
        return group.trainings(batch.settings, batch.seeds, devices=devices)

    def _program(
        self, experiment: Experiment, batch: Batch, state: RunnerState, job: RunningJob
    ) -> Program:
        """Compile the batch's program; another batch of the same shape uses it again."""
        key = (batch.group, len(batch))
        if key not in self.programs:
            job.enter("compile")
            program = experiment.program()
            program.compile(state)
            if experiment.trainer.steps_on_host:  # it holds the environments of its batch
                return program
            self.programs.clear()
            self.programs[key] = program
        return self.programs[key]

    def _start(
        self, experiment: Experiment, batch: Batch, earlier: Sequence[Batch], job: RunningJob
    ) -> tuple[RunnerState, Learning, int]:
        """Read the batch's checkpoint; without one, initialize, or continue the stage before."""
        checkpoints = Checkpoints(self.ledger.checkpoints(batch.name))
        if checkpoints.numbers():
            try:
                empty = Learning.empty(len(batch), experiment.num_updates)
                like = {"state": experiment.shapes, **empty.packed()}
                done, saved = checkpoints.restore(like, previous=True)
                return saved["state"], Learning.unpacked(experiment.num_updates, saved), done
            except DamagedError as error:
                job.say(f"{error} This batch starts again.")
                shutil.rmtree(checkpoints.folder)
        if batch.start == 0:
            return experiment.start(), Learning.empty(len(batch), experiment.num_updates), 0
        return (*self._continued(batch, earlier), batch.start)

    def _continued(self, batch: Batch, earlier: Sequence[Batch]) -> tuple[RunnerState, Learning]:
        """Collect the states of trainings that survived the stage before."""
        place = by_pair(earlier)
        states, sums, rows = [], [], []
        for source in earlier:
            wanted = [pair for pair in batch.pairs if place[pair][0] is source]
            if not wanted:
                continue
            taken = jnp.asarray([place[pair][1] for pair in wanted])
            folder = self.ledger.results(source.name)
            state = checkpoint.restore(folder / STATE, self._experiment(source).shapes)
            states.append(jax.tree.map(lambda leaf, t=taken: leaf[t], state))
            arrays = load_file(folder / ARRAYS)
            sums.append({name: arrays[name][np.asarray(taken)] for name in SUMS})
            rows += wanted
        order = jnp.asarray([rows.index(pair) for pair in batch.pairs])
        state = jax.tree.map(lambda *parts: jnp.concatenate(parts)[order], *states)
        joined = {
            name: np.concatenate([chunk_sums[name] for chunk_sums in sums])[np.asarray(order)]
            for name in SUMS
        }
        return state, Learning(self.plan.groups[batch.group].num_updates, **joined)

    def _evaluate(
        self, experiment: Experiment, batch: Batch, state: RunnerState
    ) -> dict[str, np.ndarray]:
        """Play greedy episodes, with the keys of `triglot train` in each setting."""
        options = self.plan.groups[batch.group].options
        keys = evaluation_keys(jax.random.key(options.seed), options.num_seeds)
        keys = keys[jnp.asarray(batch.seeds)]
        returns = experiment.greedy_returns(state, options.eval_episodes, keys)
        named = zip((FINAL, UNSEEN), returns, strict=False)
        return {name: returns.astype(np.float64) for name, returns in named}


def has_checkpoint(ledger: Ledger, name: str) -> bool:
    """Whether a batch that is not done has a checkpoint."""
    return bool(Checkpoints(ledger.checkpoints(name)).numbers())


def finite_parameters(state: RunnerState) -> np.ndarray:
    """Whether all parameters of each training are finite, bool `[S]`."""
    leaves = jax.tree.leaves(state.agent, is_leaf=lambda node: isinstance(node, LearnerState))
    params = [leaf.variables.params for leaf in leaves if isinstance(leaf, LearnerState)]
    finite = np.ones(state.num_updates.shape[0], bool)
    for array in jax.tree.leaves(params):
        if jnp.issubdtype(array.dtype, jnp.inexact):
            finite &= np.asarray(jnp.isfinite(array).reshape(len(finite), -1).all(axis=1))
    return finite
