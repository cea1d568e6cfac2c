"""The devices that a command divides a training among: made before JAX starts, chosen afterwards.

JAX computes on about one core of a CPU, so the command line makes a device for each core that the
process may use, as far as there are seeds for them. Python code has one, unless it makes more.
"""

import os
import re
import sys
from contextlib import suppress

from .options import TrainOptions

# What the user may have set instead: JAX's variable, and the flag before it.
COUNT = "JAX_NUM_CPU_DEVICES"
COUNT_FLAG = "xla_force_host_platform_device_count"
KINDS = "JAX_PLATFORMS"  # the user's choice


def check_count_variable() -> None:
    """Check the number of devices that the user set for JAX, which fails late without it.

    Raises:
      TriglotError: if it is not a positive number.
    """
    from ..core.errors import TriglotError, shown

    count = os.environ.get(COUNT, "1")
    if not re.fullmatch("[1-9][0-9]*", count):
        raise TriglotError(
            f"{COUNT}, into how many devices JAX divides the CPU, must be at least 1, got "
            f"{shown(count)}: correct it, or unset it."
        )


def start(options: TrainOptions) -> None:
    """Check the number of devices of a training, and let JAX divide the CPU into as many.

    Raises:
      TriglotError: if there are fewer seeds, and the number does not divide the environments.
    """
    from ..core.errors import TriglotError
    from ..core.loop.sharding import choose_shard

    devices = options.devices
    if devices in (None, 1) and options.shard is not None:
        raise TriglotError(
            f"--shard {options.shard} divides a training among several devices: give their "
            "number, --devices N."
        )
    num_envs = getattr(options.config, "num_envs", None)
    # An algorithm may have the number of environments elsewhere, see `Agent.num_envs`.
    if devices is not None and devices > 1 and num_envs is not None:
        choose_shard(devices, options.shard, num_seeds=options.num_seeds, num_envs=num_envs)
    start_for(devices, options.num_seeds if devices is None else None)


def start_for(devices: int | None, num_seeds: int | None = None) -> None:
    """Let JAX divide the CPU into devices; other kinds of devices are not changed.

    Args:
      devices: their number; None for one per core, as far as there are seeds for them.
      num_seeds: how many are divided among the devices; None if that is not known yet, or the
        environments are divided.

    Raises:
      TriglotError: if the number is not positive, or larger than that of the seeds.
    """
    from ..core.hyper import check_count
    from ..core.loop.sharding import choose_shard, fewest_devices
    from ..shared.machine.cores import free_cores

    if devices is not None:
        check_count("devices", devices)
        if num_seeds is not None:  # before they are made, which takes seconds for thousands
            choose_shard(devices, "seeds", num_seeds=max(1, num_seeds), num_envs=1)
        make(devices)
    elif COUNT not in os.environ:
        cores = len(free_cores())
        # Another number of seeds than a positive one is refused later.
        make(cores if num_seeds is None else fewest_devices(max(1, num_seeds), cores))


def make(number: int) -> None:
    """Let JAX divide the CPU, unless a flag of XLA does or JAX has started already."""
    if number > 1 and COUNT_FLAG not in os.environ.get("XLA_FLAGS", ""):
        import jax

        with suppress(RuntimeError):  # a notebook or a test called the command
            jax.config.update("jax_num_cpu_devices", number)


def missing_devices() -> str | None:
    """Say that JAX lacks the devices that the user chose, if it was imported; None if it has them.

    A suite or a network may have failed for it.
    """
    if "jax" not in sys.modules or KINDS not in os.environ:
        return None
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError):  # jax 0.10 asserts that a GPU's plugin is there
        return (
            f"JAX cannot start on {KINDS}={os.environ[KINDS]}: install JAX for these devices, such "
            f"as `pip install 'jax[cuda12]'` for NVIDIA GPUs, or unset {KINDS}."
        )
    return None


def most_devices() -> int:
    """Return among how many devices seeds are divided by default: those of a CPU, or one."""
    import jax

    return jax.device_count() if jax.default_backend() == "cpu" else 1
