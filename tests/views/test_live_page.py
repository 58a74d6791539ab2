"""The server of a training: what it tells, to whom, and that nobody can make it stop one."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time
from urllib.parse import urlsplit

import pytest

import count01_lens as cl
from count01_lens.training.live import LiveTraining
from count01_lens.training.run_directory import TrainingRun
from count01_lens.training.trainer import Trainer
from tests.helpers import PROGRAM, QUICK, SPLITS, run, within
from tests.processes import started

SMALL = ["--heads", "2", "--d-embed", "4", "--epochs", "3", "--batch-size", "700"]
ENDLESS = ["--heads", "2", "--d-embed", "4", "--epochs", "100000", "--batch-size", "700"]
ADDRESS = re.compile(r"watch it live: (http://127\.0\.0\.1:\d+/[\w-]{20,}/)\n")


@pytest.fixture
def training():
    """A training before its first epoch, and how its epochs are trained."""
    stored = TrainingRun([QUICK] * 2, [0, 1], SPLITS, [])
    trainer = Trainer(stored)
    state = trainer.initial_state()
    trainer.begin(state)
    found = LiveTraining(stored, state)

    def epoch():
        trainer.train_epoch(state)
        found.after_epoch()

    found.train = epoch
    return found


@pytest.fixture
def page(training, capsys):
    page = cl.LivePage()
    page.follow(training)
    assert ADDRESS.fullmatch(capsys.readouterr().err)[1] == page.address
    yield page
    page.close()


def ask(page, path="", method="GET", **headers):
    """What a request under the page's address is answered: status, headers, body."""
    parts = urlsplit(page.address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    target = path if path.startswith("/") else parts.path + path
    connection.putrequest(method, target, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def events_of(body):
    found = []
    for block in body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


class Reader(threading.Thread):
    """Reads events until there are no more."""

    def __init__(self, page):
        super().__init__(daemon=True)
        self.page, self.answer = page, None
        self.start()

    def run(self):
        self.answer = ask(self.page, "events")


def test_the_page_asks_its_server_alone_and_tells_nobody_where_it_is(page):
    status, headers, body = ask(page)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'" in body
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert not any(name.lower().startswith("access-control") for name in headers)
    assert not re.search(rb"https?://|@import|url\(", body)


def test_events_are_the_history_as_it_grows(page, training):
    reader = Reader(page)
    assert within(10, lambda: page._server.pages == 1)
    for _ in range(3):
        training.train()
        page.changed()
        time.sleep(0.6)
    training.end("finished")
    page.changed()
    reader.join(timeout=10)
    (first, about), *others = events_of(reader.answer[2])
    assert (first, about["models"], about["epochs"]) == ("about", ["seed 0", "seed 1"], 3)
    assert {event for event, _ in others} == {"news"}
    assert len(others) >= 3
    lines = [line for _, news in others for line in news["lines"]]
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3]
    assert lines == training.news()["lines"]
    assert [news["status"]["state"] for _, news in others][-1] == "finished"
    # Whoever comes later gets it all at once, and no more.
    late = events_of(ask(page, "events")[2])
    assert [news["lines"] for _, news in late[1:]] == [lines]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example",
                                  "localhost.evil.example:1", "", "[::1", "127.0.0.1:1@evil", "0.0.0.0"])  # fmt: skip
def test_other_host_names_are_refused(page, host):
    for path in ("", "events"):
        status, _, body = ask(page, path, Host=host)
        assert (status, body) == (403, b"Forbidden\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8888", "LOCALHOST"])
def test_a_forwarded_port_is_no_other_host(page, host):
    assert ask(page, Host=host)[0] == 200


def test_nothing_else_is_there(page):
    token = urlsplit(page.address).path.strip("/")
    paths = ["/", "//", "/events", f"/{token}", f"/{token[:-1]}/", f"/{token}x/", f"/{token}//",
             f"/{token}/../", f"/{token}/events/", f"/{token}/events?since=0", f"/{token}/index.html",
             "/%2e%2e/etc/passwd", "/../../etc/passwd", f"/{'é' * 20}/".encode().decode("latin-1"),
             f"http://evil.example/{token}/"]  # fmt: skip
    for path in paths[:-3] + paths[-1:]:
        expected = 200 if path == f"/{token}" else 404
        assert ask(page, path)[0] == expected, path


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "NONSENSE"]
)
def test_other_methods_are_refused(page, method):
    status, headers, _ = ask(page, method=method)
    assert status == 501
    assert "Allow" not in headers
    assert not any(name.lower().startswith("access-control") for name in headers)


@pytest.mark.parametrize("sent", [
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(200)) + b"\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
])  # fmt: skip
def test_nonsense_is_answered_with_an_error_and_forgotten(page, sent):
    parts = urlsplit(page.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
    assert b"200 OK" not in answer
    refused = rb"Bad Request|Forbidden|Long|Large|Not Supported"  # before HTTP/1.0 in a word alone
    assert re.search(refused, answer.splitlines()[0])
    assert ask(page)[0] == 200


def test_too_many_pages_are_refused_and_places_are_free_again(page, training):
    readers = [Reader(page) for _ in range(8)]
    assert within(10, lambda: page._server.pages == 8)
    assert ask(page, "events")[0] == 503
    training.end("finished")
    page.changed()
    for reader in readers:
        reader.join(timeout=10)
    assert page._server.pages == 0
    assert ask(page, "events")[0] == 200


def test_a_page_that_does_not_read_holds_nothing_up(page, training, monkeypatch):
    monkeypatch.setattr("count01_lens.views.live_page._FAREWELL", 0.3)
    parts = urlsplit(page.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(f"GET {parts.path}events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert within(10, lambda: page._server.pages == 1)
        page._server.pages += 1  # one that never goes away
        training.end("finished")
        start = time.monotonic()
        page.changed()
        assert time.monotonic() - start < 5


def test_a_port_that_is_taken_stops_no_training():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        page = cl.LivePage(port=taken.getsockname()[1])
        with pytest.warns(UserWarning, match="LivePage failed .OSError: .*training goes on"):
            result = cl.train(QUICK, splits=SPLITS, progress=False, live=page)
    assert result.history["epoch"].max() == 3
    for wrong in (-1, 65536, "80"):
        with pytest.raises(ValueError, match="port: expected"):
            cl.LivePage(port=wrong)


def test_the_server_listens_on_the_loopback_only(page):
    assert page._server.server_address[0] == "127.0.0.1"


def test_the_command_prints_the_address_and_ends(tmp_path):
    done = run("train", "--out", tmp_path / "live", "--live", *SMALL, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ADDRESS.search(done.stderr)
    alone = run("train", "--out", tmp_path / "alone", *SMALL)
    # A longer path makes a wider column.
    assert done.stdout.replace("/live/", "/alone/").split() == alone.stdout.split()
    for path in sorted((tmp_path / "alone").rglob("*.safetensors")):
        other = tmp_path / "live" / path.relative_to(tmp_path / "alone")
        assert path.read_bytes() == other.read_bytes()


def test_ctrl_c_while_somebody_looks_on(tmp_path):
    command = [PROGRAM, "train", "--out", tmp_path / "run", "--live", *ENDLESS]
    with started(*command, stderr=subprocess.PIPE, text=True) as process:
        address = ADDRESS.fullmatch(process.stderr.readline())[1]
        page = cl.LivePage()
        page.address = address
        reader = Reader(page)
        assert within(60, lambda: (tmp_path / "run" / "state.safetensors").exists())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        reader.join(timeout=20)
        assert "the same command goes on" in process.stderr.read()
    told = events_of(reader.answer[2])[-1][1]
    assert told["status"]["state"] == "stopped"
    assert told["lines"] or told["status"]["epoch"]
