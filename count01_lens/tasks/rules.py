"""Rules of counting tasks: from counts to an answer, written as text such as `n1 > n0`.

The text is read with `ast`, of which a few parts are allowed, and turned into functions of tensors.
Nothing of it is ever run as Python, so a rule out of a file can do no harm.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Counts = Int[Tensor, "*batch symbol"]
Truth = Bool[Tensor, "*batch"]
Values = Callable[[Counts], Any]
# Counts up to here are exact in float32, in which models usually run.
MAX_COUNT = 2**24
_LARGEST = 2**62  # what a term may reach without running out of int64
_LONGEST = 1000  # characters
_DEEPEST = 100  # terms within terms

_SUMS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ALLOWED = "counts such as n1, whole numbers, + - *, max, min, comparisons, and, or, not"


class RuleError(ValueError):
    """A rule is malformed; the message points at the place."""


@dataclass(frozen=True)
class _Term:
    """A part of a condition that is a number: how to compute it, and how large it can get."""

    of: Values
    largest: int


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition on counts.

    Attributes:
        text: as it was written.
        holds: tells for which counts it holds.
        equal: tells, for each of its comparisons, where both sides are equal.
        named: places among the symbols of those that it names, as they first occur.
    """

    text: str
    holds: Callable[[Counts], Truth]
    equal: tuple[Callable[[Counts], Truth], ...]
    named: tuple[int, ...]

    @classmethod
    def read(cls, text: str, symbols: Sequence[str]) -> "Condition":
        """Read a condition on the counts of some symbols.

        Raises:
            RuleError: says what is not allowed in it, and where.

        Example:
            >>> condition = Condition.read("n1 > 2*n0", ["0", "1"])
            >>> condition.holds(torch.tensor([[1, 2], [1, 3]])).tolist()
            [False, True]
        """
        reader = _Reader(text, symbols)
        holds = reader.read()
        return cls(text, holds, tuple(reader.equal), tuple(dict.fromkeys(reader.named)))


class _Reader:
    """Turns the syntax tree of one condition into functions."""

    def __init__(self, text: str, symbols: Sequence[str]):
        if not isinstance(text, str):
            raise TypeError(f"rule: expected a condition such as 'n1 > n0', got {text!r:.80}")
        self.text, self.places = text, {f"n{symbol}": i for i, symbol in enumerate(symbols)}
        self.equal: list[Callable[[Counts], Truth]] = []
        self.named: list[int] = []

    def read(self) -> Callable[[Counts], Truth]:
        if not self.text.isascii() or len(self.text) > _LONGEST or "\n" in self.text:
            raise RuleError(
                f"rule: expected one line of at most {_LONGEST} ASCII characters, such as "
                f"'n1 > n0', got {self.text!r:.80}"
            )
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            at = getattr(error, "offset", None)
            place = None if at is None else max(at - 1, 0)
            raise self._error("a condition such as 'n1 > n0'", place) from error
        return self.truth(tree.body, 0)

    def truth(self, node: ast.AST, depth: int) -> Callable[[Counts], Truth]:
        """A part that holds or does not."""
        self._check_depth(node, depth)
        if isinstance(node, ast.Compare):
            return self._compared(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, depth + 1)
            return lambda counts: ~inner(counts)
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(value, depth + 1) for value in node.values]
            both = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return lambda counts: reduce(both, (part(counts) for part in parts))
        raise self._error("something that holds or not, such as n1 > n0", node)

    def term(self, node: ast.AST, depth: int) -> _Term:
        """A part that is a number."""
        self._check_depth(node, depth)
        if isinstance(node, ast.Name) and node.id in self.places:
            place = self.places[node.id]
            self.named.append(place)
            return _Term(lambda counts: counts[..., place], MAX_COUNT)
        if isinstance(node, ast.Name) and node.id not in ("max", "min"):
            raise self._error(f"a count ({', '.join(self.places)})", node)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            number = node.value
            constant = _Term(lambda counts: torch.full_like(counts[..., 0], number), number)
            return self._sized(constant, node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self.term(node.operand, depth + 1)
            if isinstance(node.op, ast.UAdd):
                return inner
            return _Term(lambda counts: -inner.of(counts), inner.largest)
        if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            return self._calculated(node, depth)
        if isinstance(node, ast.Call):
            return self._extreme(node, depth)
        raise self._error(_ALLOWED, node)

    def _calculated(self, node: ast.BinOp, depth: int) -> _Term:
        one, other = self.term(node.left, depth + 1), self.term(node.right, depth + 1)
        calculate = _SUMS[type(node.op)]
        grown = operator.mul if isinstance(node.op, ast.Mult) else operator.add
        largest = grown(one.largest, other.largest)
        return self._sized(
            _Term(lambda counts: calculate(one.of(counts), other.of(counts)), largest), node
        )

    def _extreme(self, node: ast.Call, depth: int) -> _Term:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in ("max", "min") or node.keywords or len(node.args) < 2:
            raise self._error("max(…) or min(…) of two or more terms", node)
        parts = [self.term(value, depth + 1) for value in node.args]
        pick = torch.maximum if name == "max" else torch.minimum
        return _Term(
            lambda counts: reduce(pick, (part.of(counts) for part in parts)),
            max(part.largest for part in parts),
        )

    def _compared(self, node: ast.Compare, depth: int) -> Callable[[Counts], Truth]:
        terms = [self.term(part, depth + 1) for part in (node.left, *node.comparators)]
        found: list[Callable[[Counts], Truth]] = []
        for kind, left, right in zip(node.ops, terms, terms[1:], strict=False):
            if type(kind) not in _COMPARISONS:
                raise self._error("> >= < <= == or !=", node)
            found.append(_comparison(_COMPARISONS[type(kind)], left, right))
            self.equal.append(_comparison(operator.eq, left, right))
        return lambda counts: reduce(operator.and_, (part(counts) for part in found))

    def _sized(self, term: _Term, node: ast.AST) -> _Term:
        if term.largest > _LARGEST:
            raise self._error(f"terms that stay below 2^62 for counts up to {MAX_COUNT}", node)
        return term

    def _check_depth(self, node: ast.AST, depth: int) -> None:
        if depth > _DEEPEST:
            raise self._error(f"at most {_DEEPEST} terms within terms", node)

    def _error(self, expected: str, where: ast.AST | int | None) -> RuleError:
        indent = len(self.text) - len(self.text.lstrip())
        at = where if isinstance(where, int) else getattr(where, "col_offset", 0)
        at = min(at + indent, len(self.text))
        start = max(0, at - 40)
        shown = "".join(c if c.isprintable() else "·" for c in self.text[start : start + 80])
        return RuleError(f"rule: expected {expected}, got\n    {shown}\n    {' ' * (at - start)}^")


def _comparison(compare: Callable[[Any, Any], Any], left: _Term, right: _Term) -> Values:
    return lambda counts: compare(left.of(counts), right.of(counts))


class Rule:
    """Which answer counts call for: that of the first condition that holds, else the last.

    Attributes:
        conditions: one fewer than answers; None for a function in their place.
        n_answers: how many answers there are.
    """

    def __init__(self, given: Any, symbols: Sequence[str], n_answers: int):
        self.symbols, self.n_answers = tuple(symbols), n_answers
        self.function: Callable[[Counts], Any] | None = given if callable(given) else None
        self.conditions: tuple[Condition, ...] | None = None
        if self.function is None:
            texts = [given] if isinstance(given, str) else given
            if not isinstance(texts, Iterable):
                raise TypeError(
                    "rule: expected a condition such as 'n1 > n0', several of them, or a function "
                    f"of counts, got {given!r:.80}"
                )
            self.conditions = tuple(Condition.read(text, symbols) for text in texts)
            if len(self.conditions) != n_answers - 1:
                raise RuleError(
                    f"rule: expected {n_answers - 1} condition(s), one fewer than the {n_answers} "
                    f"answers, got {len(self.conditions)}"
                )

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The conditions as text; None for a function."""
        return None if self.conditions is None else tuple(each.text for each in self.conditions)

    def answer(self, counts: Counts) -> Int[Tensor, "*batch"]:
        """The place among the answers of the right one."""
        if self.function is not None:
            return self._by_function(self.function, counts)
        assert self.conditions is not None
        found = torch.full(counts.shape[:-1], self.n_answers - 1)
        for place in reversed(range(len(self.conditions))):
            found = found.masked_fill(self.conditions[place].holds(counts), place)
        return found

    def ties(self, counts: Counts) -> Truth | None:
        """Where some comparison has equal sides; None for a function, of which nobody knows."""
        if self.conditions is None:
            return None
        equal = [tie for each in self.conditions for tie in each.equal]
        return reduce(operator.or_, (tie(counts) for tie in equal))

    def named(self) -> tuple[int, ...]:
        """Places of the symbols that the conditions name, as they first do; of a function, all."""
        if self.conditions is None:
            return tuple(range(len(self.symbols)))
        return tuple(dict.fromkeys(place for each in self.conditions for place in each.named))

    def order(self) -> tuple[int, ...]:
        """Places of the symbols, first those that the conditions name."""
        return tuple(dict.fromkeys([*self.named(), *range(len(self.symbols))]))

    def _by_function(self, function: Callable[[Counts], Any], counts: Counts) -> Tensor:
        found = torch.as_tensor(function(counts.reshape(-1, counts.shape[-1])))
        expected = f"the number of an answer, 0 to {self.n_answers - 1}, for each row of counts"
        # As a number, True is the second answer; of a condition that holds, the first is right.
        whole = not found.is_floating_point() and found.dtype != torch.bool
        if found.shape != (counts[..., 0].numel(),) or not whole:
            raise ValueError(f"rule: expected {expected}, got {found.dtype} {list(found.shape)}")
        found = found.long()
        if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < self.n_answers:
            raise ValueError(f"rule: expected {expected}, got {sorted(set(found.tolist()))[:10]}")
        return found.reshape(counts.shape[:-1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rule):
            return NotImplemented
        mine, its = (self.texts, self.function), (other.texts, other.function)
        return mine == its and (self.symbols, self.n_answers) == (other.symbols, other.n_answers)

    def __hash__(self) -> int:
        return hash((self.texts, self.function))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.texts or self.function, self.symbols, self.n_answers)

    def __repr__(self) -> str:
        if self.texts is None:
            return f"function {getattr(self.function, '__name__', '')}".strip()
        return "; ".join(self.texts)
