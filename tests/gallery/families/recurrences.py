"""Linear recurrences: LRU, S5."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


def scanned(decay, drive):
    """Compute x[t] = decay * x[t - 1] + drive[t] for `[T, N]`, starting from 0."""

    def join(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    decays = jnp.broadcast_to(decay, drive.shape)
    return jax.lax.associative_scan(join, (decays, drive))[1]


class EquinoxLRU(eqx.Module):
    """Orvieto et al. 2023: a diagonal complex recurrence, stable by its parametrization."""

    nu: jax.Array
    theta: jax.Array
    gamma: jax.Array
    inputs: jax.Array
    outputs: jax.Array
    skip: jax.Array

    def __init__(self, width, states, key):
        keys = jax.random.split(key, 4)
        modulus = jax.random.uniform(keys[0], (states,), minval=0.5, maxval=0.95)
        self.nu = jnp.log(-jnp.log(modulus))
        self.theta = jnp.log(jax.random.uniform(keys[1], (states,), minval=0.1, maxval=3.0))
        self.gamma = jnp.log(jnp.sqrt(1 - modulus**2))
        self.inputs = jax.random.normal(keys[2], (2, width, states)) / (2 * width) ** 0.5
        self.outputs = jax.random.normal(keys[3], (2, states, width)) / states**0.5
        self.skip = jnp.full((width,), 0.5)

    def __call__(self, u):
        decay = jnp.exp(-jnp.exp(self.nu) + 1j * jnp.exp(self.theta))  # counterpart: decay_exp
        drive = u @ (self.inputs[0] + 1j * self.inputs[1])
        x = scanned(decay, jnp.exp(self.gamma) * drive)  # counterpart: gamma_missing
        y = (x @ (self.outputs[0] + 1j * self.outputs[1])).real  # counterpart: imaginary
        return y + self.skip * u


class EquinoxLRUModel(eqx.Module):
    embed: eqx.nn.Linear
    norms: list[eqx.nn.LayerNorm]
    layers: list[EquinoxLRU]
    out: eqx.nn.Linear

    def __init__(self, width, states, depth, key):
        keys = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Linear(3, width, key=keys[0])
        self.norms = [eqx.nn.LayerNorm(width) for _ in range(depth)]
        self.layers = [EquinoxLRU(width, states, each) for each in keys[2:]]
        self.out = eqx.nn.Linear(width, 5, key=keys[1])

    def __call__(self, u):
        x = jax.vmap(self.embed)(u)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + jax.nn.gelu(layer(jax.vmap(norm)(x)))
        return jax.vmap(self.out)(x)


def equinox_lru(width=8, states=6, depth=2):
    return lambda key: EquinoxLRUModel(width, states, depth, key)


def normal(scale):
    return nn.initializers.normal(scale)


class LinenLRU(nn.Module):
    states: int
    bug: str

    @nn.compact
    def __call__(self, u):
        width, n = u.shape[-1], (self.states,)
        nu, theta = self.param("nu", normal(0.5), n), self.param("theta", normal(0.5), n)
        gamma = self.param("gamma", normal(0.5), n)
        inputs = self.param("inputs", normal(width**-0.5), (2, width, self.states))
        outputs = self.param("outputs", normal(self.states**-0.5), (2, self.states, width))
        skip = self.param("skip", normal(0.5), (width,))
        rate = nu if self.bug == "decay_exp" else jnp.exp(nu)  # planted: decay_exp
        modulus, angle = jnp.exp(-rate), jnp.exp(theta)  # planted: decay_exp
        decay = modulus * (jnp.cos(angle) + 1j * jnp.sin(angle))  # planted: decay_exp
        drive = u @ (inputs[0] + 1j * inputs[1])
        if self.bug != "gamma_missing":
            drive = jnp.exp(gamma) * drive  # planted: gamma_missing
        x = jax.vmap(scanned, (None, 0))(decay, drive)  # planted: gamma_missing
        y = x @ (outputs[0] + 1j * outputs[1])
        y = y.imag if self.bug == "imaginary" else y.real  # planted: imaginary
        return y + skip * u  # planted: imaginary


class LinenLRUModel(nn.Module):
    width: int = 8
    states: int = 6
    depth: int = 2
    bug: str = ""

    @nn.compact
    def __call__(self, u):
        x = nn.Dense(self.width)(u)
        for _ in range(self.depth):
            x = x + nn.gelu(LinenLRU(self.states, self.bug)(nn.LayerNorm(1e-5)(x)))
        return nn.Dense(5)(x)


class NNXS5(nnx.Module):
    """Smith et al. 2023: diagonal, discretized by a zero-order hold."""

    def __init__(self, width, states, rngs):
        draw, key = jax.random.normal, rngs.params
        self.rate = nnx.Param(draw(key(), (states,)) - 1.0)
        self.frequency = nnx.Param(3.0 * draw(key(), (states,)))
        self.log_step = nnx.Param(draw(key(), (states,)) - 2.0)
        self.inputs = nnx.Param(draw(key(), (2, width, states)) / width**0.5)
        self.outputs = nnx.Param(draw(key(), (2, states, width)) / states**0.5)
        self.skip = nnx.Param(draw(key(), (width,)))

    def __call__(self, u):
        poles = -jnp.exp(self.rate[...]) + 1j * self.frequency[...]
        step = jnp.exp(self.log_step[...])  # counterpart: step_softplus
        decay = jnp.exp(poles * step)
        scale = (decay - 1) / poles  # counterpart: unscaled_input
        drive = scale * (u @ (self.inputs[0] + 1j * self.inputs[1]))  # counterpart: unscaled_input
        x = jax.vmap(scanned, (None, 0))(decay, drive)
        y = 2 * (x @ (self.outputs[0] + 1j * self.outputs[1])).real  # counterpart: half_pairs
        return nnx.gelu(y + self.skip[...] * u)  # counterpart: half_pairs


class NNXS5Model(nnx.Module):
    def __init__(self, width, states, depth, rngs):
        self.embed = nnx.Linear(3, width, rngs=rngs)
        self.layers = nnx.List(NNXS5(width, states, rngs) for _ in range(depth))
        self.out = nnx.Linear(width, 5, rngs=rngs)

    def __call__(self, u):
        x = self.embed(u)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x.mean(1))


def nnx_s5(width=8, states=6, depth=2):
    return lambda rngs: NNXS5Model(width, states, depth, rngs)


def jax_s5(width=8, states=6, depth=2, bug=""):
    def init(key):
        keys = iter(jax.random.split(key, 6 * depth + 2))

        def draw(*shape, scale=1.0):
            return scale * jax.random.normal(next(keys), shape)

        def dense(inputs, outputs):
            return {"w": draw(inputs, outputs, scale=inputs**-0.5), "b": jnp.zeros(outputs)}

        layers = [
            {
                "rate": draw(states) - 1.0,
                "frequency": draw(states),
                "log_step": draw(states) - 2.0,
                "inputs": draw(2, width, states, scale=width**-0.5),
                "outputs": draw(2, states, width, scale=states**-0.5),
                "skip": draw(width),
            }
            for _ in range(depth)
        ]
        return {"embed": dense(3, width), "layers": layers, "out": dense(width, 5)}

    def layer(p, u):
        poles = -jnp.exp(p["rate"]) + 1j * p["frequency"]
        hold = jax.nn.softplus if bug == "step_softplus" else jnp.exp  # planted: step_softplus
        step = hold(p["log_step"])  # planted: step_softplus
        decay = jnp.exp(poles * step)
        drive = u @ (p["inputs"][0] + 1j * p["inputs"][1])
        if bug != "unscaled_input":
            drive = drive * (decay - 1) / poles  # planted: unscaled_input
        _, x = jax.lax.scan(  # planted: unscaled_input
            lambda x, d: (decay * x + d, decay * x + d),
            jnp.zeros_like(drive[:, 0]),
            drive.swapaxes(0, 1),
        )
        y = (x.swapaxes(0, 1) @ (p["outputs"][0] + 1j * p["outputs"][1])).real
        y = y if bug == "half_pairs" else 2 * y  # planted: half_pairs
        return jax.nn.gelu(y + p["skip"] * u)  # planted: half_pairs

    def apply(params, u):
        x = u @ params["embed"]["w"] + params["embed"]["b"]
        for p in params["layers"]:
            x = x + layer(p, x)
        return x.mean(1) @ params["out"]["w"] + params["out"]["b"]

    return init, apply


PAIRS = (
    Pair(
        name="lru",
        source="Orvieto et al. 2023",
        libraries=("equinox", "linen"),
        one=equinox_lru,
        other=LinenLRUModel,
        inputs=Box((10, 3)),
        bugs=(
            Bug(
                "decay_exp",
                ("activation", "operation_missing"),
                "decay exp(-nu), not exp(-exp(nu))",
            ),
            Bug(
                "gamma_missing",
                ("operation_missing", "not_trainable"),
                "leaves out the input's factor gamma",
            ),
            Bug("imaginary", ("operation_differs",), "takes the imaginary part, not the real one"),
        ),
    ),
    Pair(
        name="s5",
        source="Smith et al. 2023",
        libraries=("nnx", "jax"),
        one=nnx_s5,
        other=jax_s5,
        inputs=Box((10, 3)),
        bugs=(
            Bug("step_softplus", ("activation",), "steps by softplus, not by exp"),
            Bug(
                "unscaled_input",
                ("operation_missing",),
                "leaves out the hold's factor of the input",
            ),
            Bug(
                "half_pairs",
                ("constant", "operation_missing"),
                "leaves out the factor 2 of conjugate pairs",
            ),
        ),
    ),
)
