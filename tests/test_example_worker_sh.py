"""examples/worker.sh against a real server, through a network that loses answers."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from tests.support.raw_http import Server, receive_all, run_server

WORKER = Path(__file__).parents[1] / "examples" / "worker.sh"
SECONDS = 60


class LossyProxy:
    """Hands requests on, each on a connection of its own, and loses every third answer after it was made."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost = 0
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _serve(self) -> None:
        count = 0
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                count += 1
                Thread(target=self._forward, args=(client, count % 3 == 0), daemon=True).start()

    def _forward(self, client: socket.socket, lose: bool) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port), timeout=120) as server:
            data = b""
            while b"\r\n\r\n" not in data:
                data += client.recv(65_536)
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            while len(body) < length:
                body += client.recv(65_536)
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            answer = receive_all(server)
            if lose:
                self.lost += 1
            else:
                client.sendall(answer)


@contextmanager
def run_lossy_proxy(server: Server) -> Iterator[LossyProxy]:
    network = LossyProxy(server.port)
    try:
        yield network
    finally:
        network.close()


def run_worker_script(address: str, type: str, script: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(WORKER), address, type, str(script)],
        env={**os.environ, "ONEJOB_PAUSE": "0.05", **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def write_script(path: Path, text: str) -> Path:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o700)
    return path


def test_every_job_runs_once_although_answers_are_lost(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = write_script(
        tmp_path / "double.sh", f'echo "$ONEJOB_JOB_ID $ONEJOB_TOKEN" >> {ran}; jq "{{twice: (.n * 2)}}"'
    )
    with run_server(tmp_path) as server, run_lossy_proxy(server) as network:
        jobs = [server.submit(f"k{n}", {"type": "double", "input": {"n": n}}).body["job"]["id"] for n in range(4)]
        done = run_worker_script(network.address, "double", script, ONEJOB_JOBS="4")
        assert done.returncode == 0, done.stderr
        assert network.lost >= 4
        for n, job_id in enumerate(jobs):
            job = server.ask("GET", f"/api/jobs/{job_id}").body["job"]
            assert (job["state"], job["attempts"]) == ("success", 1)
            assert server.ask("GET", f"/api/jobs/{job_id}/result").body == {"twice": 2 * n}
    assert sorted(ran.read_text().splitlines()) == sorted(f"{job_id} 1" for job_id in jobs)


def test_a_command_that_fails_is_tried_again_or_not(tmp_path: Path) -> None:
    script = write_script(tmp_path / "fail.sh", 'echo "no luck" >&2; exit "$(jq .)"')
    with run_server(tmp_path) as server:
        path = f"http://127.0.0.1:{server.port}"
        for status, state in ((3, "scheduled"), (65, "failed")):
            job_id = server.submit(f"k{status}", {"type": f"t{status}", "input": status}).body["job"]["id"]
            assert run_worker_script(path, f"t{status}", script, ONEJOB_JOBS="1").returncode == 0
            job = server.ask("GET", f"/api/jobs/{job_id}").body["job"]
            assert (job["state"], job["error"]) == (state, f"status {status}: no luck")


def test_a_long_command_is_kept_its_lines_are_told_and_a_cancelled_one_is_stopped(tmp_path: Path) -> None:
    script = write_script(tmp_path / "long.sh", f'echo begun >&2; touch {tmp_path}/begun; exec sleep "$(jq .)"')
    with run_server(tmp_path) as server:
        path = f"http://127.0.0.1:{server.port}"
        job_id = server.submit("long", {"type": "long", "input": 2.8}).body["job"]["id"]
        assert run_worker_script(path, "long", script, ONEJOB_JOBS="1", ONEJOB_LEASE="2.5").returncode == 0
        job = server.ask("GET", f"/api/jobs/{job_id}").body["job"]
        assert (job["state"], job["attempts"]) == ("success", 1)
        assert server.ask("GET", f"/api/jobs/{job_id}/logs").body["lines"] == ["begun"]
        cancelled = server.submit("cancelled", {"type": "long", "input": 50}).body["job"]["id"]
        (tmp_path / "begun").unlink()
        with subprocess.Popen(
            [str(WORKER), path, "long", str(script)],
            env={**os.environ, "ONEJOB_JOBS": "1", "ONEJOB_LEASE": "1"},
        ) as running:
            while not (tmp_path / "begun").exists():
                assert running.poll() is None
            server.ask("POST", f"/api/jobs/{cancelled}/cancel")
            assert running.wait(60) == 0
        assert json.loads(server.ask("GET", f"/api/jobs/{cancelled}").content)["job"]["state"] == "cancelled"
