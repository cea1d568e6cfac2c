"""Environments that hold some installed libraries, what these require, and nothing else."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

CHECK = """
import importlib.util
assert importlib.util.find_spec("triglot") is None, "triglot can be imported"
"""
# Parts of the scripts that run an exported `load.py`.
ALONE = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import load
given = np.load(sys.argv[2])
"""
STEPS = """
carry = load.initial_carry(2)
for time, (obs, first) in enumerate(zip(given["obs"], given["first"])):
    actions, carry = load.step(obs, first, carry)
    np.save(f"{sys.argv[1]}/{time}-actions.npy", actions)
"""
MASKED = """
np.save(f"{sys.argv[1]}/actions.npy", load.policy(given["obs"], given["mask"]))
"""


def required(*names: str) -> set[str]:
    """List distributions and all that they require, without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found.add(name)
            needs = map(Requirement, metadata.requires(name) or [])
            waiting += [
                one.name for one in needs if not one.marker or one.marker.evaluate({"extra": ""})
            ]
    return found


def run_alone(script: str, folder: Path, libraries: tuple[str, ...], *arguments: str) -> None:
    """Run a script in an environment of its own.

    Args:
      script: Python source.
      folder: where it runs; the environment is made in its folder `libraries`.
      libraries: distributions, whose files are linked there with those of what they require.
      arguments: of the script.
    """
    place = folder / "libraries"
    place.mkdir()
    for name in required(*libraries):
        files = metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (place / top).exists():
                (place / top).symlink_to(str(metadata.distribution(name).locate_file(top)))
    words = [sys.executable, "-S", "-c", CHECK + script, *arguments]  # -S: no site-packages
    environment = {**os.environ, "PYTHONPATH": str(place)}
    ended = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    assert ended.returncode == 0, ended.stderr
