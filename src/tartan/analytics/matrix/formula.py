"""Formulas of one variable as users write them: ``1-s``, ``sqrt(2-2s)``, ``-log(1-2d)``, ``min(1,d)^0.125``.

A formula has numbers, the variable, the names ``max`` and ``mean`` (of the whole matrix), + - * / ^, brackets and the
functions below; a number may stand before the variable or a bracket without a sign. Nothing else is evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

Values = NDArray[np.float64]

# A value this little below the domain of a function is there by rounding: the cosine of equal vectors in float32.
# By arithmetic: as _TOLERANCE of matrix/check.
_ROUNDING = 1e-5


def _floor(values: Values) -> Values:
    return np.where((values < 0) & (values > -_ROUNDING), 0.0, values)


def _clip(values: Values) -> Values:
    return np.where(np.abs(values) < 1 + _ROUNDING, np.clip(values, -1.0, 1.0), values)


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "sqrt": (1, lambda x: np.sqrt(_floor(x))),
    "log": (1, np.log),
    "exp": (1, np.exp),
    "abs": (1, np.abs),
    "arccos": (1, lambda x: np.arccos(_clip(x))),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
}
_IMPLIED_PRODUCT = re.compile(r"((?<![\w.])(?:\d+\.?\d*|\.\d+)|\))\s*(?=[A-Za-z(])(?![eE][-+]?\d)")


class Formula:
    """A formula of one variable.

    Parameters
    ----------
    text : str
    variable : str
        Its one-letter name.

    Raises
    ------
    ConfigError
        If the text is not a formula of this variable.

    Attributes
    ----------
    names : set of str
        Which of ``max`` and ``mean`` it needs.

    Examples
    --------
    >>> Formula("sqrt(2-2s)", "s")(np.array([1.0, 0.5]))
    array([0., 1.])
    """

    def __init__(self, text: str, variable: str) -> None:
        self.text, self.variable = text, variable
        self.names: set[str] = set()
        spelled = _IMPLIED_PRODUCT.sub(r"\1*", text.strip()).replace("^", "**")
        try:
            self._tree: ast.expr = ast.parse(spelled, mode="eval").body
        except SyntaxError as error:
            raise self._error("it cannot be read") from error
        self._require_known(self._tree)
        if variable not in {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}:
            raise self._error(f"{variable} does not occur in it")

    def __call__(self, values: Values, **names: float) -> Values:
        """Return the formula's values; what it is not defined for becomes NaN or infinite."""
        with np.errstate(all="ignore"):
            found: Values = np.asarray(self._value(self._tree, {self.variable: values, **names}), np.float64)
        return found

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return np.float64(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.UnaryOp):
            return _OPERATORS[type(node.op)](self._value(node.operand, names))
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](self._value(node.left, names), self._value(node.right, names))
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        return _FUNCTIONS[node.func.id][1](*(self._value(argument, names) for argument in node.args))

    def _require_known(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            if type(node.value) not in (int, float):
                raise self._error(f"{node.value!r} is not a number")
        elif isinstance(node, ast.Name):
            if node.id not in (self.variable, "max", "mean"):
                raise self._error(f"{node.id!r} means nothing in it")
            self.names |= {node.id} - {self.variable}
        elif isinstance(node, ast.UnaryOp | ast.BinOp) and type(node.op) in _OPERATORS:
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self._require_known(part)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            if node.func.id not in _FUNCTIONS or len(node.args) != _FUNCTIONS[node.func.id][0]:
                raise self._error(f"{ast.unparse(node)!r} is not a function that it may use")
            for argument in node.args:
                self._require_known(argument)
        else:
            raise self._error(f"{ast.unparse(node)!r} is nothing that it may use")

    def _error(self, problem: str) -> ConfigError:
        functions = ", ".join(_FUNCTIONS)
        return ConfigError(
            f"{self.text!r} is not a formula of {self.variable}: {problem}; a formula has {self.variable}, "
            "numbers, max, "
            f"mean, + - * / ^, brackets and {functions}, as in {'1-s' if self.variable == 's' else '-log(1-2d)'!r}",
            context={"formula": self.text},
        )
