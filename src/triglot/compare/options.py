"""The options of `triglot compare`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..runs.jobs.options import JobOptions
from ..runs.registry.arg import Arg, Count, Devices, Name
from ..runs.registry.options import SharedOptions


@dataclass(frozen=True, kw_only=True)
class CompareOptions(SharedOptions, JobOptions):
    """Options of `triglot compare`; `compare` and its workers take them too.

    Attributes:
      num_seeds: independent seeds, vmapped; at least 5 to judge returns.
      devices: maximum number of devices to divide the seeds among, the same for all libraries.
      envs: additional environments; scores are normalized, and aggregated over all environments.
      backends: the network libraries, at least two; all start from the first one's initial weights.
      arithmetic: native, the operations of the library; leaf_order, gradients are summed in the
        same order in all libraries; canonical, all libraries are bitwise identical.
      ladder: train once on each rung, from each library's defaults to canonical arithmetic, to
        measure how much of the difference each cause explains.
      network: custom networks: package.module:object, a dictionary from library to Network or a
        function of obs_spec and action_spec that returns one; or one object per library, each as
        LIBRARY=package.module:object.
      mapping: a JSON file that pairs the parameters of custom networks by name: {library: {its
        name: name in the first library}}.
      margin: largest difference of returns that counts as equivalent.
      repetitions: number of processes per library that measure costs; 5 give intervals, 0 skips the
        measurement.
      out: a folder for the report; an interrupted comparison there is continued.
      against: the comparison.json of an earlier comparison; report what has changed since.
      fail_on: exit with code 1 at this verdict or a worse one: different, or inconclusive.
      open: open the report in a browser.
    """

    num_seeds: Count = 10
    devices: Devices = None
    envs: Annotated[tuple[str, ...], Arg("ENVIRONMENT ...", "none")] = ()
    backends: Annotated[
        tuple[str, ...] | None, Arg("NAME ...", "haiku linen nnx equinox, or those of --network")
    ] = None
    arithmetic: Name = "canonical"
    ladder: bool = False
    network: Annotated[tuple[str, ...], Arg("OBJECT ...", "built in")] = ()
    mapping: Annotated[Path | None, Arg("FILE", "by name, else by shape and order")] = None
    margin: Annotated[
        float | None, Arg("RETURN", "5 percent of the return above a random policy's")
    ] = None
    repetitions: Count = 1
    out: Annotated[Path | None, Arg("FOLDER", "runs/compare-ALGORITHM-ENVIRONMENT-TIME")] = None
    against: Annotated[Path | None, Arg("FILE", "none")] = None
    fail_on: Annotated[str | None, Arg("VERDICT", "never")] = None
    open: bool = False

    @property
    def libraries(self) -> tuple[str, ...]:
        """The chosen backends; empty as long as the default is not filled in."""
        return self.backends or ()
