"""A synthetic result of `compare`, with every part that a report may show."""

import hashlib
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from triglot.backends.libraries import title
from triglot.compare.rungs import rung_named

BACKENDS = ("haiku", "linen", "nnx", "equinox")
LEAVES = {"nnx": "critic/head/value/bias", "equinox": "actor/torso/0/kernel"}
# How far each library's numbers lie from the first one's; equal sizes are equal numbers.
SIZES = {"haiku": 0.0, "linen": 0.0, "nnx": 1.0, "equinox": 30.0}
START = {"import": 0.6, "construct": 0.05, "init": 0.4, "trace": 0.9, "lower": 0.5, "compile": 4.2}
STEADY = {
    "first_step": 300.0, "steps_per_second": 42_000.0, "rollout": 11.0, "update": 19.0,
    "evaluation": 350.0, "dispatch": 24.0, "memory": 910.0,
}  # fmt: skip
RUNGS = ("defaults", "initializers", "weights", "leaf_order", "canonical")
STEPS_PER_UPDATE = 512

SOURCE = '''"""A policy and a value function."""

import {name} as library


class Network(library.Module):
    """Two hidden layers of 64 units."""

    def __call__(self, observation):
        hidden = observation
        for size in (64, 64):
            hidden = library.tanh(library.Linear(size)(hidden))
        return {{"logits": library.Linear(2)(hidden), "value": library.Linear(1)(hidden)}}
'''


def sample(
    *,
    identical: bool = False,
    num_seeds: int = 10,
    num_updates: int = 400,
    backends: Sequence[str] = BACKENDS,
    envs: Sequence[str] = ("gymnax:CartPole-v1",),
    level: str | None = None,
    failures: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Build a result as `comparison.json` holds it, schema 2.

    Args:
      identical: all libraries are equal; otherwise those of unequal `SIZES` differ.
      num_seeds: intervals are null below five.
      num_updates: points of the curves, before they are thinned.
      backends: the libraries that finished.
      envs: one environment or several.
      level: the verdict's level; None chooses one.
      failures: what failed.
    """
    rng = np.random.default_rng(0)
    sizes = {name: 0.0 if identical else SIZES.get(name, 3.0) for name in backends}
    steps = STEPS_PER_UPDATE * np.arange(1, num_updates + 1)
    curves = _curves(rng, sizes, num_seeds, num_updates)
    level = level or ("identical" if identical else "different")
    pairs = [_pair(a, b, sizes, num_seeds) for a, b in combinations(backends, 2)]
    result = {
        "schema": 2,
        "command": f"triglot compare ppo {envs[0]} --backends {' '.join(backends)} "
        f"--num-seeds {num_seeds} --seed 0 --total-steps {steps[-1]} --arithmetic native --ladder",
        "algorithm": "ppo",
        "env": envs[0],
        "envs": list(envs[1:]),
        "num_seeds": num_seeds,
        "seed": 0,
        "total_steps": int(steps[-1]),
        "eval_episodes": 16,
        "arithmetic": "native",
        "optimizer": None,
        "config": {"hidden_sizes": [64, 64], "num_envs": 4},
        "hyper": {"learning_rate": 2.5e-4},
        "num_updates": num_updates,
        "steps_per_update": STEPS_PER_UPDATE,
        "env_steps_per_seed": int(steps[-1]),
        "verdict": {"level": level, "sentence": _sentence(level, num_updates)},
        "identity": _identity(sizes),
        "pairs": pairs,
        "divergence": _divergence(pairs, steps),
        "curves": {"env_steps": steps.tolist(), "backends": curves},
        "statistics": _statistics(curves, num_seeds),
        "ladder": [_rung(rung, pairs, backends) for rung in RUNGS],
        "cost": _cost(backends),
        "programs": _programs(backends, sizes),
        "code": {
            name: {
                "path": f"triglot/backends/{name}.py",
                "lines": 14 + len(name),
                "source": SOURCE.format(name=name),
            }
            for name in backends
        },
        "backends": {name: _backend(name, curves[name], sizes) for name in backends},
        "against": {
            "path": "runs/last-month/comparison.json",
            "sentence": "Since the stored comparison, jax went from 0.10.2 to 0.11.2.",
            "changes": [
                {
                    "what": "Equinox, compile time",
                    "before": 4.1,
                    "now": 5.2,
                    "sentence": "Equinox compiles for 27 % longer.",
                }
            ],
        },
        "failures": list(failures),
        "versions": {"jax": "0.11.2", "dm-haiku": "0.0.17", "flax": "0.12.8", "brax": None},
        "device": "cpu",
        "cpu_cores": 8,
        "python": "3.11.7",
        "platform": "Linux-6.1-x86_64",
    }
    if len(envs) > 1:
        result |= _environments(result, envs)
    return result


ENVIRONMENT = (
    "num_updates", "steps_per_update", "env_steps_per_seed", "identity", "pairs", "divergence",
    "curves", "statistics", "backends", "device",
)  # fmt: skip


def _environments(result: dict[str, Any], envs: Sequence[str]) -> dict[str, Any]:
    scores = {
        name: {
            measure: {"value": 1 - 0.1 * index, "low": 0.95 - 0.1 * index, "high": 1.02}
            for measure in ("mean", "iqm")
        }
        for index, name in enumerate(result["backends"])
    }
    scales = {env: [22.1, 490.0] for env in envs[:2]}
    return {
        "environments": {env: {name: result[name] for name in ENVIRONMENT} for env in envs},
        "aggregate": {"scales": scales, "left_out": list(envs[2:]), "backends": scores},
    }


def _sentence(level: str, num_updates: int) -> str:
    return {
        "identical": f"All four learning curves and final parameters are bitwise identical over "
        f"{num_updates} updates.",
        "different": "Equinox differs from the others since update 1: its return is 42 lower (95 % "
        "interval 35 to 49), more than the margin of 24.1. Flax NNX is equivalent to Haiku.",
        "inconclusive": "Three seeds do not tell whether the returns agree; 12 would.",
        "equivalent": "The returns of all four agree within 24.1, 5 % of the return above random.",
    }[level]


def _curves(
    rng: np.random.Generator, sizes: dict[str, float], num_seeds: int, num_updates: int
) -> dict[str, list[list[float | None]]]:
    progress = np.linspace(0, 1, num_updates)
    level = 20 + 470 / (1 + np.exp(-10 * (progress - 0.4 - rng.normal(0, 0.05, (num_seeds, 1)))))
    noise = rng.normal(0, 12, (num_seeds, num_updates))
    other = rng.normal(0, 12, (num_seeds, num_updates))
    curves = {}
    for name, size in sizes.items():
        share = min(size / 30, 1) * np.clip(4 * progress, 0, 1)
        values = level * (1 - 0.08 * share) + noise * (1 - share) + other * share
        values = np.clip(values + 0.001 * size * progress, 0, 500)
        values[:, :2] = np.nan  # no episode has ended yet
        curves[name] = [[None if np.isnan(v) else float(v) for v in seed] for seed in values]
    return curves


def _pair(a: str, b: str, sizes: dict[str, float], num_seeds: int) -> dict[str, Any]:
    apart = abs(sizes[a] - sizes[b])
    equal, leaf = apart == 0, LEAVES.get(b, "actor/torso/0/bias")
    level = "identical" if equal else "different" if apart > 10 else "equivalent"
    half = None if num_seeds < 5 else 0.0 if equal else 7.0
    mean = 1.4 * apart
    operation = {
        "one": {"name": "dot_general", "source": f"{a}/linear.py:42", "scope": "torso/0"},
        "other": {"name": "dot_general", "source": f"{b}/linear.py:77", "scope": "torso/0"},
        "compiled_only": True,
    }
    bounds = (
        {"low": None, "high": None} if half is None else {"low": mean - half, "high": mean + half}
    )
    return {
        "backends": [a, b],
        "level": level,
        "sentence": f"{title(a)} and {title(b)} are {level}.",
        "identical": equal,
        "first_difference": None
        if equal
        else {
            "update": 12 if apart < 10 else 1,
            "step": 6144 if apart < 10 else 512,
            "leaf": leaf,
            "seed": 0,
            "num_differing": 12,
            "operation": operation,
        },
        "max_abs_param_difference": 4.1e-6 * apart**1.5,
        "max_rel_param_difference": 9.0e-5 * apart**1.5,
        "max_abs_output_difference": 2.2e-6 * apart**1.5,
        "return_difference": {"mean": mean, **bounds},
        "area_difference": {"mean": 0.8 * mean, **bounds},
        "margin": 24.1,
        "seeds_needed": None,
        "probability_of_improvement": {"value": 0.5 + apart / 100, "low": 0.4, "high": 0.9},
        "causes": []
        if level != "different"
        else [
            {
                "name": "initializer",
                "where": "torso/0 kernel",
                "evidence": "std x sqrt(fan_in) is 1.00 in Haiku and 0.58 in Equinox",
            }
        ],
    }


def _divergence(pairs: list[dict[str, Any]], steps: np.ndarray) -> dict[str, Any]:
    growth = np.geomspace(1e-3, 1, len(steps))
    each = []
    for pair in pairs:
        first = pair["first_difference"]
        alive = growth * (np.arange(1, len(steps) + 1) >= (first["update"] if first else np.inf))
        returns = [None, *(3 * abs(pair["return_difference"]["mean"]) * alive[1:])]
        each.append(
            {
                "backends": pair["backends"],
                "params_abs": (pair["max_abs_param_difference"] * alive).tolist(),
                "params_rel": (pair["max_rel_param_difference"] * alive).tolist(),
                "outputs_abs": (pair["max_abs_output_difference"] * alive).tolist(),
                "return_abs": returns,
            }
        )
    updates = list(range(1, len(steps) + 1))
    return {"updates": updates, "env_steps": steps.tolist(), "pairs": each}


def _statistics(curves: dict[str, Any], num_seeds: int) -> dict[str, Any]:
    thresholds = np.linspace(0, 500, 21)
    backends, profiles = {}, {}
    for name, seeds in curves.items():
        finals = np.array([seed[-1] for seed in seeds])
        areas = np.array([np.mean([v for v in seed if v is not None]) for seed in seeds])
        backends[name] = {
            "mean": _estimate(finals, num_seeds),
            "iqm": _estimate(
                np.sort(finals)[num_seeds // 4 : num_seeds - num_seeds // 4], num_seeds
            ),
            "area": _estimate(areas, num_seeds),
            "final_returns": finals.tolist(),
        }
        profiles[name] = [float(np.mean(finals >= threshold)) for threshold in thresholds]
    return {
        "backends": backends,
        "profiles": {"thresholds": thresholds.tolist(), "backends": profiles},
        "return_bounds": [0.0, 500.0],
        "random_return": 22.1,
    }


def _estimate(values: np.ndarray, num_seeds: int) -> dict[str, Any]:
    known = num_seeds >= 5
    return {
        "value": float(values.mean()),
        "low": float(values.min()) if known else None,
        "high": float(values.max()) if known else None,
        "count": num_seeds,
    }


def _rung(rung: str, pairs: list[dict[str, Any]], backends: Sequence[str]) -> dict[str, Any]:
    place = RUNGS.index(rung)
    name = rung_named(rung).title
    if rung == "leaf_order":
        return dict.fromkeys(("pairs", "backends", "explained")) | {
            "rung": rung, "title": name, "run": False,
        }  # fmt: skip
    left = 0.0 if rung == "canonical" else 10.0 ** (1 - 2 * place)
    scaled = []
    for pair in pairs:
        mean = left * pair["return_difference"]["mean"]
        scaled.append(
            {
                **{name: value for name, value in pair.items() if name != "causes"},
                "identical": pair["identical"] or left == 0,
                "max_abs_param_difference": left * pair["max_abs_param_difference"],
                "return_difference": {
                    "mean": mean,
                    "low": mean - 7 * left,
                    "high": mean + 7 * left,
                },
            }
        )
    explained = {
        "sentence": "This step removes most of the difference that the rung before left.",
        "share": 1.0 if left == 0 else 0.9,
    }
    return {
        "rung": rung,
        "title": name,
        "run": True,
        "pairs": scaled,
        "backends": {
            name: {
                "final_return": 480 - 6 * left * index,
                "area": 300 - 3 * left * index,
                "steps_per_second": None if rung == "weights" else 41_000 + 900 * index,
            }
            for index, name in enumerate(backends)
        },
        "explained": None if rung == "defaults" else explained,
    }


def _cost(backends: Sequence[str]) -> dict[str, Any]:
    units = {"first_step": "ms", "rollout": "ms", "update": "ms", "evaluation": "µs"}
    units |= {"dispatch": "µs", "memory": "MB", "steps_per_second": "steps/s"}
    medians = START | STEADY
    stages = [
        {
            "name": name,
            "title": name.replace("_", " ").capitalize(),
            "unit": units.get(name, "s"),
            "meaning": f"What {name.replace('_', ' ')} takes, in a process of its own.",
        }
        for name in medians
    ]
    each = {
        backend: {
            name: {
                "median": median * (1 + 0.15 * index),
                "low": 0.94 * median * (1 + 0.15 * index),
                "high": 1.08 * median * (1 + 0.15 * index),
                "count": 5,
            }
            for name, median in medians.items()
        }
        for index, backend in enumerate(backends)
    }
    noise = {"noisy": False, "sentence": "The machine was quiet: load 0.3.", "load": 0.3}
    return {"stages": stages, "backends": each, "noise": {**noise, "spread": 0.02}}


def _programs(backends: Sequence[str], sizes: dict[str, float]) -> dict[str, Any]:
    facts = {
        name: {
            "flops": 1_912_344 + 64 * int(sizes[name]),
            "bytes_accessed": 812_332,
            "fusions": 112 + int(sizes[name]),
            "dots": 22,
            "convolutions": 0,
            "instructions": 2_104 + 3 * int(sizes[name]),
            "sha256": hashlib.sha256(str(sizes[name]).encode()).hexdigest(),
        }
        for name in backends
    }
    pairs = []
    for a, b in combinations(backends, 2):
        same = sizes[a] == sizes[b]
        sentence = (
            "The compiled programs are the same."
            if same
            else "The compiled programs differ in 2 of 2,104 and 2 of 2,194 operations, first at "
            f"dot in {a}/linear.py:42 and dot in {b}/linear.py:77."
        )
        one, other = (
            {
                "name": "dot",
                "source": f"{name}/linear.py:{line}",
                "scope": "dot.12",
                "text": f"f32[64,64] dot(%, %), lhs_contracting_dims={{{axis}}}",
            }
            for name, line, axis in ((a, 42, 1), (b, 77, 0))
        )
        pairs.append(
            {
                "backends": [a, b],
                "identical": same,
                "sentence": sentence,
                "one": None if same else one,
                "other": None if same else other,
                "opcodes": {} if same else {"fusion": [112, 142], "transpose": [3, 1]},
            }
        )
    return {"backends": facts, "pairs": pairs}


def _identity(sizes: dict[str, float]) -> dict[str, Any]:
    groups: dict[float, list[str]] = {}
    for name, size in sizes.items():
        groups.setdefault(size, []).append(name)
    first = next(iter(groups.values()))
    place = {"update": 1, "step": 512, "leaf": "actor/torso/0/kernel", "seed": 0}
    place |= {"num_differing": 12, "backends": [name for name in sizes if name not in first]}
    apart = None if len(groups) == 1 else place
    return {
        "identical": apart is None,
        "first_difference": apart,
        "metrics_identical": apart is None,
        "first_metric_difference": None,
        "groups": list(groups.values()),
        "backends": {
            name: {
                "first_difference": None if name in first else place,
                "first_metric_difference": None,
                "largest_difference": 4.1e-6 * size**1.5,
            }
            for name, size in sizes.items()
        },
    }


def _backend(name: str, curves: list[Any], sizes: dict[str, float]) -> dict[str, Any]:
    finals = [seed[-1] for seed in curves]
    mean = float(np.mean(finals))
    return {
        "final_return_mean": mean,
        "final_return_interval": [mean - 9, mean + 9] if len(finals) >= 5 else None,
        "training_return_mean": mean - 11,
        "steps_per_second": 42_000.0 - 100 * sizes[name],
        "final_returns": finals,
        "num_params": 9_155,
        "params_sha256": hashlib.sha256(str(sizes[name]).encode()).hexdigest(),
        "import_library_seconds": 0.61,
        "trace_seconds": 0.93,
        "compile_seconds": 4.31,
        "dispatch_microseconds": 24.0,
        "peak_memory_bytes": 912_000_000,
    }
