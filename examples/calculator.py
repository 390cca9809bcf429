"""A calculator as a tool: python -m worker --generate examples.calculator:Calculator --reward exact_match ...

The model writes <calc>3 * (4 + 5)</calc>, and the environment appends <result>27</result>, masked: the policy is not
trained on what it did not say. After a few calls, or when it calls no more, the answer stands.
"""

import ast
from collections.abc import Callable, Mapping

from worker.generate import Session

MOST_CALLS = 4
CALL, END = "<calc>", "</calc>"
_MOST_DIGITS = 30

_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def calculate(expression: str) -> str:
    """Sums and products of numbers; anything else is answered in words, which the model may learn from."""
    try:
        return f"{_value(ast.parse(expression.strip(), mode='eval').body):g}"
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError) as error:
        return f"error: {type(error).__name__}"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if abs(value) < 10**_MOST_DIGITS:
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case _:
            raise ValueError("no calculation")


class Calculator:
    """One sample's environment. A pocket calculator holds nothing that must be closed; others end their game here."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_closed = False

    async def generate(self, session: Session) -> None:
        turn = await session.generate(stop=[END], no_stop_trim=True)
        while turn.finish == "stop" and turn.text.endswith(END) and self.calls < MOST_CALLS:
            self.calls += 1
            expression = turn.text.rpartition(CALL)[2].removesuffix(END)
            session.append(await session.encode(f"<result>{calculate(expression)}</result>"))
            if (session.room or 1) < 1:
                break
            turn = await session.generate(stop=[END], no_stop_trim=True)
        session.finish(metadata={"calls": self.calls})

    async def close(self) -> None:
        self.is_closed = True
