"""The gallery's pairs compute the same function, and each planted bug changes something."""

import re
from pathlib import Path

import jax
import pytest

from tests.gallery import checking
from tests.gallery import pair as gallery
from tests.gallery.pair import Bug, Pair
from triglot.core.errors import TriglotError
from triglot.core.network import num_params
from triglot.diff.loading import load_network

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "reference" / "causes.md"
PAIRS = gallery.find_pairs()
BUGS = [(pair, bug) for pair in PAIRS.values() for bug in pair.bugs]

pytestmark = pytest.mark.library_promotion("layers and attention of the libraries mix dtypes")


def title(value: Pair | Bug) -> str:
    return value.name


@pytest.mark.covering(99)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=title)
def test_clean_networks_compute_the_same_function(pair: Pair) -> None:
    assert checking.largest_difference(pair) < 1e-4


@pytest.mark.covering(99)
@pytest.mark.parametrize(("pair", "bug"), BUGS, ids=title)
def test_a_bug_changes_parameters_outputs_or_training(pair: Pair, bug: Bug) -> None:
    assert checking.effect(pair, bug.name)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=title)
def test_the_lines_of_a_bug_are_marked(pair: Pair) -> None:
    marked = gallery.marks(pair.file)["planted"]
    assert len(pair.bugs) >= 3
    for bug in pair.bugs:
        assert bug.name in marked, f"no line is marked `# planted: {bug.name}`"


def test_all_marks_name_a_bug_of_their_module() -> None:
    for file in {pair.file for pair in PAIRS.values()}:
        bugs = [bug.name for pair in PAIRS.values() if pair.file == file for bug in pair.bugs]
        assert len(bugs) == len(set(bugs)), f"two bugs of {file.name} have one name"
        for kind, lines in gallery.marks(file).items():
            assert not lines.keys() - set(bugs), f"{kind} in {file.name} without a bug"


def test_causes_are_in_the_catalogue() -> None:
    known = set(re.findall(r"`(\w+)`", GUIDE.read_text()))
    for _, bug in BUGS:
        assert bug.causes and not {*bug.causes, *bug.consequences} - known


def test_names_of_pairs_are_unique() -> None:
    names = [pair.name for pair in PAIRS.values()]
    assert len(names) == len(set(names))


# Parameters of the published networks, of as many classes.
PUBLISHED = {
    "nature_cnn@nature": 1_693_362,
    "resnet@resnet18": 11_173_962,
    "resnet_bottleneck@resnet50": 25_557_032,
    "convnext@tiny": 28_589_128,
    "vit@vit_s": 22_050_664,
    "gpt2@small": 124_439_808,
    "bert@base": 109_482_240,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in PUBLISHED if n.partition("@")[0] in PAIRS])
def test_published_sizes_have_the_published_number_of_parameters(name: str) -> None:
    pair, size = gallery.choose(PAIRS, [name])[name]
    network = load_network(pair.other(**size), pair.spec(**size))
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    assert num_params(shapes.params) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["nothing", "resnet@resnet1"])
def test_unknown_names_are_reported(name: str) -> None:
    with pytest.raises(TriglotError, match="choose from"):
        gallery.choose(PAIRS, [name])


def test_a_place_is_right_near_a_mark(tmp_path: Path) -> None:
    pair = next(iter(PAIRS.values()))
    bug = pair.bugs[0].name
    lines = gallery.marks(pair.file)["planted"][bug]
    file = pair.file.name
    assert gallery.is_marked(f"add (tests/gallery{file}:{lines[-1] + 2})", pair, bug)
    assert not gallery.is_marked(f"add (tests/gallery{file}:1)", pair, bug)
    assert not gallery.is_marked(f"add (elsewhere.py:{lines[0]})", pair, bug)
