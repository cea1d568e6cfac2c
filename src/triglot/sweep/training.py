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

from ..core.learner import LearnerState
from ..core.loop import checkpoint
from ..core.loop.checkpoint import Checkpoints
from ..core.loop.chunks import run_chunks
from ..core.loop.sharding import gathered
from ..core.loop.state import RunnerState
from ..core.loop.trainer import Program, TrainerLike, init_seeds
from ..core.manifest import DamagedError
from ..core.trainers import divide_seeds, greedy_returns
from ..runs.jobs.job import RunningJob
from ..runs.jobs.ledger import Ledger
from ..runs.train import CHUNK_SECONDS
from ..shared.machine.interrupt import Signalled
from .batches import Batch, by_pair
from .learning import SUMS, Learning
from .plan import Group, SweepPlan

ARRAYS = "arrays.safetensors"
FINAL, UNSEEN = "final", "final_unseen"  # greedy returns, on levels held out if there are levels
STATE = "state"  # of trainings that successive halving may continue
CHECKPOINTS = "checkpoints"


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
        group = self.plan.groups[batch.group]
        job.enter("initialize")
        state, learning, done = self._start(group, batch, earlier, job)
        job.total = batch.stop - batch.start
        job.advance(done - batch.start)
        with closing(self._program(batch, state, job)) as program:
            job.saves = True
            job.enter("train")
            saved = time.perf_counter()
            chunks = run_chunks(
                program,
                state,
                batch.stop,
                group.trainer.chunk_size,
                done=done,
                target_seconds=CHUNK_SECONDS,
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
                    self._save(batch, state, learning, done, job)
                    saved = time.perf_counter()
        if job.interrupt.number is not None:
            self._save(batch, state, learning, done, job)
            raise Signalled(job.interrupt.number)
        job.saves = False
        self._finish(group, batch, state, learning, job)

    def _program(self, batch: Batch, state: RunnerState, job: RunningJob) -> Program:
        """Compile the batch's program; another batch of the same shape uses it again."""
        key, trainer = (batch.group, len(batch)), self._trainer(batch)
        if key not in self.programs:
            job.enter("compile")
            program = trainer.program()
            program.compile(state)
            if trainer.steps_on_host:  # it holds the environments of its batch
                return program
            self.programs.clear()
            self.programs[key] = program
        return self.programs[key]

    def _trainer(self, batch: Batch) -> TrainerLike:
        """Divide the trainings of a batch among devices."""
        trainer = self.plan.groups[batch.group].trainer
        return divide_seeds(trainer, len(batch), self.plan.options.devices or 1)

    def _start(
        self, group: Group, batch: Batch, earlier: Sequence[Batch], job: RunningJob
    ) -> tuple[RunnerState, Learning, int]:
        """Read the batch's checkpoint; without one, initialize, or continue the stage before."""
        checkpoints = Checkpoints(self.ledger.unfinished(batch.name) / CHECKPOINTS)
        if checkpoints.numbers():
            try:
                empty = Learning.empty(len(batch), group.num_updates)
                like = {"state": _state_like(group, batch), **empty.packed()}
                done, saved = checkpoints.restore(like, previous=True)
                return saved["state"], Learning.unpacked(group.num_updates, saved), done
            except DamagedError as error:
                job.say(f"{error} This batch starts again.")
                shutil.rmtree(checkpoints.folder)
        if batch.start == 0:
            state = init_seeds(group.trainer, group.keys(batch.seeds), group.hyper(batch.settings))
            return state, Learning.empty(len(batch), group.num_updates), 0
        return (*self._continued(group, batch, earlier), batch.start)

    def _continued(
        self, group: Group, batch: Batch, earlier: Sequence[Batch]
    ) -> tuple[RunnerState, Learning]:
        """Collect the states of trainings that survived the stage before."""
        place = by_pair(earlier)
        sources = list(dict.fromkeys(place[pair][0].name for pair in batch.pairs))
        states, sums, rows = [], [], []
        for source in earlier:
            if source.name not in sources:
                continue
            wanted = [pair for pair in batch.pairs if place[pair][0] is source]
            taken = jnp.asarray([place[pair][1] for pair in wanted])
            folder = self.ledger.results(source.name)
            state = checkpoint.restore(folder / STATE, _state_like(group, source))
            states.append(jax.tree.map(lambda leaf, t=taken: leaf[t], state))
            arrays = load_file(folder / ARRAYS)
            sums.append({name: arrays[name][np.asarray(taken)] for name in SUMS})
            rows += wanted
        order = jnp.asarray([rows.index(pair) for pair in batch.pairs])
        state = jax.tree.map(lambda *parts: jnp.concatenate(parts)[order], *states)
        joined = {
            name: np.concatenate([each[name] for each in sums])[np.asarray(order)] for name in SUMS
        }
        return state, Learning(group.num_updates, **joined)

    def _save(
        self, batch: Batch, state: RunnerState, learning: Learning, done: int, job: RunningJob
    ) -> None:
        job.enter("save")
        checkpoints = Checkpoints(self.ledger.unfinished(batch.name) / CHECKPOINTS)
        checkpoints.save(done, {"state": gathered(state, len(batch)), **learning.packed()})
        job.enter("train")

    def _finish(
        self, group: Group, batch: Batch, state: RunnerState, learning: Learning, job: RunningJob
    ) -> None:
        whole = gathered(state, len(batch))
        arrays = {
            "returns": learning.returns,
            "episodes": learning.episodes,
            "recent": learning.recent(batch.stop),
            "finite": finite_parameters(whole),
        }
        if batch.is_last and self.plan.options.eval_episodes:
            job.enter("evaluate")
            arrays |= self._evaluate(group, batch, state)
        job.enter("save")
        with self.ledger.writing(batch.name) as folder:
            save_file(arrays, folder / ARRAYS)
            if not batch.is_last:
                checkpoint.save(folder / STATE, whole)

    def _evaluate(self, group: Group, batch: Batch, state: RunnerState) -> dict[str, np.ndarray]:
        """Play greedy episodes, with the keys of `triglot train` in each setting."""
        options = group.options
        # The keys of the seeds are folded from the numbers below num_seeds.
        key = jax.random.fold_in(jax.random.key(options.seed), options.num_seeds)
        keys = jax.random.split(key, options.num_seeds)[jnp.asarray(batch.seeds)]
        found = greedy_returns(self._trainer(batch), state.agent, keys, options.eval_episodes)
        named = zip((FINAL, UNSEEN), found, strict=False)
        return {name: returns.astype(np.float64) for name, returns in named}


def has_checkpoint(ledger: Ledger, name: str) -> bool:
    """Whether a batch that is not done has a checkpoint."""
    return bool(Checkpoints(ledger.unfinished(name) / CHECKPOINTS).numbers())


def finite_parameters(state: RunnerState) -> np.ndarray:
    """Whether all parameters of each training are finite, bool `[S]`."""
    leaves = jax.tree.leaves(state.agent, is_leaf=lambda node: isinstance(node, LearnerState))
    params = [leaf.variables.params for leaf in leaves if isinstance(leaf, LearnerState)]
    finite = np.ones(state.num_updates.shape[0], bool)
    for array in jax.tree.leaves(params):
        if jnp.issubdtype(array.dtype, jnp.inexact):
            finite &= np.asarray(jnp.isfinite(array).reshape(len(finite), -1).all(axis=1))
    return finite


def _state_like(group: Group, batch: Batch) -> RunnerState:
    keys, hyper = group.keys(batch.seeds), group.hyper(batch.settings)
    return init_seeds.eval_shape(group.trainer, keys, hyper)
