"""One reinforcement-learning agent, fluent in every JAX network library.

The public names are listed in `__init__.pyi` and imported when they are first used, so that `import
triglot` costs nothing, loads no network or environment library, and leaves JAX's settings alone.
"""

from pathlib import Path

from ._public import export

__version__ = "0.2.0"

# Without symbolic links, as on Windows by default, git checks out a text file for each link.
if Path(__file__).with_name("core").is_file():
    raise ImportError(
        "this checkout of triglot has text files in place of symbolic links: run `git config "
        "core.symlinks true` and check it out again (`git checkout -- src`), or install a "
        "wheel with pip."
    )

export(globals())
