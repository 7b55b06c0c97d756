"""Python functions of steps: checked statically, and loaded to run."""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from runnel.pipelines.declared.declaration import PythonFunction
from runnel.pipelines.declared.findings import Findings, did_you_mean
from runnel.pipelines.errors import PipelineError


def check_function(function: PythonFunction, input_count: int, findings: Findings) -> bool:
    """Check that the function exists and takes this number of frames."""
    tree = _parsed(function, findings)
    if tree is None:
        return False
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    definition = definitions.get(function.function)
    if definition is None:
        # It may be assigned or imported; its parameters are then checked by the call.
        if function.function in _assigned(tree):
            return True
        close = did_you_mean(function.function, definitions) or _listed(definitions)
        findings.error(
            function.position, f"{function.file.name} has no function {function.function!r}{close}"
        )
        return False
    return _takes(definition, input_count, function, findings)


def _parsed(function: PythonFunction, findings: Findings) -> ast.Module | None:
    if not function.file.is_file():
        folder = function.file.parent
        files = [path.stem for path in folder.glob("*.py")] if folder.is_dir() else []
        # Compare stems: the common suffix .py would make all names similar.
        close = did_you_mean(function.file.stem, files).replace("'?", ".py'?")
        close = close or "; paths are relative to the pipeline file"
        findings.error(function.position, f"file not found: {function.file}{close}")
        return None
    try:
        return ast.parse(function.file.read_bytes(), str(function.file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", None) or str(error)
        findings.error(function.position, f"{function.file.name}:{line}: syntax error: {message}")
        return None


def _assigned(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names.update(target.id for target in targets if isinstance(target, ast.Name))
        if isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


def _listed(definitions: dict[str, ast.FunctionDef]) -> str:
    public = [name for name in definitions if not name.startswith("_")]
    return f"; available: {', '.join(public)}" if public else "; it defines no functions"


def _takes(definition: ast.FunctionDef, given: int, function: PythonFunction, findings: Findings) -> bool:
    parameters = definition.args
    positional = [*parameters.posonlyargs, *parameters.args]
    least = len(positional) - len(parameters.defaults)
    needed = [
        name.arg
        for name, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        if default is None
    ]
    if needed or given < least or (given > len(positional) and parameters.vararg is None):
        wanted = ", ".join([*(name.arg for name in positional), *needed]) or "nothing"
        findings.error(
            function.position,
            f"{function.function} in {function.file.name} line {definition.lineno} takes {wanted}, "
            f"but there {'is 1 input' if given == 1 else f'are {given} inputs'}",
        )
        return False
    return True


def load_function(function: PythonFunction) -> Callable[..., Any]:
    """Load the function. Its module is pickled by value: Spark's workers do not have the file."""
    from pyspark import cloudpickle

    mark = hashlib.sha256(str(function.file.resolve()).encode()).hexdigest()[:12]
    name = f"runnel_step_{function.file.stem}_{mark}"
    specification = importlib.util.spec_from_file_location(name, function.file)
    if specification is None or specification.loader is None:
        raise PipelineError(f"{function.file} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found = getattr(module, function.function, None)
    if not callable(found):
        raise PipelineError(f"{function.file.name} has no function {function.function!r}")
    return found  # type: ignore[no-any-return]
