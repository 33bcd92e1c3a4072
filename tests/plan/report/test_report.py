"""What a plan looks like: the terminal's page, the HTML document, JSON and the trace."""

from __future__ import annotations

import html as html_module
import io
import json
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from shardwise.plan.report import as_json, html, terminal, trace
from shardwise.plan.report.figures import size_text, spec_text, time_text
from shardwise.plan.report.totals import buffer_totals, leaves, op_totals
from shardwise.planner.result import Buffer
from tests.plan.report.made import FILE, plan_of

HOSTILE = "</script><img src=x onerror=alert(1)>"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1,023 B"), (1024, "1 KiB"), (1536, "1.50 KiB"), (71.3 * 2**30, "71.3 GiB")]
)
def test_sizes(nbytes, text):
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (4.1, "4.10 s"), (3.1e-4, "310 us"), (2e-9, "2 ns"), (90, "90 s")]
)
def test_times(seconds, text):
    assert time_text(seconds) == text


def test_specs_read_as_users_write_them():
    assert spec_text(((), ("x",), ("y", "z"), ())) == "P(None, 'x', ('y', 'z'))"
    assert spec_text(((), ())) == ""


# -- totals ---------------------------------------------------------------------------------------------------------------------


def test_loops_count_all_their_trips():
    scanned, unrolled = op_totals(plan_of(scanned=True)), op_totals(plan_of(scanned=False))
    assert [(t.name, t.times) for t in scanned] == [(t.name, t.times) for t in unrolled]
    assert [t.seconds for t in scanned] == pytest.approx([t.seconds for t in unrolled])
    assert sum(n for _, n in leaves(plan_of(layers=7).schedule)) == 22


def test_layers_are_one_row():
    rows = buffer_totals(plan_of(layers=80).buffers)
    assert [(b.name, b.count) for b in rows if b.kind == "saved"] == [("tanh", 80)]
    assert [b.nbytes * b.count for b in rows] == sorted((b.nbytes * b.count for b in rows), reverse=True)


def test_arguments_that_differ_in_numbers_are_one_row():
    names = [f"params[{i}]['w{j}']" for i in range(12) for j in range(2)] + ["x"]
    (layers, other) = buffer_totals([Buffer(name, "argument", 8, "f32[2]") for name in names])
    assert (layers.name, layers.count, other.name, other.count) == ("params[*]['w*']", 24, "x", 1)


# -- the terminal ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("scanned", [True, False])
def test_no_line_is_wider_than_the_terminal(width, scanned):
    lines = terminal.text(plan_of(scanned=scanned, capacity=40, name="step" * 30), width).splitlines()
    assert max(map(len, lines)) <= width


def test_plans_of_one_name_are_told_apart_in_short_lines():
    lines = terminal.short_lines([plan_of(), plan_of(2, name="f"), plan_of(3, name="f")])
    assert [line.partition(": fits: ")[0] for line in lines] == [
        "train_step (20 x)", *["f with bf16[80,8192,1024] (20 x)"] * 2
    ]  # fmt: skip


def test_the_verdict_comes_first():
    lines = terminal.text(plan_of()).splitlines()
    assert lines[1] == "fits: 62 GiB of 95 GiB; 2.50 s a step; bound by matrix products"
    lines = terminal.text(plan_of(capacity=40)).splitlines()
    assert lines[1].startswith("does not fit: 62 GiB of 40 GiB, 22 GiB too much")


def test_color_only_where_the_terminal_takes_it(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for file, colored in ((io.StringIO(), False), (Terminal(), True)):
        terminal.show(plan_of(), file)
        assert ("\x1b[" in file.getvalue()) is colored
    monkeypatch.setenv("NO_COLOR", "1")
    file = Terminal()
    terminal.show(plan_of(), file)
    assert "\x1b[" not in file.getvalue()


# -- JSON and the trace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scanned", [True, False])
def test_json_gives_the_plan_back(scanned):
    plan = plan_of(scanned=scanned)
    assert as_json.from_json(as_json.to_json(plan)) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "no plan"),
        ("{}", "no plan"),
        ('{"version": 99}', "version 99"),
        ('{"version": 1, "x": 2}', "no field 'x'"),
    ],
)
def test_documents_that_are_no_plan(text, message):
    with pytest.raises(ValueError, match=message):
        as_json.from_json(text)


def test_the_trace_has_every_trip_on_its_stream():
    events = json.loads(trace.to_trace(plan_of(layers=80)))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    done = [e for e in events if e["ph"] == "X"]
    assert sorted(names.values()) == ["compute", "ici", "loops"]
    assert len([e for e in done if names[e["tid"]] == "ici"]) == 80
    for stream in ("compute", "ici"):  # a stream does one thing at a time
        own = sorted((e["ts"], e["dur"]) for e in done if names[e["tid"]] == stream)
        assert all(a + n <= b + 1e-3 for (a, n), (b, _) in pairwise(own))
    assert max(e["ts"] + e["dur"] for e in done) == pytest.approx(2.5e6)


def test_a_long_trace_says_what_is_left_out(monkeypatch):
    monkeypatch.setattr(trace, "EVENTS", 50)
    document = json.loads(trace.to_trace(plan_of(layers=80)))
    assert len([e for e in document["traceEvents"] if e["ph"] == "X"]) <= 55
    assert document["otherData"] == {"trips of loops that are not drawn": 64}


# -- HTML -----------------------------------------------------------------------------------------------------------------------


class Document(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.ids, self.scripts, self.references, self.kinds, self._inside = [], [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.kinds.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.references += [v for k, v in attrs if k in ("src", "href", "srcset", "data", "action")]
        self._inside = found if tag == "script" else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            self.scripts.append((self._inside.get("type"), data))


def page_of(tmp_path, **keywords):
    """The page of a plan whose lines are in a file that there is, with hostile names and source."""
    file = tmp_path / "layers.py"
    file.write_text("".join(f"x = {i}  # {HOSTILE}\n" for i in range(1, 130)))
    plan = plan_of(name=HOSTILE, **keywords)
    text = as_json.to_json(plan).replace(json.dumps(FILE), json.dumps(str(file)))
    return html.to_html(as_json.from_json(text))


def test_the_page_stands_alone(tmp_path):
    page = page_of(tmp_path)
    document = Document(page)
    assert len(document.ids) == len(set(document.ids))
    assert document.kinds.count("script") == 2 and "img" not in document.kinds and "link" not in document.kinds
    assert all(r.startswith("#") for r in document.references)
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "") and "https:" not in page
    (kind, data), (_, script) = document.scripts
    assert kind == "application/json" and "<" not in data
    assert json.loads(data)["name"] == HOSTILE
    assert html_module.escape(HOSTILE) in page
    for name in document.ids:  # each part of the frame is filled by the script, or a section that a link leads to
        assert f'"{name}"' in script or name in page.partition("</main>")[0]


def test_large_plans_make_small_pages():
    assert 40_000 < len(html.to_html(plan_of(layers=4000, scanned=False))) < 2_000_000


def test_the_curve_keeps_its_peak():
    plan = plan_of()
    profile = tuple((i * 1e-3, 1000 + (10**6 if i == 7777 else i % 13)) for i in range(20_000))
    drawn = html.page_data(as_json.from_json(as_json.to_json(plan)))["profile"]
    assert drawn == [list(p) for p in plan.profile]
    fewer = html._fewer(profile)
    assert (
        len(fewer) <= html.POINTS + 1 and max(n for _, n in fewer) == 1001000 and fewer[-1][0] == pytest.approx(19.999)
    )


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("scanned", [True, False])
def test_a_browser_shows_it(tmp_path, width, scanned):
    """In Chromium: no errors, tables filled, nothing wider than the window. Without one the document's checks above stand alone."""
    if CHROMIUM is None:
        assert len(Document(page_of(tmp_path, scanned=scanned)).scripts) == 2
        print("There is no Chromium: the page was not drawn.")
        return
    probe = """<script>
    const many = (query) => document.querySelectorAll(query).length;
    document.title = JSON.stringify({
      wide: document.documentElement.scrollWidth - innerWidth, rows: many("tbody tr"), drawn: many("svg path"), images: many("img"),
      lanes: document.querySelector("canvas").height, hot: many("tr.hot"), verdict: document.getElementById("verdict").textContent,
    });
    </script></body>"""
    errors = (
        '<script>addEventListener("error", e => { document.documentElement.dataset.error = e.message })</script><style>'
    )
    page = page_of(tmp_path, scanned=scanned).replace("<style>", errors, 1).replace("</body>", probe)
    file = tmp_path / "page.html"
    file.write_text(page)
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run(
        [*words, f"--window-size={width},900", "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert "data-error" not in done.stdout
    told = json.loads(html_module.unescape(done.stdout.partition("<title>")[2].partition("</title>")[0]))
    assert told["wide"] <= 0 and told["images"] == 0 and told["lanes"] > 0
    assert told["rows"] > 40 and told["drawn"] == 2 and told["hot"] >= 5
    assert told["verdict"].startswith("fits: 62 GiB")
