"""Run a script of CleanRL once per line of input; CleanRL's own interpreter runs this file.

    PYTHON benchmarks/peers/cleanrl_script.py CLONE/cleanrl/ppo.py

A line holds the script's options as a JSON object. The reply is a JSON list of the trained layers,
`[kernel [in, out], bias [out]]` each. The first reply, before any line, has the versions.
"""

import contextlib
import importlib.metadata
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any


def layers(names: dict[str, Any]) -> list[Any]:
    """Read the policy's layers from the names that the script defined."""
    if "agent" in names:
        found = [m for m in names["agent"].actor if hasattr(m, "weight")]
        return [[m.weight.T.tolist(), m.bias.tolist()] for m in found]
    found = names["q_state"].params["params"].values()
    return [[one["kernel"].tolist(), one["bias"].tolist()] for one in found]


def main() -> None:
    """Answer until the input ends."""
    script = Path(sys.argv[1]).resolve()
    sys.path[0] = str(script.parents[1])  # scripts import cleanrl_utils
    reply = os.fdopen(os.dup(1), "w")
    versions = {name: importlib.metadata.version(name) for name in ("torch", "gymnasium")}
    print(json.dumps(versions), file=reply, flush=True)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for line in sys.stdin:
            options = json.loads(line)
            sys.argv = [str(script), *(f"--{name}={value}" for name, value in options.items())]
            with tempfile.TemporaryDirectory() as folder:  # its logs go to ./runs
                os.chdir(folder)
                trained = layers(runpy.run_path(str(script), run_name="__main__"))
                os.chdir(script.parent)
            print(json.dumps(trained), file=reply, flush=True)


if __name__ == "__main__":
    main()
