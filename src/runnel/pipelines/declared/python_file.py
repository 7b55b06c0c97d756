"""Functions in files of a pipeline's owner: looked at without running them, and loaded to run."""

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
    """Is the function there, and does it take so many frames? The findings say what is wrong."""
    tree = _parsed(function, findings)
    if tree is None:
        return False
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    definition = definitions.get(function.function)
    if definition is None:
        # A decorator or an assignment may make it as well; what it takes is then seen when it is called.
        if function.function in _assigned(tree):
            return True
        close = did_you_mean(function.function, definitions) or _listed(definitions)
        findings.error(function.place, f"{function.file.name} has no function {function.function!r}{close}")
        return False
    return _takes(definition, input_count, function, findings)


def _parsed(function: PythonFunction, findings: Findings) -> ast.Module | None:
    if not function.file.is_file():
        folder = function.file.parent
        files = [path.stem for path in folder.glob("*.py")] if folder.is_dir() else []
        # By stems: that all end in .py makes them no more alike.
        close = did_you_mean(function.file.stem, files).replace("'?", ".py'?")
        close = close or "; files are looked for beside the pipeline's own"
        findings.error(function.place, f"there is no file {function.file}{close}")
        return None
    try:
        return ast.parse(function.file.read_bytes(), str(function.file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        said = getattr(error, "msg", None) or str(error)
        findings.error(function.place, f"{function.file.name}:{line} is no Python: {said}")
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
    return f"; it has {', '.join(public)}" if public else "; it has no functions at all"


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
            function.place,
            f"{function.function} in {function.file.name} line {definition.lineno} takes {wanted}, "
            f"and gets {given} {'frame' if given == 1 else 'frames'}, one for each of the inputs",
        )
        return False
    return True


def load_function(function: PythonFunction) -> Callable[..., Any]:
    """The function itself. What it defines goes to Spark's workers by value: they do not have the file."""
    from pyspark import cloudpickle

    mark = hashlib.sha256(str(function.file.resolve()).encode()).hexdigest()[:12]
    name = f"runnel_step_{function.file.stem}_{mark}"
    specification = importlib.util.spec_from_file_location(name, function.file)
    if specification is None or specification.loader is None:
        raise PipelineError(f"{function.file} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found = getattr(module, function.function, None)
    if not callable(found):
        raise PipelineError(f"{function.file.name} has no function {function.function!r}")
    return found  # type: ignore[no-any-return]
