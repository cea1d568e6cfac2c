"""An algorithm's file is short, and mostly its own: options, how it acts, how it learns."""

import ast
import io
import tokenize

import pytest

from tests.project.source import ROOT
from triglot.registry.algorithms import ALGORITHMS

# What sets an agent up, and describes its networks and its replay, is not the algorithm itself.
SETUP = {
    "__post_init__", "heads", "networks", "init", "initial_carry", "replay", "learner", "parts",
}  # fmt: skip
MIN_SHARE = 0.5  # more than half is the algorithm's own
MAX_LINES = 150  # of code

NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def span(node: ast.stmt | ast.expr) -> set[int]:
    """Return the numbers of a node's lines, with its decorators."""
    decorators = [one.lineno for one in getattr(node, "decorator_list", ())]
    assert node.end_lineno is not None
    return set(range(min([node.lineno, *decorators]), node.end_lineno + 1))


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines with code: no blank lines, comments or docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node) is not None:
            lines -= span(node.body[0])
    return lines


def algorithm_lines(source: str) -> set[int]:
    """Return the code lines of the options, of the methods besides `SETUP`, and of their calls.

    Options are the annotated fields of `...Hyperparams` and `...Config`, without those inherited.
    Followed are the functions of the file, and the classes of the file that are constructed. The
    agent is the class that sets `Config`.
    """
    tree = ast.parse(source)
    top = {node.name: node for node in tree.body if isinstance(node, Definition)}
    methods = {
        name: {node.name: node for node in owner.body if isinstance(node, Function)}
        for name, owner in top.items()
        if isinstance(owner, ast.ClassDef)
    }
    (agent,) = (
        methods[name]
        for name, owner in top.items()
        if isinstance(owner, ast.ClassDef) and "Config" in names_set(owner)
    )
    waiting: list[Definition] = [node for name, node in agent.items() if name not in SETUP]
    seen: set[Definition] = set()
    while waiting:
        definition = waiting.pop()
        if definition not in seen:
            seen.add(definition)
            waiting += called(definition, agent, top)
    options = [
        span(field)
        for name, owner in top.items()
        if isinstance(owner, ast.ClassDef) and name.endswith(("Hyperparams", "Config"))
        for field in owner.body
        if isinstance(field, ast.AnnAssign)
    ]
    return set().union(*(span(one) for one in seen), *options) & code_lines(source)


def names_set(owner: ast.ClassDef) -> set[str]:
    """List the names that a class's body assigns, without annotation."""
    targets = [node.targets for node in owner.body if isinstance(node, ast.Assign)]
    return {one.id for some in targets for one in some if isinstance(one, ast.Name)}


def called(
    definition: Definition, agent: dict[str, Function], top: dict[str, Definition]
) -> list[Definition]:
    """List what a definition calls, or passes on to be called."""
    found: list[Definition] = []
    for node in ast.walk(definition):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in agent:
                found.append(agent[name])
            case ast.Call(func=ast.Name(id=name)) if name in top:
                found.append(top[name])
            case ast.Name(id=name) if isinstance(top.get(name), Function):
                found.append(top[name])
    return found


def read(algorithm: str) -> str:
    return (ROOT / "algorithms" / f"{algorithm}.py").read_text()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_most_of_the_code_is_the_algorithm(algorithm: str) -> None:
    source = read(algorithm)
    inside, whole = len(algorithm_lines(source)), len(code_lines(source))
    assert inside > MIN_SHARE * whole, (
        f"algorithms/{algorithm}.py: {inside} of {whole} code lines ({inside / whole:.1%}) are the "
        f"agent's options and methods, besides {', '.join(sorted(SETUP))}; more than "
        f"{MIN_SHARE:.0%} should be."
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_file_is_short(algorithm: str) -> None:
    lines = len(code_lines(read(algorithm)))
    assert lines <= MAX_LINES, f"algorithms/{algorithm}.py: {lines} code lines, at most {MAX_LINES}"


TOY = '''"""A module's
docstring."""

import math  # code

@dataclass
class State:
    """Not constructed below."""
    number: int

class Batch:
    size: int

class Agent:
    """The agent."""

    Config = State

    def init(self):
        return State(helper(1))

    # a comment
    def act(self):
        """Act."""
        return self._scale * outer(
            2
        )

    @property
    def _scale(self):
        return 3

    def update(self, state: State):
        text = """not
        a docstring"""
        return use(self._learn, Batch(text))

    def _learn(self):
        return mapped(helper)

def outer(x):
    return x

def helper(x):

    return x

def unused():
    return None
'''


def lines_with(*texts: str) -> set[int]:
    rows = enumerate(TOY.splitlines(), start=1)
    return {number for number, row in rows if any(text in row for text in texts)}


def test_code_lines_of_a_toy() -> None:
    rows = TOY.splitlines()
    blank = {number for number, row in enumerate(rows, start=1) if not row.strip()}
    prose = {1, 2} | lines_with('"""Not constructed', '"""The agent', '"""Act', "# a comment")
    assert code_lines(TOY) == set(range(1, len(rows) + 1)) - blank - prose


def test_algorithm_lines_of_a_toy() -> None:
    outside = {line for line in code_lines(TOY) if line < lines_with("class Batch").pop()}
    outside |= lines_with(
        "class Agent", "Config =", "def init", "State(helper", "def unused", "return None"
    )
    assert algorithm_lines(TOY) == code_lines(TOY) - outside
