"""A local Spark for the tests, and a reason to skip them where there can be none."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip(
        "pyspark", reason="pyspark is not installed: pip install 'regimekit[spark]'"
    )
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: apt-get install default-jre-headless")
    from spark_driver import session

    started = session()
    yield started
    started.stop()
