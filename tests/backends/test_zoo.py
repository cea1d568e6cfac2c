"""What all zoos have in common."""

from typing import Any

import jax
import pytest

from triglot.backends import build
from triglot.core.networks.architecture import MLP, NetworkSpec, policy_head
from triglot.core.specs import Box

BACKENDS = ("haiku", "linen", "nnx", "equinox")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_network_is_built_without_compiling(backend: str) -> None:
    def spec(width: int) -> NetworkSpec:
        return NetworkSpec(Box((4,)), MLP((width,)), (("logits", policy_head(2)),))

    build(backend, {"actor": spec(5)})  # makes the first key of the process
    compiled = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        compiled.extend([duration_secs] if event.endswith("backend_compile_duration") else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.jit(lambda: 1)()  # the listener hears it
        build(backend, {"actor": spec(20 + BACKENDS.index(backend))})
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) == 1
