"""Options of several dataclasses side by side behave as those of one."""

from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from triglot import rl
from triglot.core.hyper import as_hyperparams, for_environment, with_schedules
from triglot.core.options import (
    OptionTable,
    are_options_of,
    option_fields,
    option_values,
    replace_options,
    select_options,
)
from triglot.core.types import by_path
from triglot.runs.registry.overrides import from_overrides, overrides_of


@rl.pytree_dataclass
class Inner:
    learning_rate: rl.Number = 0.5
    discount: rl.Number = rl.by_environment(0.9, images=0.99)


@rl.pytree_dataclass
class Added:
    added_coef: rl.Number = 1.0


@dataclass(frozen=True)
class Plain:
    sizes: tuple[int, ...] = (4, 4)


TABLE = OptionTable("Inner+addedHyperparams", (Inner, Added))
NAMES = ["learning_rate", "discount", "added_coef"]


def test_values_are_attributes_that_cannot_be_set() -> None:
    values: Any = TABLE(added_coef=2.0)
    assert [one.name for one in option_fields(TABLE)] == NAMES
    assert [one.name for one in option_fields(values)] == NAMES
    assert option_values(values) == {"learning_rate": 0.5, "discount": None, "added_coef": 2.0}
    assert values.added_coef == 2.0 and values.parts == (Inner(), Added(added_coef=2.0))
    with pytest.raises(FrozenInstanceError, match="added_coef"):
        values.added_coef = 3.0
    with pytest.raises(TypeError, match="no field 'other'"):
        TABLE(other=1)


def test_equal_values_are_one_static_argument() -> None:
    again = OptionTable("Inner+addedHyperparams", (Inner, Added))
    assert again == TABLE and TABLE() == again() and hash(TABLE()) == hash(again())
    assert TABLE() != TABLE(added_coef=2.0) and TABLE() != Inner()
    assert OptionTable("Inner+addedHyperparams", (Inner,)) != TABLE


def test_changed_values_are_a_copy() -> None:
    values: Any = TABLE()
    changed = replace_options(values, {"added_coef": 3.0, "discount": 0.8})
    assert (changed.added_coef, changed.discount, values.added_coef) == (3.0, 0.8, 1.0)
    assert replace_options(Inner(), {"discount": 0.8}) == Inner(discount=0.8)
    with pytest.raises(TypeError, match="no field 'other'"):
        replace_options(values, {"other": 1})


def test_parts_are_selected() -> None:
    values = OptionTable("all", (Inner, Added, Plain))(discount=0.8)
    assert select_options(values, Inner) == Inner(discount=0.8)
    assert select_options(values, TABLE) == TABLE(discount=0.8)
    assert are_options_of(TABLE, select_options(values, TABLE))
    assert not are_options_of(TABLE, values) and are_options_of(Inner, Inner())


def test_jax_sees_the_fields_of_one_dataclass() -> None:
    values = TABLE(discount=0.9)
    assert list(by_path(values)) == NAMES
    doubled = jax.jit(lambda given: jax.tree.map(lambda number: 2 * number, given))(values)
    assert are_options_of(TABLE, doubled)
    assert jnp.allclose(doubled.discount, 1.8)


def test_hyperparameters_are_completed_by_name() -> None:
    values: Any = as_hyperparams("Inner+added", {"added_coef": "linear(1, 0)"}, TABLE())
    values = with_schedules(for_environment(values, ["images"]))
    assert values.discount == 0.99 and isinstance(values.added_coef, rl.Schedule)


def test_options_go_through_json() -> None:
    table = OptionTable("all", (Inner, Plain))
    given = {"sizes": [2, 3], "learning_rate": 0.1}
    values = from_overrides(table, given)  # pyright: ignore[reportArgumentType]
    assert values == table(sizes=(2, 3), learning_rate=0.1)
    assert overrides_of(values) == {"learning_rate": 0.1, "sizes": (2, 3)}
