"""The wheel and the source distribution: what is in them, and what works without any extra."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import mcdensity

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What is not for users of the package.
FOR_DEVELOPERS = {"all", "dev", "docs"}
# Of each extra: something that needs it. `model` is a fitted MCD("quadratic").
NEEDS = {
    "boosting": 'MCD("xgboost").fit(X, y)',
    "flow": 'from mcdensity.baselines import get_estimator; get_estimator("nf").fit(X, y)',
    "plot": "from mcdensity.plotting import plot_pit as p; p(model.predict_distribution(X), y)",
    "cli": "from mcdensity import TableEstimator; TableEstimator(MCD()).fit({'x': [1.0]}, [1.0])",
    "data": 'from mcdensity.datasets import load_dataset; load_dataset("Concrete")',
    "io": 'mcdensity.save(MCD("mixture", effort="fast").fit(X, y), "model.mcd")',
    "distributed": "from mcdensity.streaming.cluster import check_client; check_client(None)",
    "serve": "import mcdensity.serve",
    "onnx": 'from mcdensity.exporting import export_onnx; export_onnx(model, "model.onnx")',
    "skpro": "model.predict_distribution(X[:2]).to_skpro()",
    "bench": 'from mcdensity.benchmark.methods import make_method as m; m("NGBoost", 0).fit(X, y)',
}
START = """
import sys, mcdensity
assert "torch" not in sys.modules and "site-packages" in mcdensity.__file__
import numpy as np
from mcdensity import MCD
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
y = X[:, 0] + 0.5 * rng.normal(size=120)
"""
USE = f"""{START}
import pickle
from mcdensity.baselines import get_estimator
model = MCD(effort="fast", random_state=0, n_jobs=1).fit(X, y)
law = model.predict_distribution(X[:5])
low, high = law.interval(0.9).T
assert (low < law.mean()).all() and (law.mean() < high).all()
grid = np.linspace(-12, 12, 4001)
area = model.pdf_from_X(X[:5], grid).sum(axis=1) * (grid[1] - grid[0])
np.testing.assert_allclose(area, 1, atol=1e-3)
assert model.score(X, y) > model.score(rng.permutation(X), y)
np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
alone = get_estimator("marginal").fit(X, y)
mcdensity.save(alone, "alone.mcd")  # one without parts of scikit-learn and torch
np.testing.assert_array_equal(mcdensity.load("alone.mcd").predict(X), alone.predict(X))
"""
MISSING = f"""{START}
model = MCD("quadratic", random_state=0).fit(X, y)
for extra, code in {NEEDS!r}.items():
    try:
        exec(code)
    except ImportError as error:
        print(extra, "|", error)
    else:
        print(extra, "|", "nothing was missing")
"""


def run(*words, cwd):
    """Run a command in a folder, where no other source of the package is found."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*map(str, words)], capture_output=True, text=True, cwd=cwd, env=own, timeout=3000
    )


def done(*words, cwd):
    """Run a command that installs something; skip where the registry cannot be reached."""
    result = run(*words, cwd=cwd)
    text = result.stdout + result.stderr
    if any(sign in text for sign in ("NewConnectionError", "No matching distribution", "Max retr")):
        pytest.skip("No package registry answers, so that nothing can be installed.")
    assert result.returncode == 0, text


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("build", reason="install the extra `dev`")
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", ROOT, "--outdir", folder, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """Python of an environment with the wheel and the hard dependencies alone."""
    folder = tmp_path_factory.mktemp("empty")
    done(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    done(python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return python


def test_every_extra_is_tried():
    assert set(NEEDS) == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS


def test_oldest_versions_are_the_lower_bounds():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    bounds = dict(line.split(">=") for lines in lists for line in lines if ">=" in line)
    text = (ROOT / ".github" / "oldest.txt").read_text()
    pinned = dict(line.split("==") for line in text.splitlines() if not line.startswith("#"))
    assert {"numpy", "scipy", "scikit-learn", "KDEpy"} <= set(pinned)
    for name in set(pinned) - {"torch", "pytest", "joblib", "threadpoolctl"}:
        assert Version(pinned[name]) == Version(bounds[name]), name


@pytest.mark.parametrize("what", ["quadratic", "portfolio"])
def test_some_experts_do_without_torch(what):
    """The base needs torch, but not everything that can be asked of it does."""
    code = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")
sys.meta_path.insert(0, Without())
import numpy as np
from mcdensity import MCD
X = np.random.default_rng(0).normal(size=(60, 1))
params = {"discriminator_params": {"portfolio": {"quadratic": {}, "forest": {"n_trees": 10}}}}
model = MCD("quadratic") if sys.argv[1] == "quadratic" else MCD(n_jobs=1, **params)
assert np.isfinite(model.fit(X, X[:, 0]).logpdf(X, X[:, 0])).all()
"""
    subprocess.run([sys.executable, "-c", code, what], check=True)


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {mcdensity.__version__}\n" in text


@pytest.mark.slow
def test_contents(built):
    """All that git has in src/ is in the wheel, and nothing else; tests are in the sdist."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    source = ROOT / "src"
    files = [p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    own = {p.relative_to(source).as_posix() for p in files if ".egg-info" not in str(p)}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"mcdensity-{mcdensity.__version__}.dist-info"
    assert {name for name in names if not name.startswith(info)} == own
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
    assert {"mcdensity/py.typed", "mcdensity/report/style.css", "mcdensity/explorer/page.js",
            "mcdensity/benchmark/paper/ratio_kl.csv"} <= names  # fmt: skip
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "Makefile", "constraints.txt", "pyproject.toml",
            "tests/test_package.py", "docs/import_map.py"} <= names  # fmt: skip
    assert not any("_build" in name or name.endswith(".pyc") for name in names)


@pytest.mark.slow
def test_the_wheel_works_alone(python, tmp_path):
    result = run(python, "-c", USE, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_what_is_missing_is_said(python, tmp_path):
    """One sentence that names the extra, for each; the command line says it too."""
    result = run(python, "-c", MISSING, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    said = dict(line.split(" | ", 1) for line in result.stdout.splitlines())
    assert set(said) == set(NEEDS)
    for extra, sentence in said.items():
        assert sentence.endswith(f"pip install 'mcdensity[{extra}]'"), (extra, sentence)
        assert " is not installed; " in sentence
    command = run(python.parent / "mcdensity", "--help", cwd=tmp_path)
    assert command.returncode == 1
    assert command.stderr.strip().endswith("pip install 'mcdensity[cli]'")
    assert "Traceback" not in command.stderr


@pytest.mark.slow
def test_the_source_distribution_installs(python, built, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    done(python, "-m", "pip", "install", "--no-deps", "--force-reinstall", sdist, cwd=tmp_path)
    result = run(python, "-c", "import mcdensity; print(mcdensity.__version__)", cwd=tmp_path)
    assert result.stdout.strip() == mcdensity.__version__
