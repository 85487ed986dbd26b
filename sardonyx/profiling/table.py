"""Where the time of profiled runs went, as a table."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.printable import printable_lines
from sardonyx.base.records import dataclass

if TYPE_CHECKING:
    from sardonyx.profiling.calls import CommandCall
    from sardonyx.profiling.commands import CommandInfo
    from sardonyx.profiling.profile import Profile, Run

KINDS = ("kernel", "operator", "node")
#: Characters of text in the last column, where nobody says how wide the page is.
_MOST_TEXT = 70


@dataclass(slots=True)
class TableRow:
    """Calls that have something in common.

    Attributes:
        name: What they have in common.
        operator: What they compute.
        nodes: The ONNX nodes behind them.
        count: How many there were.
        total_ns: From the beginning of each to its end, together.
        busy_ns: What threads worked, together; 0 where that is not known.
        operations: Of their sums; 0 if they have none.
        moved_bytes: What they read and wrote.
        share: The part of the time of all runs.
    """

    name: str
    operator: str
    nodes: tuple[str, ...]
    count: int = 0
    total_ns: float = 0.0
    busy_ns: float = 0.0
    operations: int = 0
    moved_bytes: int = 0
    share: float = 0.0

    @property
    def mean_ns(self) -> float:
        """Of one call."""
        return self.total_ns / self.count if self.count else 0.0

    @property
    def threads(self) -> float:
        """How many threads worked, on average."""
        return self.busy_ns / self.total_ns if self.total_ns else 0.0

    @property
    def gflops(self) -> float | None:
        """Billions of operations in a second; None where there are no sums."""
        return self.operations / self.total_ns if self.operations and self.total_ns else None

    @property
    def gigabytes(self) -> float | None:
        """Billions of bytes in a second, where there are no sums; None if it is not known."""
        if self.operations or not self.moved_bytes or not self.total_ns:
            return None
        return self.moved_bytes / self.total_ns

    @property
    def rate(self) -> str:
        """`gflops` or `gigabytes` in words; "" if neither is known."""
        if self.gflops is not None:
            return f"{self.gflops:.1f} GFLOP/s"
        return "" if self.gigabytes is None else f"{self.gigabytes:.1f} GB/s"


class Table:
    """Rows, those that took longest first.

    Attributes:
        rows: One for each kernel, operator or node.
        runs: How many runs were profiled.
        run_ns: The time of all runs, from their call to their end.
    """

    def __init__(
        self, by: str, rows: list[TableRow], runs: int, run_ns: float, remark: str
    ) -> None:
        self.by, self.rows, self.runs, self.run_ns = by, rows, runs, run_ns
        self._remark = remark

    @property
    def kernel_ns(self) -> float:
        """The time of all kernels; more than that of the runs if branches ran at once."""
        return sum(row.total_ns for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[TableRow]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> TableRow:
        return self.rows[number]

    def _heads(self) -> list[str]:
        return [self.by, "count", "total ms", "mean us", "share", "threads", "rate", "computes"]

    def _cells(self, row: TableRow) -> list[str]:
        nodes = " ".join(row.nodes)
        return [
            row.name, str(row.count), f"{row.total_ns / 1e6:.3f}", f"{row.mean_ns / 1e3:.2f}",
            f"{row.share:.1%}", f"{row.threads:.1f}" if row.busy_ns else "", row.rate,
            nodes if self.by == "operator" or not nodes else f"{row.operator}: {nodes}",
        ]  # fmt: skip

    @property
    def summary(self) -> str:
        """One line about all."""
        if not self.runs:
            return "no run was profiled"
        each = self.run_ns / self.runs / 1e6
        part = self.kernel_ns / self.run_ns if self.run_ns else 0.0
        text = f"{self.runs} runs of {each:.3f} ms on average, {part:.1%} of it in kernels"
        return f"{text}; {self._remark}" if self._remark else text

    def __str__(self) -> str:
        lines = [self._heads(), *map(self._cells, self.rows)]
        for line in lines:
            line[0], line[-1] = _cut(line[0]), _cut(line[-1])
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        texts = []
        for line in lines:
            cells = [
                text.ljust(width) if k in (0, len(line) - 1) else text.rjust(width)
                for k, (text, width) in enumerate(zip(line, widths, strict=True))
            ]
            texts.append("  ".join(cells).rstrip())
        return printable_lines([self.summary, *texts])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self._heads())
        body = []
        for row in self.rows:
            name, *numbers, nodes = self._cells(row)
            cells = "".join(f'<td style="text-align:right">{html.escape(n)}</td>' for n in numbers)
            left = ' style="text-align:left"'
            shown = f'<td{left} title="{html.escape(nodes)}">{html.escape(_cut(nodes))}</td>'
            body.append(f"<tr><td{left}>{html.escape(_cut(name))}</td>{cells}{shown}</tr>")
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f"<p>{html.escape(self.summary)}</p>{table}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


def table_of(profile: Profile, by: str) -> Table:
    """The table of a profile; see `Profile.table`."""
    if by not in KINDS:
        raise InvalidArgument(
            message("profile", "No such rows", expected=f"one of {KINDS}", got=repr(by))
        )
    rows: dict[object, TableRow] = {}
    runs, run_ns = 0, 0.0
    remarks: dict[str, None] = {}
    for run in profile.runs():
        runs += 1
        remarks |= {run.trace.remark: None} if run.trace.remark else {}
        run_ns += run.trace.ended_ns - run.trace.started_ns
        for call in run.calls:
            _add(rows, by, run, call)
    for row in rows.values():
        row.share = row.total_ns / run_ns if run_ns else 0.0
    ordered = sorted(rows.values(), key=lambda row: -row.total_ns)
    if profile.dropped:
        remarks[f"without {profile.dropped}"] = None
    return Table(by, ordered, runs, run_ns, "; ".join(remarks))


def _add(rows: dict[object, TableRow], by: str, run: Run, call: CommandCall) -> None:
    info = run.info.commands[call.command]
    key, row = _row(by, run, call, info)
    row = rows.setdefault(key, row)
    if by == "operator":
        row.nodes = tuple(dict.fromkeys((*row.nodes, *info.nodes)))
    row.count += 1
    row.total_ns += call.duration_ns
    row.busy_ns += sum(share.busy_ns for share in call.shares)
    row.operations += info.operations
    row.moved_bytes += info.moved_bytes


def _row(by: str, run: Run, call: CommandCall, info: CommandInfo) -> tuple[object, TableRow]:
    if by == "operator":
        return info.operator, TableRow(info.operator, info.operator, ())
    if by == "node":
        return info.name, TableRow(info.name, info.operator, info.nodes)
    kernel = call.kernel or info.kernel
    key = run.plan_number, call.command, call.kernel
    return key, TableRow(kernel, info.operator, info.nodes)
