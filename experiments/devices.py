"""Make the devices of a training before JAX starts, which fixes their number."""

import os
from contextlib import suppress

from .options import TrainOptions

COUNT_FLAG = "xla_force_host_platform_device_count"  # which the user may have set instead


def start(options: TrainOptions) -> None:
    """Check the number of devices, and let JAX divide the CPU into as many.

    Other kinds of devices are counted by JAX, and are not changed.

    Raises:
      TriglotError: if the number does not divide the seeds or the environments.
    """
    from ..core.errors import TriglotError
    from ..core.hyper import check_count
    from ..core.loop.sharding import choose_shard

    check_count("devices", options.devices)
    if options.devices == 1:
        if options.shard is not None:
            raise TriglotError(
                f"--shard {options.shard} divides a training among several devices: give their "
                "number, --devices N."
            )
        return
    num_envs = getattr(options.config, "num_envs", None)
    if num_envs is not None:  # an algorithm may have it elsewhere, see `Agent.num_envs`
        seeds = options.num_seeds
        choose_shard(options.devices, options.shard, num_seeds=seeds, num_envs=num_envs)
    if COUNT_FLAG not in os.environ.get("XLA_FLAGS", ""):
        import jax

        # JAX has started already where a notebook or a test calls the command.
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", options.devices)
