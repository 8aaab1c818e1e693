"""One self-contained module out of an operator's `inputs.py` and what it takes from Roofmark.

Of each module of Roofmark's the definitions come along that are needed, as they are written; nothing is renamed, so
two of one name are refused. What a module is used as a whole for (`fp8.kind`) stays so, by way of a namespace.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from roofmark import operators
from roofmark.errors import ProblemError

PACKAGE = "roofmark"
SHARED = "roofmark.operators"
OUTPUT_SPEC = '''class OutputSpec(NamedTuple):
    """Shape and dtype (torch's name, e.g. `bfloat16`) of one output."""

    name: str
    shape: tuple[int, ...]
    dtype: str'''
# what records hold is no plain code: a stand-in of the same fields
STAND_INS = {"roofmark.records.OutputSpec": (OUTPUT_SPEC, ("typing", "NamedTuple"))}

# the name that an import binds: the module it comes from, and its name there (empty for the module itself)
Import = tuple[str, str]


@dataclass
class Source:
    """A module taken apart: its imports by the name they bind, and its definitions, in order, by theirs."""

    path: Path
    text: str
    tree: ast.Module
    imports: dict[str, Import] = field(default_factory=dict)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)

    def lines(self, node: ast.stmt) -> str:
        """The text of a statement with the comments right above it."""
        every = self.text.splitlines()
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        while first and every[first - 1].startswith("#"):
            first -= 1
        return "\n".join(every[first : node.end_lineno])


def inlined(path: Path, extra: str = "", imports: tuple[Import, ...] = ()) -> str:
    """The text of the module at `path` without an import of Roofmark's; `extra`, which needs `imports`, at its end."""
    return Inliner(path).text(extra, imports)


class Inliner:
    """What has been found to be needed of which module, in the order in which they depend on each other."""

    def __init__(self, path: Path) -> None:
        self.main = parse(path)
        self.sources: dict[str, Source] = {}
        self.needed: dict[str, set[str]] = {}
        self.namespaces: dict[str, set[str]] = {}
        self.plain: dict[str, Import] = {}
        self.stand_ins: dict[str, str] = {}
        self.order: list[str] = []

    def text(self, extra: str, imports: tuple[Import, ...]) -> str:
        """The whole module."""
        for node in self.main.tree.body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                self.follow(self.main, node)
        for module, name in imports:
            self.bind(name or module, (module, name))
        self.refuse_collisions()
        head = ast.get_docstring(self.main.tree, clean=False) or ""
        parts = [f'"""{head}"""', "from __future__ import annotations", "\n".join(self.import_lines())]
        parts += self.stand_ins.values()
        for module in self.order:
            parts += self.section(module)
        last = max(n.end_lineno or 0 for n in self.main.tree.body if isinstance(n, (ast.Import, ast.ImportFrom)))
        parts.append("\n".join(self.main.text.splitlines()[last:]).strip())
        return "\n\n\n".join([*parts, extra] if extra else parts) + "\n"

    def section(self, module: str) -> list[str]:
        """What is needed of a module, and its namespace where it is used as a whole."""
        source, name = self.sources[module], module.rsplit(".", 1)[1]
        nodes = {id(node): node for key, node in source.definitions.items() if key in self.needed[module]}
        parts = [source.lines(node) for node in nodes.values()]
        if module in self.namespaces:
            members = ", ".join(f"{key}={key}" for key in sorted(self.namespaces[module]))
            parts.append(f"{name} = SimpleNamespace({members})")
        return parts

    def follow(self, source: Source, node: ast.stmt) -> None:
        """Notes all that a statement of a module needs."""
        if nested := roofmark_inside(node):
            raise ProblemError(f"{source.path}: {nested} is imported inside a function", hint="import it at the top")
        for name, attribute in names_in(node):
            if name in source.definitions and source is not self.main:
                self.need(module_name(source), name)
            elif name in source.imports:
                self.take(name, source.imports[name], attribute)

    def take(self, name: str, found: Import, attribute: str) -> None:
        """Notes a use of an imported name; of `attribute`, where the name is a module of Roofmark's."""
        module, member = found
        if not module.startswith(PACKAGE):
            self.bind(name, found)
        elif f"{module}.{member}" in STAND_INS:
            self.stand_ins[name], needs = STAND_INS[f"{module}.{member}"]
            self.bind(needs[1], needs)
        elif module == SHARED and attribute:
            whole = f"{module}.{member}"
            self.need(whole, attribute)
            self.namespaces.setdefault(whole, set()).add(attribute)
            self.bind("SimpleNamespace", ("types", "SimpleNamespace"))
        else:
            self.need(module, member)

    def need(self, module: str, name: str) -> None:
        """Notes that a definition of a module of Roofmark's is needed, and all that it needs."""
        if name in self.needed.setdefault(module, set()):
            return
        self.needed[module].add(name)
        if module not in self.sources:
            self.sources[module] = parse(shared_path(module))
        source = self.sources[module]
        if name in source.imports:
            raise ProblemError(f"{module} has {name} from elsewhere", hint=f"import it from {source.imports[name][0]}")
        if name not in source.definitions:
            raise ProblemError(f"{module} has no {name}")
        self.follow(source, source.definitions[name])
        if module not in self.order:
            self.order.append(module)

    def bind(self, name: str, found: Import) -> None:
        """Notes a plain import; two that bind one name differently are refused."""
        if self.plain.setdefault(name, found) != found:
            raise ProblemError(f"{self.main.path}: {name} is {'.'.join(found)} and {'.'.join(self.plain[name])}")

    def refuse_collisions(self) -> None:
        """Refuses two definitions of one name."""
        owner: dict[str, str] = dict.fromkeys(self.main.definitions, self.main.path.name)
        groups = [(module, names) for module, names in self.needed.items()]
        groups += [("an import", set(self.plain)), ("a record", set(self.stand_ins))]
        groups += [("a module", {module.rsplit(".", 1)[1] for module in self.namespaces})]
        for module, names in groups:
            for name in sorted(names):
                if name in owner:
                    raise ProblemError(f"{self.main.path}: {name} is defined by {owner[name]} and by {module}",
                                       hint="rename one: a release has both in one file")  # fmt: skip
                owner[name] = module

    def import_lines(self) -> Iterator[str]:
        """The plain imports, one line a module."""
        members: dict[str, list[str]] = {}
        for name, (module, member) in self.plain.items():
            members.setdefault(module, []).append(member)
            if member and member != name:
                raise ProblemError(f"{self.main.path}: {module}.{member} is imported under another name")
        for module in sorted(members):
            if "" in members[module]:
                yield f"import {module}"
            if named := sorted({m for m in members[module] if m}):
                yield f"from {module} import {', '.join(named)}"


def parse(path: Path) -> Source:
    """The module at `path`, taken apart."""
    try:
        text = path.read_text(encoding="utf-8")
        source = Source(path, text, ast.parse(text))
    except (OSError, SyntaxError, ValueError) as error:
        raise ProblemError(f"{path} can't be read: {error}") from error
    for node in source.tree.body:
        if isinstance(node, ast.Import):
            source.imports.update({alias.asname or alias.name: (alias.name, "") for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            source.imports.update({a.asname or a.name: (node.module or "", a.name) for a in node.names})
        source.definitions.update(dict.fromkeys(defined(node), node))
    return source


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def names_in(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Every name in a statement, with the attribute that is asked of it, if any."""
    asked = {id(part.value): part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id, asked.get(id(part), "")


def roofmark_inside(node: ast.AST) -> str:
    """The module of Roofmark's that is imported somewhere inside a statement, "" where none is."""
    for part in ast.walk(node):
        named = [part.module or ""] if isinstance(part, ast.ImportFrom) else []
        named += [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
        for name in named:
            if name.split(".")[0] == PACKAGE:
                return name
    return ""


def module_name(source: Source) -> str:
    """The dotted name of a shared module."""
    return f"{SHARED}.{source.path.stem}"


def shared_path(module: str) -> Path:
    """The file of a module that operators share; `ProblemError` where it is none of them."""
    name = module.removeprefix(f"{SHARED}.") + ".py"
    if name not in operators.SHARED:
        raise ProblemError(f"{module} is none of what operators share", hint=", ".join(operators.SHARED))
    return operators.HERE / name
