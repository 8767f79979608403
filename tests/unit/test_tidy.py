"""House rules that no linter knows: size, direction of imports, reasons for suppressions, no sleeping tests."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tenure"
FUNCTION_LINES, MODULE_LINES, README_LINES = 60, 400, 200

# What is longer than allowed, and why: "path" for a module, "path:Class.function" for a function. It may only shrink.
LONG: dict[str, str] = {}

CORE_MAY_IMPORT = ("msgspec", "cronsim", "tenure.core")
# Clocks, randomness and the outside world: the core is given times, ids and bytes, and returns decisions.
CORE_MUST_NOT = re.compile(
    "asyncio|concurrent|ctypes|fcntl|http|io|logging|multiprocessing|os|pathlib|random|secrets|select|selectors|shutil|"
    "signal|socket|ssl|subprocess|sys|tempfile|threading|time|urllib"
)
CORE_MUST_NOT_CALL = frozenset({"now", "today", "utcnow", "uuid1", "uuid4"})
# Each layer, and what it must not import: edges -> services -> nats -> core.
EDGES = ("tenure.cli", "tenure.testing")
SERVICES = ("tenure.worker", "tenure.supervisor")
USED_BY_PEOPLE = ("tenure.app", "tenure.actors", "tenure.client", "tenure.context")
LAYERS = {
    "src/tenure/core": (*EDGES, *SERVICES, *USED_BY_PEOPLE, "tenure.nats"),
    "src/tenure/nats": (*EDGES, *SERVICES, *USED_BY_PEOPLE),
    "src/tenure/worker": EDGES,
    "src/tenure/supervisor": EDGES,
}

WITHOUT_TENURE = ROOT / "actors" / "stranger.py"
"""The example of a program that has nothing but NATS."""

SLEEP_MARKERS = ("# body:", "# work:", "# paused:")
SLEEPERS = frozenset({"asyncio", "time"})
LEFTOVERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")
MACHINE_PATH = re.compile(r"(?<![\w.:/\-{}])/(?:root|home|opt|work|Users)/\w")
SUPPRESSION = re.compile(r"#\s*(?:ruff:\s*|flake8:\s*)?(noqa|type:\s*ignore|pragma:\s*no cover)\b(.*)", re.IGNORECASE)
CODES = re.compile(r"^\s*(?::\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*|\[[\w\-, ]+\])?")
TEXT = (".py", ".md", ".toml", ".conf", ".yml", ".yaml", ".json", ".sh", ".txt")


def files(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts
    )


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), name(path))


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield (qualified name, lines) of every function below node; one inside another counts for both."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", (child.end_lineno or child.lineno) - child.lineno + 1
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) of every import; `from a import b` yields `a` and `a.b`."""
    package = list(path.relative_to(ROOT / "src").parent.parts) if path.is_relative_to(ROOT / "src") else []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def comments(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        for token in tokenize.tokenize(io.BytesIO(file.read()).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def report(problems: Iterable[str]) -> None:
    found = sorted(set(problems))
    assert not found, "\n" + "\n".join(found)


def too_long() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in files("src", "actors", "tests"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MODULE_LINES:
            found[name(path)] = lines
        found |= {f"{name(path)}:{what}": n for what, n in functions(parse(path)) if n > FUNCTION_LINES}
    return found


def test_functions_and_modules_are_short_unless_a_reason_is_given() -> None:
    report(f"{what} has {lines} lines" for what, lines in too_long().items() if what not in LONG)


def test_the_table_of_long_ones_only_shrinks() -> None:
    found = too_long()
    report(f"{what} is no longer too long: remove it from LONG" for what in LONG if what not in found)
    report(f"{what} needs a reason" for what, reason in LONG.items() if len(reason) < 10)


def test_the_core_imports_only_the_standard_library_pure_libraries_and_itself() -> None:
    report(
        f"{name(path)}:{line} imports {module}"
        for path in files("src/tenure/core")
        for line, module in imports(path)
        if not within(module, CORE_MAY_IMPORT) and module.split(".")[0] not in sys.stdlib_module_names
        if module not in ("tenure", "tenure.core")
    )


def test_the_core_does_no_input_or_output_and_reads_no_clock() -> None:
    problems = [
        f"{name(path)}:{line} imports {module}"
        for path in files("src/tenure/core")
        for line, module in imports(path)
        if CORE_MUST_NOT.fullmatch(module.split(".")[0])
    ]
    problems += [
        f"{name(path)}:{node.lineno} calls {node.func.attr}()"
        for path in files("src/tenure/core")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CORE_MUST_NOT_CALL
    ]
    report(problems)


def test_only_the_nats_package_imports_nats() -> None:
    report(
        f"{name(path)}:{line} imports {module}"
        for path in files("src", "actors")
        if not path.is_relative_to(SOURCE / "nats") and path != WITHOUT_TENURE
        for line, module in imports(path)
        if within(module, ("nats",))
    )


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_point_one_way(folder: str) -> None:
    """Imports for type checkers count as well: a layer that names what is above it knows too much."""
    report(
        f"{name(path)}:{line} imports {module}"
        for path in files(folder)
        for line, module in imports(path)
        if within(module, LAYERS[folder])
    )


def test_nothing_is_left_for_later() -> None:
    report(
        f"{name(path)}:{number}: {match[0]}"
        for path in files("src", "actors", suffixes=TEXT)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := LEFTOVERS.search(line))
    )


def test_every_suppression_names_its_rule_and_its_reason() -> None:
    problems = []
    for path in files("src", "actors", "tests"):
        for line, comment in comments(path):
            for match in SUPPRESSION.finditer(comment):
                rest = match[2]
                codes = CODES.match(rest)
                named = bool(codes and codes[0].strip()) or match[1].lower().startswith("pragma")
                reason = CODES.sub("", rest, count=1)
                if not named or len(re.findall(r"[^\W\d_]", reason)) < 8:
                    problems.append(f"{name(path)}:{line}: {comment}")
    report(problems)


def sleeps(path: Path) -> Iterator[ast.Call]:
    tree = parse(path)
    bare = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in SLEEPERS
        for alias in node.names
        if alias.name == "sleep"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(value=ast.Name(id=module), attr="sleep") if module in SLEEPERS:
                    yield node
                case ast.Name(id=called) if called in bare:
                    yield node
                case _:
                    pass


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    """Allowed, with a marker on the line: a task's body that takes time, simulated work, a pause between polls."""
    problems = []
    for path in files("tests"):
        lines = path.read_text(encoding="utf-8").splitlines()
        problems += [
            f"{name(path)}:{call.lineno} sleeps: wait for a condition, or say why with one of {SLEEP_MARKERS}"
            for call in sleeps(path)
            if not any(
                marker in line
                for line in lines[call.lineno - 1 : call.end_lineno or call.lineno]
                for marker in SLEEP_MARKERS
            )
        ]
    report(problems)


def test_no_file_names_a_folder_of_one_machine() -> None:
    at_root = [path for path in ROOT.iterdir() if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")]
    report(
        f"{name(path)}:{number}: {line.strip()}"
        for path in [*at_root, ROOT / ".ci" / "run", *files("src", "actors", "tests", "deploy", suffixes=TEXT)]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    )


def test_every_test_that_the_makefile_names_is_there() -> None:
    """By its function alone, so that all that it is tried with is run."""
    named = re.findall(r"(tests/\S+\.py)::(\S+)", (ROOT / "Makefile").read_text())
    assert named
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(), f"{file}::{function}"


def test_every_module_says_what_it_is_for() -> None:
    report(f"{name(path)} has no docstring" for path in files("src", "actors") if not ast.get_docstring(parse(path)))


def test_every_module_is_in_the_code_map() -> None:
    """By its name, in the part of its folder: whoever looks for what a module is finds it there."""
    codemap = (SOURCE / "ARCHITECTURE.md").read_text(encoding="utf-8").split("```")[1]
    parts = {"": set[str]()}
    folder = ""
    for line in codemap.splitlines():
        if not line.startswith("    ") and (heading := re.match(r" *(\w+)/", line)):
            folder = heading[1]
        elif not line.startswith(" "):
            folder = ""
        parts.setdefault(folder, set()).update(re.findall(r"\w+", line))
    report(
        f"{name(path)} is not in the code map of ARCHITECTURE.md, under {path.parent.name}/"
        for path in files("src/tenure")
        if not path.stem.startswith("__")
        and path.parent.name != "examples"
        and path.stem not in parts["" if path.parent == SOURCE else path.parent.name]
    )


def test_the_readme_stays_short() -> None:
    readme = ROOT / "README.md"
    lines = len(readme.read_text(encoding="utf-8").splitlines())
    assert lines < README_LINES, f"README.md has {lines} lines; move detail to src/tenure/ARCHITECTURE.md or deploy/"
