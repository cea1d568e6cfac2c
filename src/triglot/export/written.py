"""`triglot export`: write the weights or the policy of one seed in a form that others read."""

import re

from ..backends import libraries
from ..core.errors import TriglotError, counted, unknown
from ..runs.acting import Acting
from ..runs.load import Run, run_of, safetensors_files
from ..runs.options import TrainOptions
from ..runs.population import chosen_seed_index
from ..shared.machine.files import check_free, write_files
from ..shared.machine.version import versions
from ..shared.terminal.progress import phase
from ..shared.terminal.wrapping import wrapped
from .models import model_files, without_act
from .onnx import check_installed, onnx_files
from .options import ExportOptions
from .stablehlo import stablehlo_files

BUILT_IN = [library.format for library in libraries.LIBRARIES.values() if library.format]
FORMATS = ("safetensors", *BUILT_IN, "stablehlo", "onnx")


def export(options: ExportOptions, run_options: TrainOptions) -> int:
    """Run `triglot export`.

    Args:
      options: what was chosen.
      run_options: the options with which the run was started.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if the format is unknown or cannot hold this run, the folder is not empty, or
        the checkpoint is missing or damaged.
    """
    index = chosen_seed_index(options.run, options.seed_index, run_options.num_seeds)
    check_format(options.format, str(options.run), custom=bool(run_options.network))
    check_free(options.out)
    with phase("building"):
        run = run_of(
            options.run,
            previous=options.previous,
            trust=options.trust,
            checkpoint=options.checkpoint,
        )
    with phase("exporting"):
        title = _title(run_options, run, index)
        files = files_of(run, run_options, options.format, index)
    write_files(options.out, files)
    print(f"{title}\nin {options.out}: {', '.join(sorted(files))}")
    if options.format in libraries.formats() and (note := without_act(run)):
        print(wrapped(note))
    return 0


def check_format(name: str, run: str, *, custom: bool) -> None:
    """Refuse a format that does not exist, or cannot hold a run.

    Args:
      name: of the format.
      run: how messages call the run.
      custom: whether its networks are custom ones.

    Raises:
      TriglotError: with the formats that can, or the package that is missing.
    """
    plain = libraries.formats()
    if name not in plain and name not in FORMATS:
        raise unknown("format", name, {*FORMATS, *plain})
    if name in plain and custom:
        raise TriglotError(
            f"{run} has custom networks, and a plain {name} model is written for built-in ones "
            "only: use --format stablehlo or safetensors."
        )
    if name == "onnx":
        check_installed()


def files_of(run: Run, run_options: TrainOptions, name: str, seed_index: int) -> dict[str, bytes]:
    """Encode one seed of a run.

    Args:
      run: the trained agents.
      run_options: of the training, for the titles of the files.
      name: a format that `check_format` accepts.
      seed_index: which seed, counted from 0.

    Returns:
      The contents of each file, by name.
    """
    title = _title(run_options, run, seed_index)
    library = libraries.formats().get(name)
    if library is not None:
        return model_files(run, seed_index, library, f"Weights of {title}")
    if name == "safetensors":
        facts = {
            "title": title,
            "algorithm": run_options.algorithm,
            "environment": run_options.env,
            "backend": run_options.backend,
            "seed_index": str(seed_index),
            "num_updates": str(run.num_updates),
            "triglot": str(versions()["triglot"]),
        }
        return safetensors_files(run, seed_index, facts)
    write = stablehlo_files if name == "stablehlo" else onnx_files
    return write(Acting.of(run, seed_index), f"Greedy policy of {title}")


def _title(run_options: TrainOptions, run: Run, index: int) -> str:
    # The names come from a run folder, and the title goes into Python source.
    algorithm, env = (
        re.sub(r"[^\w:.,=+-]", "?", name) for name in (run_options.algorithm, run_options.env)
    )
    return (
        f"{algorithm} on {env} after {counted(run.num_updates, 'update')}, seed {index} of "
        f"{run_options.num_seeds}."
    )
