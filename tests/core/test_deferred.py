"""Deferred modules are loaded once, by the first use of one of their names."""

import importlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest

from tests.project.source import ROOT
from triglot.core.deferred import deferred


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test import from its folder, and undo what it defers."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


def test_a_module_is_loaded_by_its_first_use(tmp_path: Path) -> None:
    (tmp_path / "slow_to_load").mkdir()
    log = tmp_path / "log"
    code = f"open({str(log)!r}, 'a').write('loaded ')\nanswer = 42\n"
    (tmp_path / "slow_to_load" / "__init__.py").write_text(code)
    with deferred("slow_to_load", "no_such_module"), deferred("slow_to_load"):
        importlib.import_module("slow_to_load")
        module = importlib.import_module("slow_to_load")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_such_module")
    assert not log.exists()
    assert module.answer == 42
    with pytest.raises(AttributeError, match="'slow_to_load' has no attribute 'question'"):
        _ = module.question
    assert importlib.import_module("slow_to_load").answer == 42
    assert log.read_text() == "loaded "
    assert "answer" in dir(module)


def test_the_files_of_a_package_are_read_without_loading_it(tmp_path: Path) -> None:
    (tmp_path / "with_files").mkdir()
    (tmp_path / "with_files" / "__init__.py").write_text("raise ImportError('loaded')\n")
    (tmp_path / "with_files" / "page.html").write_text("the page")
    with deferred("with_files"):
        importlib.import_module("with_files")
    assert (resources.files("with_files") / "page.html").read_text() == "the page"


def test_what_is_imported_later_is_loaded_at_once(tmp_path: Path) -> None:
    (tmp_path / "loaded_as_usual.py").write_text("answer = 42\n")
    with deferred("loaded_as_usual"):
        pass
    assert "answer" in vars(importlib.import_module("loaded_as_usual"))


def test_a_second_thread_waits_until_the_module_is_loaded(tmp_path: Path) -> None:
    code = "import time\ntime.sleep(0.2)\nanswer = 42\n"
    (tmp_path / "slow_to_run.py").write_text(code)
    with deferred("slow_to_run"):
        module = importlib.import_module("slow_to_run")
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(lambda: module.answer) for _ in range(2)]
    assert [answer.result() for answer in answers] == [42, 42]


def test_a_submodule_that_is_taken_from_its_package_is_deferred_too(tmp_path: Path) -> None:
    package = tmp_path / "of_pictures"
    package.mkdir()
    log = tmp_path / "log"
    for name in ("__init__", "colors"):
        code = f"open({str(log)!r}, 'a').write('{name} ')\nanswer = 42\n"
        (package / f"{name}.py").write_text(code)
    with deferred("of_pictures", "of_pictures.colors"):
        from of_pictures import colors  # pyright: ignore[reportMissingImports]
    assert not log.exists()
    assert colors.answer == 42
    assert log.read_text() == "__init__ colors "


def test_a_submodule_loads_its_package_first(tmp_path: Path) -> None:
    package = tmp_path / "circular"
    package.mkdir()
    (package / "__init__.py").write_text("answer = 42\nfrom circular import first, second\n")
    (package / "first.py").write_text("from circular import answer\n")
    (package / "second.py").write_text("from circular.first import answer\n")
    (package / "third.py").write_text("from circular.second import answer\n")
    with deferred("circular"):
        module = importlib.import_module("circular")
    second = importlib.import_module("circular.second")
    assert second.answer == 42 == module.answer and module.second is second
    assert importlib.import_module("circular").second is second
    assert second.__spec__ is not None and second.__spec__.origin == str(package / "second.py")
    assert importlib.import_module("circular.third").answer == 42


def test_two_threads_that_need_a_package_do_not_wait_for_each_other(tmp_path: Path) -> None:
    package = tmp_path / "waiting"
    package.mkdir()
    code = "import time\ntime.sleep(0.5)\nfrom waiting import part\nanswer = 42\n"
    (package / "__init__.py").write_text(code)
    (package / "part.py").write_text("answer = 42\n")
    # Python cannot stop a thread that waits for ever, so another process does this.
    program = """
import threading, time
from triglot.core.deferred import deferred
with deferred("waiting"):
    import waiting
def load():
    waiting.answer
def load_part():
    time.sleep(0.1)
    import waiting.part
threads = [threading.Thread(target=load), threading.Thread(target=load_part)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(waiting.answer, waiting.part.answer)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "42 42\n", done.stderr


@pytest.mark.slow
def test_what_suites_defer_is_found_by_all_ways_of_importing() -> None:
    program = """
import sys
import triglot
triglot.make_env("gymnax:CartPole-v1")
assert type(sys.modules["seaborn"]).__name__ == "_Deferred"
import matplotlib.pyplot, seaborn.objects
assert matplotlib.pyplot.figure and seaborn.lineplot
import seaborn
assert seaborn.objects.Plot and seaborn.lineplot and seaborn.__version__
from distrax import Normal
from distrax._src.distributions.normal import Normal as SameNormal
assert Normal is SameNormal
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_module_that_fails_is_loaded_again_by_its_next_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os\nassert os.path.exists('ready')\nanswer = 42\n"
    (tmp_path / "fails_at_first.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with deferred("fails_at_first"):
        module = importlib.import_module("fails_at_first")
    with pytest.raises(AssertionError):
        _ = module.answer
    (tmp_path / "ready").touch()
    assert module.answer == 42


def test_a_package_and_its_submodule_are_loaded_one_by_one(tmp_path: Path) -> None:
    package = tmp_path / "package_to_load"
    package.mkdir()
    lines = "__version__ = '1'", "def __getattr__(name):", "    return name.upper()"
    (package / "__init__.py").write_text("\n".join(lines))
    (package / "part.py").write_text("answer = 42\n")
    with deferred("package_to_load", "package_to_load.part"):
        part = importlib.import_module("package_to_load.part")
    package = importlib.import_module("package_to_load")
    assert package.part is part
    assert package.__version__ == "1" and package.computed == "COMPUTED"
    assert part.answer == 42


@pytest.mark.slow
def test_a_training_starts_without_plots_and_statistics() -> None:
    program = """
import json, sys
from types import ModuleType
import triglot
import jax, jax.numpy as jnp
triglot.make_agent("ppo", triglot.make_env("gymnax:CartPole-v1"), backend="linen")
jax.jit(jnp.linalg.qr).lower(jnp.zeros((2, 2)))
slow = ("pandas", "scipy.stats", "tensorflow_probability", "matplotlib.figure", "orbax.checkpoint")
slow = (*slow, "matplotlib.pyplot", "seaborn", "distrax")
loaded = [name for name in slow if type(sys.modules.get(name)) is ModuleType]

from triglot.core.rl.distributions import squashed_gaussian
def entropy(mean):
    return squashed_gaussian(mean, mean).entropy()
jitted = float(jax.jit(entropy)(jnp.zeros(2)))  # loads distrax while it is traced
print(json.dumps([loaded, jitted, float(entropy(jnp.zeros(2)))]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded, jitted, eager = json.loads(done.stdout)
    assert loaded == [] and jitted == pytest.approx(eager)
