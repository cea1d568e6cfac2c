"""`triglot export`: write the weights or the policy of one seed in a form that others read."""

import re

from ..backends import libraries
from ..core.errors import TriglotError, unknown
from ..runs.acting import Acting
from ..runs.load import Trained, run_of, safetensors_files
from ..runs.options import TrainOptions
from ..runs.population import chosen_seed_index
from ..shared.machine.files import check_free, write_files
from ..shared.machine.version import versions
from ..shared.terminal.progress import phase
from .models import model_files
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
    plain = libraries.formats()
    library = plain.get(options.format)
    if library is None and options.format not in FORMATS:
        raise unknown("format", options.format, {*FORMATS, *plain})
    if library is not None and run_options.network:
        raise TriglotError(
            f"{options.run} has custom networks, and a plain {options.format} model is written for "
            "built-in ones only: use --format stablehlo or safetensors."
        )
    if options.format == "onnx":
        check_installed()
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
        files = _files(options, run_options, run, index, title, library)
    write_files(options.out, files)
    print(f"{title}\nin {options.out}: {', '.join(sorted(files))}")
    return 0


def _files(
    options: ExportOptions,
    run_options: TrainOptions,
    run: Trained,
    index: int,
    title: str,
    library: libraries.Library | None,
) -> dict[str, bytes]:
    if library is not None:
        return model_files(run, index, library, f"Weights of {title}")
    if options.format == "safetensors":
        facts = {
            "title": title,
            "algorithm": run_options.algorithm,
            "environment": run_options.env,
            "backend": run_options.backend,
            "seed_index": str(index),
            "num_updates": str(run.num_updates),
            "triglot": str(versions()["triglot"]),
        }
        return safetensors_files(run, index, facts)
    write = stablehlo_files if options.format == "stablehlo" else onnx_files
    return write(Acting.of(run, index), f"Greedy policy of {title}")


def _title(run_options: TrainOptions, run: Trained, index: int) -> str:
    # The names come from a run folder, and the title goes into Python source.
    algorithm, env = (
        re.sub(r"[^\w:.,=+-]", "?", name) for name in (run_options.algorithm, run_options.env)
    )
    return (
        f"{algorithm} on {env} after {run.num_updates:,} updates, seed {index} of "
        f"{run_options.num_seeds}."
    )
