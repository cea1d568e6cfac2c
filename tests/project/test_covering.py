"""The cases that stay of a large table, and those that `@pytest.mark.covering` leaves quick."""

import itertools

from tests.covering import choose_covering, pairwise

TABLE = [{("a", a), ("b", b)} for a, b in itertools.product(range(6), range(4))]
LIST = [{("a", a)} for a in range(10)]


def test_each_value_of_each_axis_is_covered_by_as_many_cases_as_the_longest_axis_has() -> None:
    chosen = choose_covering(TABLE)
    assert set().union(*(TABLE[index] for index in chosen)) == set().union(*TABLE)
    assert len(chosen) == 6


def test_axes_with_the_same_values_are_not_covered_by_pairs_of_equal_ones() -> None:
    pairs = list(itertools.product(range(7), repeat=2))
    chosen = choose_covering([{("source", one), ("target", other)} for one, other in pairs])
    assert sum(pairs[index][0] == pairs[index][1] for index in chosen) <= 2


def test_a_number_with_a_factor_of_an_axis_covers_the_axis() -> None:
    chosen = choose_covering(TABLE, 4)  # each fourth case would have one and the same `b`
    assert set().union(*(TABLE[index] for index in chosen)) == set().union(*TABLE)


def test_a_number_limits_the_cases() -> None:
    assert len(choose_covering(TABLE, 8)) == 3
    assert choose_covering(LIST, 3) == {0, 3, 6, 9}
    assert choose_covering(LIST) == set(range(10))


def test_all_pairs_of_three_axes_are_shown_by_about_as_many_cases_as_two_axes_have() -> None:
    table = list(itertools.product("abcde", range(4), "xyz"))
    chosen = pairwise(table)
    for axes in itertools.combinations(range(3), 2):
        shown = {tuple(case[axis] for axis in axes) for case in chosen}
        assert shown == {tuple(case[axis] for axis in axes) for case in table}
    assert len(chosen) <= 24
    assert pairwise(itertools.product("ab", range(3))) == list(itertools.product("ab", range(3)))
