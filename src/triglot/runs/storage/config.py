"""`config.json`: the options of a run as JSON fields, under a schema version."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import TriglotError, masked
from ...core.folders import require_plain
from ...core.records import JSON, JSONDict, Values
from ...shared.machine.files import (
    ANY,
    COUNT,
    POSITIVE,
    TABLE,
    TEXT,
    DamagedRecord,
    check_fields,
    list_of,
    optional,
    read_record,
    table_of,
    visible_files,
    write_json,
)
from ..options import LEFT_OUT, TrainOptions
from ..registry.algorithms import find_algorithm
from ..registry.overrides import fields_as_text, from_overrides
from .trust import CONFIG, require_trust

if TYPE_CHECKING:
    from ...core.agent import Agent
    from ...core.host_environment import AnyEnvironment
    from ...core.types import AnyConfig

SCHEMA = 2
IN_PYTHON = "triglot.train(...)"  # in place of the command line
NAMES = {"metrics.jsonl", "checkpoints", "progress.json", "summary.json"}  # what makes it a run's
PYTHON = "python"  # of a training from Python, see `storage.python`
CHANGES = "changes"  # of a resumed run, see `training.resume.changing`
CHANGE_FIELDS = {"num_updates": COUNT, "option": TEXT, "from": ANY, "to": ANY}
# What commands read besides the options, which are checked when they are built.
FIELDS = {
    **{field.name: ANY for field in fields(TrainOptions) if field.name not in LEFT_OUT},
    **dict.fromkeys(("algorithm", "env", "backend"), TEXT),
    **dict.fromkeys(("num_seeds", "num_updates", "steps_per_update", "num_steps"), POSITIVE),
    **dict.fromkeys(("config", "hyper"), TABLE),
    "network": list_of(TEXT),
    CHANGES: optional(list_of(table_of("a change", CHANGE_FIELDS))),
    PYTHON: optional(TABLE),
}


def write_config(
    folder: Path,
    options: TrainOptions,
    arguments: Sequence[str],
    facts: JSON,
) -> JSONDict:
    """Write the options of a run.

    Args:
      folder: the run's.
      options: what was chosen, with the algorithm's complete `Config` and `Hyperparams`.
      arguments: the command line, which is for people and is not read back; none in Python.
      facts: what else is worth knowing about the run, such as versions.

    Returns:
      The contents of the file.
    """
    chosen = {n: value for n, value in fields_as_text(options).items() if n not in LEFT_OUT}
    command = masked(shlex.join(["triglot", *arguments])) if arguments else IN_PYTHON
    content = {"schema": SCHEMA, "command": command, **chosen, **facts}
    write_json(folder / CONFIG, content)
    return content


def read_config(folder: Path) -> JSONDict:
    """Read `config.json`.

    Raises:
      DamagedRecord: if the folder is a run directory, and a field is missing or of another type.
      NotPlain: if the folder holds a link or a special file.
      TriglotError: if the folder is not a run directory, or its schema is unknown.
    """
    path, problem = folder / CONFIG, f"it has no valid {CONFIG}."
    if folder.is_file():
        raise TriglotError(f"{folder} is a file: give the folder of a run, such as runs/first.")
    require_plain(folder)
    try:
        config = read_record(path, {})
    except TriglotError as error:
        if folder.is_dir() and not NAMES.isdisjoint(visible_files(folder)):
            raise
        config, problem = {}, str(error)
    if config is None and folder.is_dir() and not visible_files(folder):
        raise TriglotError(
            f"{folder} is empty: a training there was stopped before it began. Start it again with "
            f"`triglot train ... --out {folder}`."
        )
    if config is None or {"schema", "command"}.isdisjoint(config):
        if config is not None and not NAMES.isdisjoint(visible_files(folder)):
            raise DamagedRecord(f"{path} is damaged: it holds no options of a run.")
        raise TriglotError(
            f"{folder} is not a triglot run directory: {problem} Give a folder written by "
            "`triglot train`."
        )
    schema = config.get("schema", 0)
    if schema != SCHEMA:
        versions = config.get("versions")
        version = versions.get("triglot") if isinstance(versions, dict) else None
        writer = f"triglot {version}, which" if isinstance(version, str) else "the version that"
        raise TriglotError(
            f"{path} has schema {schema}, and this version of triglot reads schema "
            f"{SCHEMA}: use {writer} wrote it."
        )
    check_fields(path, config, FIELDS)
    return config


def options_of_run(
    folder: Path,
    *,
    trust: bool = False,
    advice: str = "add --trust",
    agent: "Agent | None" = None,
    env: "AnyEnvironment | None" = None,
) -> TrainOptions:
    """Build the options with which a run was started.

    Args:
      folder: the run directory.
      trust: whether to import custom code that the run names, although this user did not begin it.
      advice: what to do to run it nevertheless, for the message.
      agent, env: in place of those that the run names, which are then not imported.

    Raises:
      TriglotError: if the folder is not a run directory, its schema is unknown, it names code that
        is not trusted, or a field does not fit the algorithm.
    """
    config = read_config(folder)
    names = [field.name for field in fields(TrainOptions) if field.name not in LEFT_OUT]
    chosen = {name: config[name] for name in names}
    named = from_overrides(TrainOptions, chosen)
    parts = {"agent": agent, "env": env}
    _check_named(
        folder, config.get(PYTHON, {}), [n for n, part in parts.items() if part is not None]
    )
    imported = (
        named if agent is None else replace(named, algorithm="ppo", network=(), optimizer=None)
    )
    imported = imported if env is None else replace(imported, env="probe:two-step")
    require_trust(folder, imported, trust=trust, advice=advice)
    algorithm = find_algorithm(named.algorithm) if agent is None else agent
    chosen["config"] = from_overrides(algorithm.Config, config["config"])
    chosen["hyper"] = from_overrides(algorithm.Hyperparams, config["hyper"])
    if agent is not None:
        _check_configuration(folder, agent, chosen["config"])
    return from_overrides(TrainOptions, chosen)


def _check_named(folder: Path, facts: JSON, named: Collection[str]) -> None:
    """Refuse a run whose components have no name, unless they are given.

    Args:
      folder: the run directory.
      facts: of its `config.json`.
      named: the arguments that are given, `agent` and `env`.

    Raises:
      TriglotError: naming the components and the call that takes them.
    """
    unnamed = facts.get("unnamed", ())
    needed = {"env" if name == "env" else "agent" for name in unnamed}
    if needed <= {*named}:
        return
    arguments = ", ".join(f"{name}={name}" for name in sorted(needed))
    raise TriglotError(
        f"{folder} was trained in Python with components that have no name "
        f"({', '.join(unnamed)}): load it there with triglot.load_run({str(folder)!r}, "
        f"{arguments}). A class or function in a file has one, package.module:object."
    )


def _check_configuration(folder: Path, agent: "Agent", config: "AnyConfig") -> None:
    """Refuse an agent of another configuration than that of a run.

    Raises:
      TriglotError: naming the first field that differs.
    """
    was, now = fields_as_text(config), fields_as_text(agent.config)
    for name, value in was.items():
        if now.get(name) != value:
            raise TriglotError(
                f"the agent does not fit {folder}: its {name} is {now.get(name)!r}, and the run's "
                f"is {value!r}. Build it as it was built for the training."
            )


def without_spans(hyper: Values, num_updates: int) -> Values:
    """Leave out the span of each schedule that lasts the whole run.

    Args:
      hyper: numbers, and schedules as text, by name.
      num_updates: of the run.
    """
    whole = f", {num_updates} updates)"
    return {
        name: value.removesuffix(whole) + ")"
        if isinstance(value, str) and value.endswith(whole)
        else value
        for name, value in hyper.items()
    }
