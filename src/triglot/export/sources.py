"""The source text of a network in one library, layer by layer, from its `NetworkSpec`."""

import math
from dataclasses import dataclass, field

from ..backends.calling import describe_inputs
from ..backends.libraries import Library
from ..backends.source import Style
from ..core.errors import TriglotError
from ..core.networks.architecture import CNN, Head, NetworkSpec, Table
from ..core.specs import Box, Spec, byte_range


@dataclass
class Source:
    """The text of one network while it is written.

    Attributes:
      style: of the library.
      constructors: the lines of `__init__`, empty where layers are constructed inline.
      body: the lines of the forward pass.
    """

    style: Style
    constructors: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)

    def layer(self, form: str, label: str, **numbers: object) -> str:
        """Write a layer, and return the expression that is called."""
        constructor = form.format(label=label, index=len(self.constructors), **numbers)
        if self.style.inline:
            return constructor
        self.constructors.append(f"self.{label} = {constructor}")
        return f"self.{label}"

    def dense(self, label: str, before: int, size: int | None) -> str:
        """Apply a dense layer to `x`; a size of None gives a scalar per example."""
        if not self.style.batched:
            shown = '"scalar"' if size is None else size
            return self.layer(self.style.linear, label, before=before, size=shown) + "(x)"
        call = self.layer(self.style.linear, label, before=before, size=size or 1) + "(x)"
        return f"{call}[:, 0]" if size is None else call


def network_source(name: str, spec: NetworkSpec, library: Library) -> str:
    """Write the class or function of one network.

    Raises:
      TriglotError: if the library lacks the network's recurrent cell.
    """
    source = written(spec, library)
    style, separator = source.style, "\n" + " " * source.style.indent
    constructors = list(source.constructors)
    if any("keys[" in constructor for constructor in constructors):
        constructors.insert(0, f"keys = jax.random.split(key, {len(constructors)})")
    return style.network.format(
        name=name,
        class_name=camel(name),
        described=described(spec),
        arguments=", ".join(arguments_of(spec)),
        body=separator.join(source.body),
        made=separator.join(constructors),
        fields="\n    ".join(map(_field, source.constructors)),
    )


def _field(constructor: str) -> str:
    """Declare the attribute that a constructor sets, as Equinox's dataclasses need."""
    target, _, expression = constructor.partition(" = ")
    kind = expression.partition("(")[0]
    return f"{target.removeprefix('self.')}: {'jax.Array' if kind == 'jnp.zeros' else kind}"


def arguments_of(spec: NetworkSpec) -> list[str]:
    """Name the arguments of a network."""
    names = ["obs", "action"] if len(spec.inputs) == 2 else ["obs"]
    if len(spec.inputs) > 2:
        raise TriglotError(f"a plain model has one or two inputs, and the network reads {spec}.")
    return [*names, "carry"] if spec.cell else names


def described(spec: NetworkSpec) -> str:
    """Describe a network's inputs and outputs."""
    heads = ", ".join(f"{name} [B{f', {h.size}' if h.size else ''}]" for name, h in spec.heads)
    return f"{describe_inputs(spec.obs_spec)} -> {heads}"


def written(spec: NetworkSpec, library: Library) -> Source:
    """Write the layers of a network and its forward pass.

    Raises:
      TriglotError: if the library lacks the network's recurrent cell, or the network has norms or
        noisy layers.
    """
    style = library.load_style()
    source = Source(style)
    if spec.plain != spec:
        raise TriglotError(
            f"a plain model reads arrays, and this network reads {describe_inputs(spec.obs_spec)}: "
            "choose the format stablehlo or onnx, or load the run with triglot.load_policy."
        )
    if isinstance(spec.torso, Table):
        _write_table(source, spec)
        return source
    if spec.torso.normalization != "none" or spec.noise is not None:
        raise TriglotError(
            "a plain model has no normalization and no noisy layers, and this network has: choose "
            "another format."
        )
    if isinstance(spec.torso, CNN) and spec.torso.residual:
        raise TriglotError(
            "a plain model has no residual blocks, and this network has: choose the format "
            "safetensors, stablehlo or onnx."
        )
    size = _write_torso(source, spec, library.name)
    if spec.cell is not None:
        if spec.cell.kind not in style.cells:
            raise TriglotError(style.refused)
        cell = style.cells[spec.cell.kind]
        call = source.layer(cell.constructor, "cell", before=size, size=spec.cell.size)
        source.body += [line.format(call=call) for line in cell.lines]
        size = spec.cell.size
    heads = ", ".join(
        f'"{name}": {_head(source, name, head, size)}' for name, head in sorted(spec.heads)
    )
    source.body.append(f"return {{{heads}}}" + (", carry" if spec.cell else ""))
    return source


def _write_torso(source: Source, spec: NetworkSpec, library: str) -> int:
    """Write the layers before the heads, and return the number of features."""
    torso, style, batched = spec.layers, source.style, source.style.batched
    names = arguments_of(spec)[: len(spec.inputs)]
    if len(names) == 1:
        source.body.append(f"x = {_scaled(style.floats.format('obs'), spec.inputs[0])}")
    else:
        for name, spec_of_input in zip(names, spec.inputs, strict=True):
            flat = f"{name}.reshape({name}.shape[0], -1)" if batched else f"jnp.ravel({name})"
            source.body.append(f"{name} = {_scaled(style.floats.format(flat), spec_of_input)}")
        source.body.append(f"x = {style.joined.format(', '.join(names))}")
    activation, shape = style.activation(torso.activation), spec.obs_shape
    if activation is None:
        raise TriglotError(
            f"{library} has no activation {torso.activation!r}: choose another format."
        )
    for index, convolution in enumerate(torso.convolutions):
        numbers = {"before": shape[-1], "size": convolution.channels}
        numbers |= {"window": convolution.size, "stride": convolution.stride}
        call = source.layer(source.style.conv, f"torso_{index}", **numbers)
        source.body.append(f"x = {activation}({style.image.format(call=call)})")
        shape = convolution.output_shape(shape)
    if torso.channels or len(spec.obs_shape) != 1:
        source.body.append("x = x.reshape(x.shape[0], -1)" if batched else "x = jnp.ravel(x)")
    size = math.prod(shape)
    for index, width in enumerate(torso.hidden_sizes, len(torso.channels)):
        source.body.append(f"x = {activation}({source.dense(f'torso_{index}', size, width)})")
        size = width
    return size


def _scaled(floats: str, spec: Spec) -> str:
    """Scale bytes by their declared bounds, as `core.specs.floats` does.

    Raises:
      TriglotError: if the elements have different bounds.
    """
    limits = byte_range(spec) if isinstance(spec, Box) else None
    if limits is None:
        return floats
    low, span = limits
    if not isinstance(low, float):
        raise TriglotError(
            f"a plain model scales all bytes by the same bounds, and the network reads {spec}: "
            "choose the format stablehlo or onnx, or load the run with triglot.load_policy."
        )
    shifted = f"({floats} - {low:.0f})" if low else floats
    return f"{shifted} / {span:.0f}"


def _head(source: Source, name: str, head: Head, size: int) -> str:
    if head.state_independent is not None:
        call = source.layer(source.style.constant, f"head_{name}", size=head.size)
        return source.style.read.format(call=call, size=head.size)
    if not head.dueling:
        offset = f" + {head.offset!r}" if head.offset else ""
        return source.dense(f"head_{name}", size, head.size) + offset
    value = source.dense(f"head_{name}_value", size, 1)
    advantage = source.dense(f"head_{name}_advantage", size, head.size or 1)
    source.body.append(f"advantage = {advantage}")
    return f"{value} + advantage - advantage.mean(axis=-1, keepdims=True)"


def _write_table(source: Source, spec: NetworkSpec) -> None:
    rows = []
    for name, head in sorted(spec.heads):
        numbers = {"rows": spec.num_rows, "size": head.size or 1}
        call = source.layer(source.style.embed, f"head_{name}", **numbers) + "(obs)"
        scalar = "[:, 0]" if source.style.batched else "[0]"
        rows.append(f'"{name}": {call}{scalar if head.size is None else ""}')
    source.body.append(f"return {{{', '.join(rows)}}}")


def camel(name: str) -> str:
    """Name a network's class."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
