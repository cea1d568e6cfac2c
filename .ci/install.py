"""Install triglot with extras into .venv, and show in one line what pip does and for how long.

`make` runs this in the checkout, with a Python that has the modules venv and ensurepip:
`python .ci/install.py all dev`. It needs the standard library only. Where the output is not a
terminal, it prints a line per phase and half minute.
"""

import re
import shutil
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
WHEEL = re.compile(r"\s*Downloading \S+\.(?:whl|tar\.gz) \(([\d.]+) (kB|MB)\)")
COLLECTED = re.compile(r"Collecting ([\w.-]+)")
NAMES = "Installing collected packages: "
SAME_VERSION = f"import pip, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"


def installed() -> set[Path]:
    """List the packages of .venv."""
    return set(VENV.glob("lib/python*/site-packages/*.dist-info"))


class Progress:
    """The state of a running pip, as its output tells it."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self.package = ""  # whose requirements it reads
        self.packages: list[str] = []  # that it installs, once it knows
        self.before = installed()

    def read(self, line: str) -> None:
        """Take a line that pip printed."""
        if found := WHEEL.match(line):
            self.megabytes += float(found[1]) / (1000 if found[2] == "kB" else 1)
        elif found := COLLECTED.match(line):
            self.package = found[1]
        elif line.startswith(NAMES):
            self.packages = line.removeprefix(NAMES).split(", ")

    @property
    def phase(self) -> str:
        """What pip does."""
        return "installs" if self.packages else "downloads"

    def __str__(self) -> str:
        downloaded = f"{self.megabytes:,.0f} MB"
        if not self.packages:
            return f"downloads: {downloaded} {self.package}".rstrip()
        done = len(installed() - self.before)
        return f"downloaded {downloaded}; installs: {done} of {len(self.packages)} packages"


def make_environment() -> None:
    """Create .venv, unless it is one of this version of Python with pip."""
    tried = [PYTHON, "-c", SAME_VERSION]
    if not PYTHON.exists() or subprocess.run(tried, stderr=subprocess.DEVNULL).returncode:
        venv.create(VENV, clear=True, with_pip=True)


def install(extras: list[str]) -> int:
    """Run pip, show its progress, and return its exit code."""
    wanted = f".[{','.join(extras)}]"
    options = ["--constraint", "constraints.txt", "--progress-bar", "off", "--editable", wanted]
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", *options]
    started, progress = time.monotonic(), Progress()
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert pip.stdout is not None
    output = pip.stdout

    def follow() -> None:
        with LOG.open("w") as log:
            for line in output:
                log.write(line)
                progress.read(line)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    shown, phase = 0, ""
    while True:
        follower.join(0.5)
        seconds = int(time.monotonic() - started)
        line = f"  {seconds // 60}:{seconds % 60:02}  {progress}"
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]:<{width}}", end="", flush=True)
        elif phase != progress.phase or seconds >= shown + 30 or not follower.is_alive():
            shown, phase = seconds, progress.phase
            print(line, flush=True)
        if not follower.is_alive():
            break
    if sys.stdout.isatty():
        print()
    return pip.wait()


def main(extras: list[str]) -> int:
    """Make the environment, install into it, and report a failure with pip's own words."""
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Installing into .venv with Python {version}, once:", flush=True)
    make_environment()
    if code := install(extras):
        print("\n".join(["pip failed:", *LOG.read_text().splitlines()[-25:]]), file=sys.stderr)
        print(f"All that it printed: {LOG}. The same command tries again.", file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
