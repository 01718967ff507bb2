"""The files in `deploy/` parse, refer to what exists, and their commands are valid.

No container engine, cluster or systemd runs in the tests: images are not built here.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from regimekit.cli import app as command_line
from regimekit.integrations.prometheus import load_config
from regimekit.server.app import create_app
from regimekit.server.config import Config

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def check_command(arguments: list[str]) -> None:
    """Parse the arguments of `regimekit` without running the command."""
    group: Any = typer.main.get_command(command_line)
    name, *options = arguments
    group.commands[name].make_context(name, options)


def instructions(text: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", text))
    lines = [line for line in joined.splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_dockerfile() -> None:
    found = instructions((DEPLOY / "docker" / "Dockerfile").read_text())
    known = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE"}
    assert {name for name, _ in found} <= known | {"HEALTHCHECK", "ENTRYPOINT", "CMD"}
    stages = [value for name, value in found if name == "FROM"]
    assert len(stages) == 2, "the compiler stays in the first stage"
    assert all(":" in stage.split()[0] and "latest" not in stage for stage in stages)
    last = found[max(i for i, (name, _) in enumerate(found) if name == "FROM") :]
    assert [value for name, value in last if name == "USER"] == ["10001"]
    for name, value in found:
        sources = shlex.split(value)[:-1]
        if name == "COPY" and not sources[0].startswith("--from"):
            assert all((ROOT / source).exists() for source in sources), value
        if name in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(value), list)
    check_command(json.loads(next(value for name, value in last if name == "CMD")))
    installed = re.search(r'"\.\[([\w,]+)\]"', str(found))
    assert installed is not None
    extras = re.findall(r"(?m)^(\w+) = \[", (ROOT / "pyproject.toml").read_text())
    assert set(installed[1].split(",")) <= set(extras)


def test_compose() -> None:
    folder = DEPLOY / "docker"
    content = yaml.safe_load((folder / "compose.yml").read_text())
    services = content["services"]
    assert {"postgres", "prometheus", "grafana", "regimekit", "bridge"} <= set(services)
    for name, service in services.items():
        assert "image" in service, name
        assert set(service.get("depends_on", ())) <= set(services)
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (folder / source).exists(), source
            else:
                assert source in content["volumes"], source
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "not open to other machines by default"
        for secret in service.get("secrets", ()):
            assert secret in content["secrets"]
    check_command(services["regimekit"]["command"])
    check_command(services["bridge"]["command"])
    build = services["regimekit"]["build"]
    assert (folder / build["context"] / build["dockerfile"]).is_file()
    wanted = set(re.findall(r"\$\{(\w+)", (folder / "compose.yml").read_text()))
    given = set(re.findall(r"(?m)^(\w+)=", (folder / ".env.example").read_text()))
    assert wanted == given


@pytest.mark.parametrize("file", sorted((DEPLOY / "systemd").iterdir()), ids=lambda f: f.name)
def test_systemd_units(file: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(file)
    assert "Unit" in parser
    if file.suffix == ".timer":
        assert (file.with_suffix(".service")).exists()
        return
    command = parser["Service"]["ExecStart"]
    if command.startswith("/bin/sh"):
        command = shlex.split(command)[-1].replace("$$(date +%%Y%%m%%dT%%H%%M%%S)", "now")
    program, *arguments = shlex.split(command)
    assert program == "/opt/regimekit/bin/regimekit"
    check_command(arguments)


def test_kubernetes() -> None:
    entries = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "regimekit.yml").read_text()))
    by_kind = {entry["kind"]: entry for entry in entries}
    assert set(by_kind) == {"Deployment", "Service", "CronJob", "PersistentVolumeClaim"}
    spec = by_kind["Deployment"]["spec"]
    assert spec["replicas"] == 1 and spec["strategy"]["type"] == "Recreate"
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == by_kind["Service"]["spec"]["selector"] == labels
    (container,) = spec["template"]["spec"]["containers"]
    paths = set(create_app(Config()).openapi()["paths"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    arguments = [part.replace("$(REGIMEKIT_DB)", "postgresql://h/n") for part in container["args"]]
    check_command(arguments)
    backup = by_kind["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    claim = backup["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    shell = backup["containers"][0]["command"][-1]
    check_command(shlex.split(shell.replace("$(date +%Y%m%d)", "x"))[1:])


def test_the_configuration_of_the_bridge_is_valid() -> None:
    config = load_config(DEPLOY / "prometheus" / "bridge.yml")
    assert {query.name for query in config.queries} == {"load", "requests"}
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    for file in prometheus["rule_files"]:
        assert (DEPLOY / "prometheus" / file).exists()
