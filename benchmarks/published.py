"""Published returns beside triglot's, at the same number of steps, and returns without a peer.

It trains the presets that `TASKS` names, 5 seeds each, and writes `docs/published.md`. A finished
run is read, an interrupted one is continued:

    python -m benchmarks.published --only ppo-hopper

An hour and more for each MuJoCo task on two cores.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from triglot.shared.statistics.returns import interval95_over_seeds

from . import harness

NUM_SEEDS = 5
SHARE = 0.05  # of the updates, the last ones, whose training episodes count
PAGE = """\
# Beside published figures

Small tasks prove little, so most of these tasks have a published return at the same number of
steps; *none* is where we know of no published one. `python -m benchmarks.published`
trains triglot's [presets](guide/settings.md#presets) and writes this page. Intervals of triglot are
at 95 % over {num_seeds} seeds (Student's t). *Training* is the mean return of the episodes of the
last {share:.0%} of the updates, with exploration, as CleanRL reports it; *greedy* is that of 128
episodes after training. The one that is like the published figure is bold.

{table}

## Where the figures come from

{notes}
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task with a published return.

    Attributes:
      algorithm, env: of a preset.
      published: the figure, with its spread, as the source has it; nothing where there is none.
      counts: the return of triglot that is like it, `training` or `greedy`.
      source: who published it, for which environment and seeds, and where.
      differences: between the two.
      words: of the command, which change the preset.
    """

    algorithm: str
    env: str
    published: str
    counts: str
    source: str
    differences: str = ""
    words: tuple[str, ...] = ()


CLEANRL = (
    "CleanRL, `ppo_continuous_action.py` on {}-v4, mean and standard deviation in its "
    "[documentation](https://docs.cleanrl.dev/rl-algorithms/ppo/#experiment-results_4)."
)
CLEANRL_ACROBOT = (
    "CleanRL, `{0}.py` on Gym's Acrobot-v1, mean and standard deviation in its "
    "[documentation](https://docs.cleanrl.dev/rl-algorithms/{0}/#experiment-results_1)."
)
CLEANRL_PPO = {
    "Hopper": "2,382.86 ± 271.74",
    "HalfCheetah": "1,442.64 ± 46.03",
    "Walker2d": "2,287.95 ± 571.78",
}
MUJOCO = (
    "The same setting. Version 5 of the task repairs rewards and observations; triglot squashes "
    "actions by a tanh, CleanRL clips them; triglot bootstraps from the last observation at the "
    "time limit, CleanRL does not."
)
NAVIX = (
    "Navix's own PPO at {} steps, mean and standard deviation of 5 seeds, in [its repository]"
    "(https://github.com/epignatelli/navix/blob/250d46e/baselines/rejax/baselines.md)."
)
NAVIX_TASKS = {
    "ppo-distshift": ("DistShift2", "524,320", ""),
    "ppo-lavagap": (
        "LavaGapS6",
        "1,048,640",
        "Its entropy bonus is 0.01, with which 3 of triglot's 5 seeds failed in a quarter of the "
        "rooms after 524,288 steps; the preset has 0.03.",
    ),
    "ppo-empty-random": (
        "Empty-Random-8x8",
        "524,320",
        "The greedy policy turns forever in some rooms.",
    ),
}
CONTROL = {
    "cartpole-balance": ("CartpoleBalance", "855.47 ± 22.06"),
    "cheetah-run": ("CheetahRun", "432.56 ± 82.54"),
    "walker-walk": ("WalkerWalk", "392.51 ± 56.25"),
}
GAME_2048 = "No figure is known to us. A game that reaches 2048 is worth about 20,000."
NO_VELOCITY = "gymnax:CartPole-v1,observed_entries=0+2"
PLANES = (
    "Navix's has 16 environments, a learning rate of 3e-4, and reads the numbers of objects; "
    "triglot's has 32, 5e-4, more gradient steps, and reads a plane for each kind."
)
TASKS: Mapping[str, Task] = {
    **{
        f"ppo-{name.lower()}": Task(
            algorithm="ppo",
            env=f"gymnasium:{name}-v5",
            published=figure,
            counts="training",
            source=CLEANRL.format(name),
            differences=MUJOCO,
        )
        for name, figure in CLEANRL_PPO.items()
    },
    "td3-halfcheetah": Task(
        algorithm="td3",
        env="gymnasium:HalfCheetah-v5",
        published="5,513.5 ± 361.7",
        counts="greedy",
        source="Fujimoto et al. 2018, HalfCheetah-v1 after 100,000 steps: mean and 95 % interval "
        "of 10 seeds, from the learning curves in [their "
        "repository](https://github.com/sfujim/TD3/tree/master/learning_curves).",
        differences="The same networks, batches and learning rates. Another version of the task.",
    ),
    "c51-acrobot": Task(
        algorithm="c51",
        env="gymnax:Acrobot-v1",
        published="-88.81 ± 8.86",
        counts="training",
        source=CLEANRL_ACROBOT.format("c51"),
        differences="The same number of steps; double Q-learning, 3-step returns and a target that "
        "moves at each step here, ten environments at a time.",
    ),
    "dqn-acrobot": Task(
        algorithm="dqn",
        env="gymnax:Acrobot-v1",
        published="-91.54 ± 7.20",
        counts="training",
        source=CLEANRL_ACROBOT.format("dqn"),
        differences="As in the row above.",
    ),
    "pqn-breakout": Task(
        algorithm="pqn",
        env="gymnax:Breakout-MinAtar",
        published="20.0 (17.1 to 22.9)",
        counts="greedy",
        source="purejaxql, the code of PQN's authors (Gallici et al. 2024), run here with "
        "`python -m benchmarks.peers --row pqn-minatar`, 2 seeds; they publish no figure for "
        "this number of steps.",
        differences="The same setting but for the initializers and the scale of the pixels.",
    ),
    "ppo-breakout": Task(
        algorithm="ppo",
        env="gymnax:Breakout-MinAtar",
        published="28",
        counts="greedy",
        source="gymnax's checkpoint after 10,000,000 steps, in its [README]"
        "(https://github.com/RobertTLange/gymnax#implemented-accelerated-environments), one run.",
        differences="The setting is that of purejaxrl's notebook for MinAtar, with dense layers.",
    ),
    **{
        name: Task(
            algorithm="ppo",
            env=f"navix:Navix-{task}-v0",
            published="1.000 ± 0.000",
            counts="training",
            source=NAVIX.format(steps),
            differences=f"{PLANES} {remark}",
        )
        for name, (task, steps, remark) in NAVIX_TASKS.items()
    },
    "ppo-craftax": Task(
        algorithm="ppo",
        env="craftax:Craftax-Classic-Symbolic-v1",
        published="4.2 ± 1.2",
        counts="training",
        source="Hafner 2021 (https://arxiv.org/abs/2109.06780): PPO on Crafter after "
        "1,000,000 steps, mean and standard deviation of 10 seeds.",
        differences="Craftax-Classic is Crafter again, in JAX; its symbolic observation is easier "
        "than Crafter's pixels. Matthews et al. (2024) show curves of a billion steps.",
    ),
    "ppo-craftax-gru": Task(
        algorithm="ppo",
        env="craftax:Craftax-Classic-Symbolic-v1",
        words=("--cell", "gru", "--cell-size", "256"),
        published="4.2 ± 1.2",
        counts="training",
        source="As in the row above: PPO on Crafter has no memory.",
        differences="The preset's setting with a GRU after the hidden layers. Matthews et al. "
        "(2024) show PPO with a GRU in curves of a billion steps.",
    ),
    **{
        f"ppo-{name}": Task(
            algorithm="ppo",
            env=f"playground:{env}",
            published=f"{figure}, 8 M",
            counts="training",
            source="CleanRL, `ppo_continuous_action.py` on dm_control's task after **8,000,000** "
            "steps, mean and standard deviation of 10 seeds in its [documentation]"
            "(https://docs.cleanrl.dev/rl-algorithms/ppo/#experiment-results_4).",
            differences="Playground's task is dm_control's again, in JAX. Its report (Zakka et al. "
            "2025, https://arxiv.org/abs/2502.08844) shows curves of 60,000,000 steps without "
            "numbers. The maximum is 1,000.",
        )
        for name, (env, figure) in CONTROL.items()
    },
    "ppo-no-velocity": Task(
        algorithm="ppo",
        env=NO_VELOCITY,
        published="500.0; 401.6",
        counts="greedy",
        source="PPO with an LSTM of SB3-Contrib on CartPoleNoVel-v1, two runs of RL Zoo's setting, "
        "of [Stable-Baselines3](https://huggingface.co/sb3/ppo_lstm-CartPoleNoVel-v1) and of [a "
        "contributor](https://huggingface.co/qgallouedec/ppo_lstm-CartPoleNoVel-v1-1606308196).",
        differences="The same number of steps. RL Zoo normalizes observations and rewards, has 8 "
        "environments, 20 epochs and an LSTM for the values too.",
    ),
    "r2d2-no-velocity": Task(
        algorithm="r2d2",
        env=NO_VELOCITY,
        published="500.0; 401.6",
        counts="greedy",
        source="As in the row above, of PPO: no figure of R2D2 on a task of this size is known to "
        "us.",
    ),
    "ppo-pendulum-no-velocity": Task(
        algorithm="ppo",
        env="gymnax:Pendulum-v1,observed_entries=0+1",
        published="-217.9",
        counts="greedy",
        source="PPO with an LSTM of SB3-Contrib on PendulumNoVel-v1, one run of RL Zoo's setting, "
        "in [its repository](https://huggingface.co/sb3/ppo_lstm-PendulumNoVel-v1).",
        differences="The same number of steps, environments and epochs. RL Zoo normalizes "
        "observations and explores by state-dependent noise.",
    ),
    "muzero-cartpole": Task(
        algorithm="muzero",
        env="gymnax:CartPole-v1,max_steps_in_episode=200",
        published="200.0",
        counts="greedy",
        source="LightZero's Gumbel MuZero on CartPole-v0, one run, in [its repository of models]"
        "(https://huggingface.co/OpenDILabCommunity/CartPole-v0-GumbelMuZero). 200 is the most.",
        differences="LightZero's has 25 simulations per step and a larger network; its number of "
        "steps is not said.",
    ),
    "alphazero-connect-four": Task(
        algorithm="alphazero",
        env="pgx:connect_four,opponent=self",
        published="0.937 [0.906, 0.968]",
        counts="greedy",
        source="pgx's own AlphaZero script, run here with `python -m "
        "benchmarks.peers.pgx_alphazero`, at the same number of moves, of steps of each search, "
        "and of seeds: 512 games of each seed against a random player. 1 is the most.",
        differences="The preset has two convolutions, pgx's script a small residual network. On "
        "that network, by the same command, triglot's has 0.947 [0.921, 0.973], and wins 57 % "
        "[49 %, 65 %] of the games against pgx's of the same seed, a draw being half a win.",
    ),
    "es-inverted-pendulum": Task(
        algorithm="openai_es",
        env="brax:inverted_pendulum",
        published="1,000.0 (1,000 to 1,000)",
        counts="greedy",
        source="brax's own evolution strategy, run here with `python -m benchmarks.peers.brax_es`, "
        "5 seeds of 1,050,000 steps. 1,000 is the most.",
        differences="The same population, network, noise and optimizer. brax counts the steps of a "
        "member's first episode, and steps its environments on to the generation's end; triglot "
        "counts all, and judges a member by all its episodes.",
    ),
    "ppo-brax-halfcheetah": Task(
        algorithm="ppo",
        env="brax:halfcheetah",
        published="",
        counts="greedy",
        source="No figure for this number of steps is known to us.",
    ),
    "ppo-doorkey": Task(
        algorithm="ppo",
        env="xminigrid:MiniGrid-DoorKey-5x5",
        published="",
        counts="greedy",
        source="No figure for this number of steps is known to us; the shortest solutions reach "
        "about 0.97.",
    ),
    "ppo-snake": Task(
        algorithm="ppo",
        env="jumanji:Snake-v1",
        published="",
        counts="training",
        source="No figure is known to us; a full board is 143. The greedy policy walks in circles.",
    ),
    "ppo-game2048": Task(
        algorithm="ppo",
        env="jumanji:Game2048-v1",
        published="",
        counts="greedy",
        source=GAME_2048,
    ),
    "ppo-minatar-breakout": Task(
        algorithm="ppo",
        env="pgx:minatar-breakout",
        published="",
        counts="greedy",
        source="No figure of pgx for this number of steps is known to us.",
    ),
    "ppo-2048": Task(
        algorithm="ppo",
        env="pgx:2048",
        published="",
        counts="greedy",
        source=GAME_2048,
    ),
}


def train(run: Path, *words: str) -> None:
    """Train with the command's words, or continue an interrupted run."""
    given = ["resume", str(run)]
    if not (run / "config.json").exists():
        given = ["train", *words, "--out", str(run)]
    print(f"{run.name}: triglot {' '.join(given)}", flush=True)
    subprocess.run([sys.executable, "-m", "triglot", *given], check=True)


def finished(run: Path) -> bool:
    """Check whether a run has ended with an evaluation."""
    path = run / "summary.json"
    return path.exists() and bool(json.loads(path.read_text())["evaluation"])


def returns_of(run: Path) -> dict[str, Any]:
    """Read the returns of a finished run: greedy ones, and of the last training episodes."""
    summary = json.loads((run / "summary.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = lines[-max(1, round(SHARE * len(lines))) :]
    means, counts = (
        np.array([line[name] for line in last], float)  # null where no episode ended
        for name in ("episode_return", "num_episodes")
    )
    weights = np.where(np.isnan(means), 0.0, counts)
    training = (np.nan_to_num(means) * weights).sum(axis=0) / weights.sum(axis=0)
    config = json.loads((run / "config.json").read_text())
    return {
        "num_steps": summary["num_steps"],
        "greedy": summary["evaluation"]["return_per_seed"],
        "training": training.tolist(),
        "seconds": round(summary["seconds"]["train"]),
        "versions": config["versions"],
    }


def shown(values: list[float]) -> str:
    """Write a mean over seeds with its interval."""
    low, high = interval95_over_seeds(values) or (min(values), max(values))
    size = abs(np.mean(values))
    digits = 0 if size >= 1000 else 1 if size >= 2 else 3
    return f"{np.mean(values):,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def page(measured: Mapping[str, Any]) -> str:
    """Write the page of the docs."""
    rows, notes = [], []
    for name, task in TASKS.items():
        if name not in measured:
            continue
        one = measured[name]
        published = one.get("published") or task.published or "none"
        marked = {
            kind: f"**{shown(one[kind])}**" if kind == task.counts else shown(one[kind])
            for kind in ("training", "greedy")
        }
        given = " ".join(("triglot train", task.algorithm, task.env, *task.words))
        command = f"`{given} --num-seeds {NUM_SEEDS}`"
        rows.append([command, f"{one['num_steps']:,}", published, *marked.values()])
        called = f"{task.algorithm}, {' '.join((task.env, *task.words))}"
        note = f"- **{called}.** {task.source} {task.differences}"
        notes.append(note.rstrip())
    header = ["command", "env steps", "published", "triglot, training", "triglot, greedy"]
    return PAGE.format(
        table=harness.table(header, rows),
        notes="\n".join(notes),
        num_seeds=NUM_SEEDS,
        share=SHARE,
    )


def main(
    only: tuple[str, ...] = (),
    runs: Path = Path("runs/published"),
    out: Path = Path("docs/published.json"),
    page_path: Path = Path("docs/published.md"),
) -> None:
    """Train the tasks, and write what they reached.

    Args:
      only: names of tasks; all by default.
      runs: the folder of their runs.
      out: the JSON file of what was measured; tasks that are not run keep their entries.
      page_path: the page, in Markdown.
    """
    if unknown := sorted(set(only) - TASKS.keys()):
        raise SystemExit(f"no task {unknown[0]}; choose from {', '.join(TASKS)}.")
    measured = json.loads(out.read_text()) if out.exists() else {}
    for name in only or TASKS:
        if not finished(runs / name):
            task = TASKS[name]
            seeds = ("--num-seeds", str(NUM_SEEDS))
            train(runs / name, task.algorithm, task.env, *task.words, *seeds)
        if finished(runs / name):  # not after Ctrl-C
            measured[name] = {**measured.get(name, {}), **returns_of(runs / name)}
            harness.write_json(out, measured)
    page_path.write_text(page(measured))
    print(f"{len(measured)} of {len(TASKS)} tasks: {page_path}")


if __name__ == "__main__":
    tyro.cli(main)
