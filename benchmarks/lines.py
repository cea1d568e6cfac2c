"""Count an algorithm's code lines, and how many of them are its own."""

import ast
import io
import tokenize

# What sets an agent up, and describes its networks and its replay, is not the algorithm itself.
SETUP = {
    "__post_init__", "heads", "networks", "init", "initial_carry", "replay", "learner", "parts",
}  # fmt: skip

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
