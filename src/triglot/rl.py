"""What algorithms and environments are made of, in the order in which an author needs it.

The names are listed in `rl.pyi` and imported when they are first used. No network library is among
what they import.
"""

from ._public import export

export(globals())
