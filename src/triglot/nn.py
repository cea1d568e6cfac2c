"""Networks of any library: descriptions, heads, combinators, recurrent steps.

The names are listed in `nn.pyi` and imported when they are first used. No network library is among
what they import.
"""

from ._public import export

export(globals())
