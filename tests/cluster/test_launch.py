"""Where ranks are: what ``--on`` may say, and what is refused before anything starts."""

from __future__ import annotations

import datetime
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest

from tartan.cli.main import main
from tartan.cluster import dask_engine
from tartan.cluster.certs import require_valid, temporary_credentials, write_certificates
from tartan.cluster.launch import ClusterTarget, open_engine, parse_cluster
from tartan.errors import ClusterError, ConfigError, TartanError


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("local:4", ClusterTarget(n_local=4)),
        ("local:1", ClusterTarget(n_local=1)),
        ("tls://node7:8786", ClusterTarget(address="tls://node7:8786")),
        ("tls://10.0.0.7:8786/", ClusterTarget(address="tls://10.0.0.7:8786")),
        ("tls://[fe80::1]:8786", ClusterTarget(address="tls://[fe80::1]:8786")),
        ("tcp://127.0.0.1:8786", ClusterTarget(address="tcp://127.0.0.1:8786")),
        ("tcp://localhost:8786", ClusterTarget(address="tcp://localhost:8786")),
        ("tcp://[::1]:8786", ClusterTarget(address="tcp://[::1]:8786")),
    ],
)
def test_clusters_that_can_be_used(text: str, target: ClusterTarget) -> None:
    assert parse_cluster(text) == target


@pytest.mark.parametrize(
    "text", ["local:0", "local:", "local", "local:-1", "local:x", "local:1.5", "local:257", "local:²"]
)
def test_local_ranks_are_counted(text: str) -> None:
    with pytest.raises(ConfigError, match="local:N starts N ranks on this machine, N from 1 to 256"):
        parse_cluster(text)


@pytest.mark.parametrize(
    "text", ["", "node7:8786", "tls://node7", "http://node7:1", "tls://a b:1", "tls://n:0", "tls://n:99999"]
)
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(
        ConfigError, match="is not an address of a Dask scheduler; a cluster is one of local:4, tls://host:port"
    ):
        parse_cluster(text)


@pytest.mark.parametrize(
    "text", ["tcp://node7:8786", "tcp://10.0.0.7:8786", "tcp://0.0.0.0:1", "tcp://127.0.0.1.evil.org:1"]
)
def test_beyond_this_machine_only_tls(text: str) -> None:
    with pytest.raises(
        ConfigError, match="could run code there and here; make certificates with `tartan cluster-certs"
    ):
        parse_cluster(text)
    assert parse_cluster(text, insecure=True) == ClusterTarget(address=text)


def test_a_scheduler_file(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"type": "Scheduler", "address": "tls://10.1.1.1:8786", "workers": {}}))
    assert parse_cluster(None, scheduler_file=file) == ClusterTarget(address="tls://10.1.1.1:8786")
    file.write_text(json.dumps({"address": "tcp://10.1.1.1:8786"}))
    with pytest.raises(ConfigError, match="without TLS"):
        parse_cluster(None, scheduler_file=file)
    for text in ("", "[]", "{}", '{"address": 7}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"is not the file of a Dask scheduler"):
            parse_cluster(None, scheduler_file=file)
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory; is the scheduler up\?"):
        parse_cluster(None, scheduler_file=tmp_path / "absent")


def test_one_way_to_say_it() -> None:
    for arguments in ((None, None), ("local:2", "file")):
        with pytest.raises(ConfigError, match="a cluster is one of"):
            parse_cluster(arguments[0], scheduler_file=arguments[1])


def test_tls_without_certificates_says_how_to_make_them() -> None:
    with (
        pytest.raises(ConfigError, match="wants a certificate, and Dask's settings name none"),
        open_engine(parse_cluster("tls://127.0.0.1:9"), "run", entry="no:where"),
    ):
        pass


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "from tartan.cluster.launch import open_engine, parse_cluster\n"
        "open_engine(parse_cluster('local:1'), 'run', entry='no:where').__enter__()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "--on needs the extra cluster: pip install 'tartan-allpairs[cluster]'" in result.stderr


def test_certificates_are_written_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "certs: a # strange name"
    paths = write_certificates(folder, days=2)
    assert [path.name for path in paths] == [
        "ca.pem", "server.pem", "server-key.pem", "client.pem", "client-key.pem", "dask.yaml",
    ]  # fmt: skip
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    with pytest.raises(ConfigError, match=r"ca\.pem exists"):
        write_certificates(folder)


def test_dask_finds_the_certificates(tmp_path: Path) -> None:
    import yaml

    folder = tmp_path / "certs: a # strange name"
    write_certificates(folder)
    settings = yaml.safe_load((folder / "dask.yaml").read_text())["distributed"]["comm"]
    assert settings["require-encryption"] is True
    assert settings["tls"]["ca-file"] == f"{folder}/ca.pem"
    assert settings["tls"]["client"] == {"cert": f"{folder}/client.pem", "key": f"{folder}/client-key.pem"}


def test_certificates_that_do_not_hold_are_refused() -> None:
    credentials = temporary_credentials(days=1)
    now = datetime.datetime.now(datetime.UTC)
    for hours in (0, 1, -1):  # clocks may be an hour apart
        require_valid(credentials, now + datetime.timedelta(hours=hours))
    with pytest.raises(ConfigError, match=r"expired on .* make new ones with `tartan cluster-certs DIR`"):
        require_valid(credentials, now + datetime.timedelta(days=2))
    with pytest.raises(ConfigError, match="compare the clocks"):
        require_valid(credentials, now - datetime.timedelta(days=1))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "certs"
    assert main(["cluster-certs", str(folder), "--days", "0.5"]) == 0
    shown = capsys.readouterr()
    assert [Path(line).parent for line in shown.out.split()] == [folder] * 6
    assert f"they hold for 0.5 days; with DASK_CONFIG={folder}" in shown.err
    assert main(["cluster-certs", str(folder)]) == 2
    assert "ca.pem exists, and keys are never replaced; name another folder" in capsys.readouterr().err
    for days in ("0", "-1", "soon", "nan", "99999"):
        assert main(["cluster-certs", str(folder), "--days", days]) == 2
        assert "is not a number of days" in capsys.readouterr().err


def test_the_command_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster-certs", str(tmp_path / "certs"), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["days"] == 7
    assert len(found["files"]) == 6


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TartanError, match="certificates cannot be written to"):
        write_certificates(tmp_path / "file" / "certs")


def test_ranks_on_a_busy_machine_have_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []

    def fail(**options: Any) -> None:
        waits.append(dask.config.get("distributed.comm.timeouts.connect"))
        waits.append(options["config"]["distributed.comm.timeouts.connect"])
        raise RuntimeError("Cluster failed to start: Timed out trying to connect")

    monkeypatch.setattr(dask_engine, "LocalCluster", fail)
    with (
        pytest.raises(ClusterError, match="the ranks could not be started: Cluster failed") as caught,
        open_engine(ClusterTarget(n_local=2), "test", entry="no:entry"),
    ):
        pass
    assert caught.value.retryable
    assert waits == ["60s", "3s"]
