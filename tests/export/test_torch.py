"""`model.py` of PyTorch: what it lacks."""

from dataclasses import replace

import pytest

from tests.export.small_runs import small_run
from triglot.backends.libraries import find
from triglot.core.errors import TriglotError
from triglot.export.models import specs_of
from triglot.export.sources import network_source

pytestmark = pytest.mark.packaging

pytest.importorskip("torch", reason="the extra torch is not installed")


def test_an_activation_that_pytorch_lacks_is_refused() -> None:
    spec = next(iter(specs_of(small_run("continuous")).values()))
    other = replace(spec, torso=replace(spec.layers, activation="squareplus"))
    with pytest.raises(TriglotError, match="torch has no activation 'squareplus'"):
        network_source("actor", other, find("torch"))
