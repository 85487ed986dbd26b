"""Pages in a real browser: clicks, filters, sorting, zooming, and names that want to be code."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from sardonyx.tools.view import write_page
from tests.support import browser
from tests.support.browser import Browser
from tests.support.traces import Event, hostile_name, kernel, node, run, trace_file

pytestmark = [
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing()),
    pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="no plotly"),
]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def _events() -> list[Event]:
    """Two runs of three nodes with two threads, the second one half as long, and a device."""
    found: list[Event] = []
    for number, (start, unit) in enumerate([(1000, 100), (3000, 50)]):
        more = {"plan": "0", "output_size": "64"}
        for k, (name, op, parts) in enumerate(
            [("conv1", "Conv", ["conv1", "relu1"]), ("conv2", "Conv", ["conv2"]),
             ("soft", "Softmax", ["soft"])]
        ):  # fmt: skip
            begin, took = start + 10 + 4 * k * unit, (4 - k) * unit
            ops = ["Conv", "Relu"] if len(parts) == 2 else [op]
            found.append(
                node(name, begin, took - 2, op=op, nodes=parts, ops=ops, memory=1_000_000 * (3 - k),
                     arena=5_000_000, kernel=f"k_{op}", command=str(k), **more)
            )  # fmt: skip
            found.append(kernel(f"k_{op}", begin + 1, took // 2, tid=2, op=op))
        found.append(kernel("gpu_kernel", start + 20, 30, tid=-1, pid=-1, stream="7", op="Conv"))
        found.append(run(start, 12 * unit))
        found[-1]["args"] = {"plan": "0", "sizes": {"N": number}}
        plan = run(start, 0)
        plan["name"] = "memory_plan"
        plan["args"] = {"plan": "0", "sizes": {"N": number}}
        plan["args"]["buffers"] = [[2_000_000 + number, 0, 1], [1_000_000, 0, 2], [500, 2, 2]]
        found.append(plan)
    return found


@pytest.fixture
def opened(window: Browser, tmp_path: Path) -> Browser:
    """A window with a page about `_events`."""
    return _open(window, tmp_path, trace_file(tmp_path / "first.json", _events()))


def _open(window: Browser, folder: Path, *sources: Path) -> Browser:
    target = folder / "page.html"
    write_page(target, *sources)
    window.open(target)
    window.wait("return document.body.dataset.ready")
    assert window.complaints() == []
    return window


def _tab(window: Browser, name: str) -> None:
    window.click(f"#tabs button[data-name={name}]")


def _column(window: Browser, table: str, number: int) -> list[str]:
    """A column of a table, from top to bottom."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(r => [r.offsetTop, r])"
        ".sort((a, b) => a[0] - b[0]).map(p => p[1].children[arguments[1]].textContent)"
    )
    return list(window.run(script, f"#{table} .row", number))


# -- operators ------------------------------------------------------------------------------------


def test_calls_sort_and_filter(opened: Browser) -> None:
    assert _column(opened, "calls", 0) == ["conv1", "conv2", "soft"]
    assert _column(opened, "calls", 3) == ["0.596", "0.446", "0.296"]
    opened.click("#calls .head button:nth-child(4)")
    assert _column(opened, "calls", 0) == ["soft", "conv2", "conv1"]
    opened.click("#calls .head button:nth-child(1)")
    assert _column(opened, "calls", 0) == ["conv1", "conv2", "soft"]
    opened.click("#calls .head button:nth-child(1)")
    assert _column(opened, "calls", 0) == ["soft", "conv2", "conv1"]
    opened.type("#calls .bar input", "soft")
    assert _column(opened, "calls", 0) == ["soft"]
    assert opened.text("#calls .bar span") == "1 of 3 rows"
    opened.click("#calls .row")
    assert "k_Softmax" in opened.text("#details")


def test_one_filter_for_all(opened: Browser) -> None:
    opened.type("#filter", "RELU1")  # a node inside of a kernel
    opened.wait("return document.querySelectorAll('#calls .row').length === 1")
    assert _column(opened, "calls", 0) == ["conv1"]
    _tab(opened, "placement")
    assert _column(opened, "placement", 0) == ["relu1"]


def test_runs_are_chosen(opened: Browser) -> None:
    assert opened.texts("#run option") == [
        "all", "without the first", "1: 1.200 ms", "2: 600.0 µs"
    ]  # fmt: skip
    opened.choose("#run", 1)
    assert _column(opened, "calls", 3) == ["0.198", "0.148", "0.098"]
    opened.choose("#run", 2)
    assert _column(opened, "calls", 3) == ["0.398", "0.298", "0.198"]


def test_kernels_and_the_treemap(opened: Browser) -> None:
    areas = "#treemap .slice text"
    opened.wait(f"return document.querySelectorAll('{areas}').length >= 4")
    assert any("Softmax" in text for text in opened.texts(areas))
    opened.choose("#kind", 1)
    assert sorted(_column(opened, "calls", 0)) == ["gpu_kernel", "k_Conv", "k_Conv", "k_Softmax"]
    opened.choose("#kind", 0)
    opened.choose("#level", 2)
    opened.wait(f"return [...document.querySelectorAll('{areas}')]"
                ".some(e => e.textContent.includes('conv2'))")  # fmt: skip
    opened.run(
        f"const e = [...document.querySelectorAll('{areas}')].find(e =>"
        "e.textContent.includes('conv2')).closest('.slice').querySelector('path');"
        "e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true, clientX: 9, clientY: 9}));"
        "e.dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    opened.wait("return document.getElementById('details').textContent.includes('conv2')")


# -- timeline -------------------------------------------------------------------------------------


def _range(window: Browser) -> tuple[float, float]:
    found = window.run("return {...document.getElementById('timeline').dataset}")
    return float(found["from"]) / 1e3, float(found["to"]) / 1e3


def test_the_timeline_zooms_and_moves(opened: Browser) -> None:
    _tab(opened, "timeline")
    assert _range(opened) == (3000, 3600)
    lanes = opened.texts("#timeline .ytick text")
    assert lanes == ["thread 1", "thread 2", "stream 7"]
    opened.click("#whole")
    assert _range(opened) == (0, 3600)
    opened.wheel("#timeline", 700, 100, -200)
    opened.wait("return Number(document.getElementById('timeline').dataset.from) > 0")
    start, end = _range(opened)
    assert 0 < start < end < 3600
    opened.pointer("#timeline", 700, 100, to=(900, 100))
    opened.wait(f"return Number(document.getElementById('timeline').dataset.from) < {start}e3 - 1")
    moved, until = _range(opened)
    assert until - moved == pytest.approx(end - start, rel=1e-6)
    opened.choose("#run", 2)
    assert _range(opened) == (976, 2224)
    assert opened.complaints() == []


def test_events_of_the_timeline_say_what_they_are(opened: Browser) -> None:
    _tab(opened, "timeline")
    opened.choose("#to-run", 1)
    width, high = opened.run(
        "const b = document.getElementById('timeline').getBoundingClientRect();"
        "return [b.width, b.height]"
    )
    # conv1 takes 1010 to 1408 of what is shown from 976 to 2224, in the second of 4.2 lines.
    x = 130 + (width - 146) * (1200 - 976) / (2224 - 976)
    y = 34 + (high - 74) * 1.5 / 4.2
    opened.pointer("#timeline", round(x), round(y), press=False)
    assert opened.text("#tip") == "conv1\nConv, 398.0 µs"
    opened.pointer("#timeline", round(x), round(y))
    assert "conv1, relu1" in opened.text("#event")
    assert "3.0 MB" in opened.text("#event")


def test_many_events(window: Browser, tmp_path: Path) -> None:
    """What is drawn does not grow with the events; every tab opens; the table reaches its end."""
    events = [run(0, 1_000_000)]
    for k in range(100_000):
        name, op = f"node{k % 1500}", f"Op{k % 17}"
        events.append(node(name, 10 * k + 1, 8, op=op, tid=1 + k % 4, memory=k % 977))
    _open(window, tmp_path, trace_file(tmp_path / "many.json", events))
    assert "1500 rows" in window.text("#calls .bar span")
    _tab(window, "timeline")
    window.click("#whole")
    boxes = "return Number(document.getElementById('timeline').dataset.boxes)"
    assert 0 < window.run(boxes) < 10_000
    window.wheel("#timeline", 700, 60, -3000)
    window.wait("return Number(document.getElementById('timeline').dataset.from) > 0")
    assert 0 < window.run(boxes) < 10_000
    for name in ("memory", "placement", "operators"):
        _tab(window, name)
    assert len(_column(window, "calls", 0)) < 60
    assert window.complaints() == []


# -- memory, placement, comparison ----------------------------------------------------------------


def test_who_holds_memory(opened: Browser) -> None:
    _tab(opened, "memory")
    assert "3.0 MB in use at 1.010 ms, while conv1 runs; 5.0 MB held" in opened.text("#moment")
    assert _column(opened, "holders", 0) == ["2.0 MB", "1.0 MB"]
    assert _column(opened, "holders", 2) == ["conv2", "soft"]
    box = opened.run("const b = document.getElementById('memory').getBoundingClientRect();"
                     "return b.width")  # fmt: skip
    opened.pointer("#memory", round(box) - 20, 150)
    assert "while soft runs" in opened.text("#moment")
    assert _column(opened, "holders", 0) == ["1.0 MB", "500 B"]
    assert opened.texts("#plan option") == ["plan 0: N = 0", "plan 0: N = 1"]


def test_placement_says_what_is_computed_together(opened: Browser) -> None:
    _tab(opened, "placement")
    assert _column(opened, "placement", 0) == ["conv1", "relu1", "conv2", "soft"]
    assert _column(opened, "placement", 1) == ["Conv", "Relu", "Conv", "Softmax"]
    assert _column(opened, "placement", 5) == ["2", "2", "1", "1"]
    opened.click("#placement .row")
    assert "conv1, relu1" in opened.text("#node")


def test_two_profiles(window: Browser, tmp_path: Path) -> None:
    first = trace_file(tmp_path / "first.json", _events())
    other = [run(0, 100), node("conv1", 0, 30, op="Conv"), node("relu1", 40, 20, op="Relu"),
             node("conv2", 60, 300, op="Conv")]  # fmt: skip
    second = trace_file(tmp_path / "second.json", other)
    _open(window, tmp_path, first, second)
    assert "B takes 0.788 times as long" in window.text("#verdict")
    assert _column(window, "parts", 0) == ["conv2", "conv1", "soft"]
    assert _column(window, "parts", 5) == ["152.00", "-148.00", "-98.00"]
    window.choose("#which", 1)
    _tab(window, "operators")
    assert window.text("#title") == "second.json"
    assert _column(window, "calls", 0) == ["conv2", "conv1", "relu1"]


# -- names ----------------------------------------------------------------------------------------


def test_names_stay_text(window: Browser, tmp_path: Path) -> None:
    name = hostile_name()
    more = {"kernel": name, "plan": "0", "command": "0", "provider": name}
    events = [
        node(name, 10, 80, op=name, nodes=[name, "other"], memory=5, **more),
        kernel(name, 20, 30, tid=-1, pid=-1, op=name, stream="7"),
        run(0, 100),
    ]
    events[-1]["args"] = {"error": name, "remark": name, "plan": "0", "sizes": {name: name}}
    path = trace_file(tmp_path / "<img src=x onerror=window.hacked=4>.json", events)
    _open(window, tmp_path, path, path)
    for tab in ("comparison", "operators", "timeline", "memory", "placement"):
        _tab(window, tab)
        if tab == "operators":
            assert _column(window, "calls", 0) == [name]
            for kind in (1, 0):
                window.choose("#kind", kind)
            window.wait("return document.querySelectorAll('#treemap .slice text').length >= 2")
            assert any("<b>&amp;</b>" in text for text in window.texts("#treemap .slice text"))
            window.pointer("#treemap", 300, 200, press=False)
            window.click("#calls .row")
            assert name in window.text("#details")
        if tab == "timeline":
            window.pointer("#timeline", 700, 70)
        if tab == "placement":
            assert _column(window, "placement", 0) == [name, "other"]
            window.click("#placement .row")
        assert name in window.text("#summary")
        found = window.run(
            "return [window.hacked ?? null, document.querySelectorAll('img, iframe').length,"
            " document.querySelectorAll('script').length,"
            " [...document.querySelectorAll('a')].filter(a => /script/.test(a.href + a.getAttribute"
            "('xlink:href'))).length]"
        )
        assert found == [None, 0, 3, 0]
    assert window.complaints() == []


def test_nothing_is_loaded(opened: Browser) -> None:
    assert opened.run("return performance.getEntriesByType('resource').length") == 0


def test_pictures(opened: Browser, tmp_path: Path) -> None:
    """There is something to see: a picture of each tab has many colours or much text."""
    for tab in ("operators", "timeline", "memory", "placement"):
        _tab(opened, tab)
        path = tmp_path / f"{tab}.png"
        opened.screenshot(path)
        assert path.stat().st_size > 15_000
