"""What all answers share, whether their rows hold entities or values: a sequence of rows that writes itself as JSON."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from biqe.answer import formats
from biqe.errors import InvalidOption

if TYPE_CHECKING:
    import pandas

R = TypeVar("R")


class Rows(Sequence[R]):
    """Rows by number; each is made when it is asked for."""

    @abstractmethod
    def row(self, number: int) -> R:
        """The row of this number, which is one of the rows there are."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers."""

    @overload
    def __getitem__(self, number: int) -> R: ...
    @overload
    def __getitem__(self, number: slice) -> list[R]: ...
    def __getitem__(self, number: int | slice) -> R | list[R]:
        if isinstance(number, slice):
            return [self.row(place) for place in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        return self.row(number % len(self))

    def __iter__(self) -> Iterator[R]:
        return map(self.row, range(len(self)))

    def to_json(self, *, indent: int | None = 2) -> str:
        """One JSON document, in the form of ``to_dict``."""
        return formats.escaped_json(json.dumps(self.to_dict(), ensure_ascii=False, indent=indent))


def data_frame(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> pandas.DataFrame:
    """A DataFrame of pandas; InvalidOption where that is not installed."""
    try:
        import pandas
    except ImportError:
        raise InvalidOption(
            "to_pandas needs the package 'pandas', which is not installed",
            hint="pip install 'biqe[pandas]'; or use to_json(), or list(answers)",
        ) from None
    return pandas.DataFrame(rows, columns=list(columns))
