"""Functions and statements of other programs' files, compiled with the lines of these files.

Nothing else of a file runs: neither its main program nor imports that the code does not read.
"""

import __future__

import ast
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Scope: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef
FLAGS = __future__.annotations.compiler_flag  # annotations are not evaluated


class SourceError(Exception):
    """A file is missing, or does not have the code that an adapter reads."""


@dataclass(frozen=True)
class Checkout:
    """A folder with another project's files.

    Attributes:
      path: the folder.
      url: the project's page, for links to lines.
    """

    path: Path
    url: str

    @property
    def commit(self) -> str:
        """The hash of the commit that is checked out; empty if the folder is no clone."""
        command = ["git", "-C", str(self.path), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def file(self, name: str) -> "SourceFile":
        """Parse a file.

        Raises:
          SourceError: if it is missing.
        """
        path = self.path / name
        if not path.is_file():
            raise SourceError(f"{path} is missing: is {self.path} a clone of {self.url}?")
        return SourceFile(path)


class SourceFile:
    """A parsed file, of which single functions and statements are compiled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(), str(path))

    def function(self, name: str, /, **bindings: Any) -> Callable[..., Any]:
        """Compile a function, wherever it is defined.

        Args:
          name: the names of the functions and classes around it and its own, joined by dots, such
            as `make_train.train._loss_fn`; those between may be left out.
          bindings: values of names that it reads and does not define.

        Raises:
          SourceError: if there is no such function, or a name that it reads is unknown.
        """
        node = self._scope(name)
        if not isinstance(node, ast.FunctionDef):
            raise SourceError(f"{name} in {self.path} is no function.")
        return self._compiled(node, bindings)

    def statements(
        self,
        results: Sequence[str],
        arguments: Sequence[str],
        *,
        scope: str = "",
        first: bool = False,
        **bindings: Any,
    ) -> Callable[..., Any]:
        """Compile the statements of one block on which variables depend, as a function.

        The block is the outermost one after which all results are assigned.

        Args:
          results: names of the variables that the function returns: one, or a tuple of several.
          arguments: names that the function takes, whose assignments in the block are left out.
          scope: the function or class whose body has the block, as for `function`; the file's own
            statements if it is empty.
          first: stop where all results have been assigned once.
          bindings: values of names that the statements read; their assignments are left out, too.

        Raises:
          SourceError: if no block assigns all results, or a name that is read is unknown.
        """
        blocks = _blocks(self._scope(scope))
        block = next((each for each in blocks if {*results} <= _always_assigned(each)), None)
        if block is None:
            raise SourceError(f"no block of {scope or 'the file'} assigns {', '.join(results)} in "
                              f"{self.path}.")  # fmt: skip
        if first:
            ends = range(1, len(block) + 1)
            block = block[: next(n for n in ends if {*results} <= _always_assigned(block[:n]))]
        kept = _slice(block, set(results), {*arguments, *bindings})
        names = [ast.Name(each, ast.Load()) for each in results]
        value = names[0] if len(names) == 1 else ast.Tuple([*names], ast.Load())
        return self._as_function("_".join(results), arguments, kept, value, bindings)

    def calls(
        self, names: Sequence[str], arguments: Sequence[str], *, scope: str = "", **bindings: Any
    ) -> Callable[..., Any]:
        """Compile statements that only call something, as a function that returns nothing.

        Args:
          names: what they call, as it is written, such as `optimizer.step`.
          arguments: names that the function takes.
          scope: as for `statements`.
          bindings: values of names that the statements read and do not define.

        Raises:
          SourceError: if no block has all of these statements.
        """
        for block in _blocks(self._scope(scope)):
            kept = [each for each in block if _called(each) in names]
            if {_called(each) for each in kept} == {*names}:
                return self._as_function("calls", arguments, kept, ast.Constant(None), bindings)
        raise SourceError(f"no block in {self.path} calls {', '.join(names)}.")

    def _as_function(
        self,
        name: str,
        arguments: Sequence[str],
        body: Sequence[ast.stmt],
        value: ast.expr,
        bindings: Mapping[str, Any],
    ) -> Callable[..., Any]:
        node = ast.FunctionDef(
            name=name,
            args=ast.arguments(
                posonlyargs=[],
                args=[ast.arg(each) for each in arguments],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[],
            ),
            body=[*body, ast.Return(value)],
            decorator_list=[],
            type_params=[],  # pyright: ignore[reportCallIssue]  (from Python 3.12)
        )
        node.lineno, node.end_lineno = body[0].lineno, body[-1].end_lineno
        node.col_offset = node.end_col_offset = 0
        return self._compiled(ast.fix_missing_locations(node), bindings)

    def default(self, name: str, *, scope: str) -> Any:
        """Return the literal that is the default of a parameter, a field or a key.

        Args:
          name: of the parameter of a function, the annotated field of a class, or the key of a
            dictionary that is written out in the scope.
          scope: as for `function`; empty for the file's own statements.

        Raises:
          SourceError: if there is none.
        """
        for value in _defaults(self._scope(scope), name):
            try:
                return ast.literal_eval(value)
            except ValueError:
                continue
        raise SourceError(f"{scope or 'the file'} in {self.path} has no default of {name}.")

    def _scope(self, name: str) -> Scope:
        scope: Scope = self.tree
        for part in filter(None, name.split(".")):
            for each in ast.walk(scope):  # outer ones first
                is_definition = isinstance(each, ast.ClassDef | ast.FunctionDef)
                if is_definition and each is not scope and each.name == part:
                    scope = each
                    break
            else:
                raise SourceError(f"{self.path} has no {name}: {part} is missing.")
        return scope

    def _compiled(self, node: ast.FunctionDef, bindings: Mapping[str, Any]) -> Callable[..., Any]:
        """Compile a function with what it reads: bindings, else imports of the file."""
        node.decorator_list = []
        known = {"__name__": self.path.stem, "__builtins__": __builtins__, **bindings}
        names = _names_read(node) - {*bindings}
        for statement in self.tree.body:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            for alias in statement.names:
                bound = alias.asname or alias.name.partition(".")[0]
                if bound in names:
                    self._execute([_import_of(statement, alias)], known)
        self._execute([node], known)
        return known[node.name]

    def _execute(self, body: list[ast.stmt], known: dict[str, Any]) -> None:
        module = ast.Module(body, type_ignores=[])
        try:
            exec(compile(module, str(self.path), "exec", FLAGS, dont_inherit=True), known)
        except ImportError as error:
            raise SourceError(
                f"{self.path}:{body[0].lineno} cannot be imported: {error}; install it, or bind it "
                "in the adapter."
            ) from error


def _import_of(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    """Return the import of one name of a statement."""
    one: ast.stmt
    if isinstance(statement, ast.Import):
        one = ast.Import([alias])
    else:
        one = ast.ImportFrom(statement.module, [alias], statement.level)
    return ast.copy_location(one, statement)


def _called(statement: ast.stmt) -> str:
    """Return what a statement calls, if it is nothing but a call."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func)
    return ""


def _blocks(scope: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield all lists of statements within a scope, outer ones first."""
    for node in ast.walk(scope):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _always_assigned(block: Sequence[ast.stmt]) -> set[str]:
    """Name the variables that a block assigns on every path; those of loops may not be."""
    names = set[str]()
    for statement in block:
        if isinstance(statement, ast.If):
            branches = _always_assigned(statement.body), _always_assigned(statement.orelse)
            names |= branches[0] & branches[1]
        elif isinstance(statement, ast.With):
            names |= _always_assigned(statement.body)
        elif isinstance(statement, ast.FunctionDef) or not hasattr(statement, "body"):
            names |= _assigned(statement)
    return names


def _slice(block: Sequence[ast.stmt], needed: set[str], given: set[str]) -> list[ast.stmt]:
    """Keep the statements on which needed names depend, without assignments of given names.

    Args:
      block: statements, in order.
      needed: names that are read afterwards; gets what the kept statements read.
      given: names whose assignments are left out.
    """
    kept: list[ast.stmt] = []
    for statement in reversed(block):
        if not _assigned(statement) & needed - given:
            continue
        if isinstance(statement, ast.If | ast.With):
            statement = _with_slices(statement, needed, given)
        kept.insert(0, statement)
        needed |= _names_read(statement)
    return kept


def _with_slices(
    statement: ast.If | ast.With, needed: set[str], given: set[str]
) -> ast.If | ast.With:
    """Copy a statement with the slices of its blocks."""
    body = _slice(statement.body, needed, given) or [ast.Pass()]
    if isinstance(statement, ast.With):
        copied: ast.If | ast.With = ast.With(statement.items, body)
    else:
        copied = ast.If(statement.test, body, _slice(statement.orelse, needed, given))
    return ast.copy_location(copied, statement)


def _assigned(statement: ast.AST) -> set[str]:
    """Name the variables that a statement assigns, in inner blocks too, or changes items of."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    names = set[str]()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            base = node.value
            if isinstance(base, ast.Name):
                names.add(base.id)
    return names


def _names_read(node: ast.AST) -> set[str]:
    """Name the variables that code reads, those of annotations left out."""
    names, pending = set[str](), [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            names.add(each.id)
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            names.add(each.target.id)
        skipped = {getattr(each, "annotation", None), getattr(each, "returns", None)}
        pending += [child for child in ast.iter_child_nodes(each) if child not in skipped]
    return names


def _defaults(scope: Scope, name: str) -> Iterator[ast.expr]:
    """Yield expressions that are a name's default in a scope."""
    if isinstance(scope, ast.FunctionDef):
        arguments = [*scope.args.posonlyargs, *scope.args.args]
        pairs = list(zip(reversed(arguments), reversed(scope.args.defaults), strict=False))
        pairs += list(zip(scope.args.kwonlyargs, scope.args.kw_defaults, strict=True))
        yield from (value for each, value in pairs if each.arg == name and value is not None)
    for node in ast.walk(scope):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id == name and node.value is not None:
                yield from _field_default(node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield value


def _field_default(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the default of a field, which may be written as `field(default=...)`."""
    if isinstance(value, ast.Call):
        yield from (each.value for each in value.keywords if each.arg == "default")
    else:
        yield value
