"""The commands of docs/serve.md, against a service as a user starts it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs import pages


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_runs(start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(db=f"sqlite:///{tmp_path}/regimekit.db")
    (tmp_path / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    real = pages.run_shell

    def at_this_service(block: pages.Block, folder: Path) -> None:
        code = block.code.replace("localhost:8000", f"127.0.0.1:{server.port}")
        real(block._replace(code=code), folder)

    monkeypatch.setattr(pages, "run_shell", at_this_service)
    assert pages.run_page("docs/serve.md", tmp_path) == 2
    assert (tmp_path / "press3.regimekit").stat().st_size > 1000
    assert len(server.rows("press3")) == 3
