"""`triglot.export.export`: export from Python what `triglot export` exports."""

from pathlib import Path

from ..core.errors import check_path, check_text
from ..runs.load import Run
from ..runs.python import plan_of
from ..runs.result import TrainResult, load_run
from ..shared.machine.files import check_free, write_files
from .written import check_format, files_of


def export(
    run: TrainResult | str | Path, out: str | Path, *, format: str, seed_index: int = 0
) -> list[Path]:
    """Write the weights or the policy of one seed, for use without triglot.

    Args:
      run: the result of a training, or a run directory.
      out: a new folder.
      format: `safetensors`, all weights by canonical name; `haiku`, `flax`, `nnx`, `equinox`,
        `keras` or `torch`, a plain model of that library; `stablehlo`, the greedy policy for JAX;
        `onnx`, the greedy policy for onnxruntime.
      seed_index: which seed, counted from 0.

    Returns:
      The files.

    Raises:
      TriglotError: if the format is unknown or cannot hold this run, there is no such seed, or the
        folder is not empty.
    """
    check_path("out", out)
    check_text("format", format)
    result = run if isinstance(run, TrainResult) else load_run(run)
    folder = Path(out)
    plan = plan_of(result.experiment, folder)
    custom = bool(plan.options.network) or "network" in plan.python.get("unnamed", ())
    check_format(format, "the training", custom=custom)
    check_free(folder)
    result.agent_state(seed_index)  # refuses a seed that does not exist
    trained = Run.of(result.experiment, result.runner_state)
    files = files_of(trained, plan.options, format, seed_index)
    write_files(folder, files)
    return [folder / name for name in sorted(files)]
