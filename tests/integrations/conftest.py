"""A local Spark for the tests, and a reason to skip them where there can be none."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip(
        "pyspark", reason="pyspark is not installed: pip install 'regimekit[spark]'"
    )
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: apt-get install default-jre-headless")
    from spark_stream import session

    started = session()
    yield started
    started.stop()
