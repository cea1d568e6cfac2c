"""Groups of options in the help of the commands that have many."""

from dataclasses import fields
from typing import NamedTuple

MANY = 10  # options of a command; fewer are one group


class Group(NamedTuple):
    """What the help says of a group, and the options in it."""

    description: str
    names: tuple[str, ...]


# By the first word of the group's title.
GROUPS = {
    "network": Group(
        "The networks, and the library that they are written in.",
        ("backend", "backends", "arithmetic", "network", "mapping"),
    ),
    "evaluation": Group(
        "How the agent is evaluated, and when the training stops.",
        ("eval_episodes", "eval_every", "stop_at", "margin"),
    ),
    "output": Group(
        "What is written, where and how often.",
        ("out", "checkpoint_seconds", "metrics_every", "log", "print_config", "open"),
    ),
    "start": Group(
        "Start from the weights of another run.",
        ("init_from", "init_names", "init_seed_index"),
    ),
    "machine": Group(
        "What is used of this machine, or of a cluster.",
        ("devices", "shard", "executor", "jobs", "address", "compilation_cache",
         "no_compilation_cache"),
    ),
    "debugging": Group("Look into the training.", ("debug", "profile")),
}  # fmt: skip


def groups_of(options: type) -> dict[str, list[str]]:
    """List the options of a command that are in groups: their names by the group's.

    Args:
      options: a class of `cli.options`.
    """
    names = [one.name for one in fields(options)]
    if len(names) <= MANY:
        return {}
    found = {
        title: [name for name in names if name in group.names] for title, group in GROUPS.items()
    }
    return {title: inside for title, inside in found.items() if inside}
