"""Model files: what is saved is what is loaded, and nothing in a file is run."""

import ast
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from estimators import ESTIMATORS
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch import nn

import mcdensity
from mcdensity import MCD, TableEstimator, load, save
from mcdensity.persistence import FORMAT, read_info
from model_files import change_head

pytest.importorskip("skops")
pytest.importorskip("safetensors")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
Y = X[:, 0] + RNG.normal(size=80)
GRID = np.linspace(-4, 4, 60)


def assert_same(before, after, X=X):
    assert repr(before) == repr(after)
    np.testing.assert_array_equal(before.pdf_from_X(X, GRID), after.pdf_from_X(X, GRID))
    np.testing.assert_array_equal(before.predict_quantiles(X), after.predict_quantiles(X))
    np.testing.assert_array_equal(
        before.sample(X, 3, random_state=1), after.sample(X, 3, random_state=1)
    )


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_loaded_models_predict_bit_for_bit(name, tmp_path):
    model = clone(ESTIMATORS[name]).fit(X, Y)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    assert type(again) is type(model)
    assert_same(model, again)
    with zipfile.ZipFile(tmp_path / "model.mcd") as archive:
        for member in archive.namelist():
            assert not archive.read(member).startswith(b"\x80"), "this looks like a pickle"


@pytest.mark.parametrize(
    "discriminator",
    [
        make_pipeline(PolynomialFeatures(2), StandardScaler(), LogisticRegression()),
        CalibratedClassifierCV(GaussianNB(), cv=3),
        GradientBoostingClassifier(n_estimators=5),
        nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1, bias=False)),
    ],
    ids=lambda d: type(d).__name__,
)
def test_learners_and_networks_of_a_user(discriminator, tmp_path):
    params = {"steps": 30} if isinstance(discriminator, nn.Module) else None
    model = MCD(discriminator, discriminator_params=params, random_state=0).fit(X, Y)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    np.testing.assert_array_equal(model.pdf_from_X(X, GRID), again.pdf_from_X(X, GRID))


@pytest.mark.parametrize("random_state", [np.random.default_rng(3), np.random.RandomState(3)])
def test_random_states_are_kept(random_state, tmp_path):
    model = MCD("quadratic", random_state=random_state).fit(X, Y)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    draw = "standard_normal"
    assert getattr(again.random_state, draw)() == getattr(model.random_state, draw)()


def test_feature_names_and_tables(tmp_path):
    table = pd.DataFrame(X, columns=["a", "b"])
    model = MCD("quadratic", random_state=0).fit(table, Y)
    save(model, tmp_path / "model.mcd")
    assert list(load(tmp_path / "model.mcd").feature_names_in_) == ["a", "b"]
    table["c"] = np.where(X[:, 0] > 0, "high", None)
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(table, pd.Series(Y, name="t"))
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    assert_same(model, again, table)
    assert again.target_ == "t"
    info = read_info(tmp_path / "model.mcd")
    assert info["format"] == FORMAT
    assert info["class"] == "TableEstimator"
    assert info["feature_names"] == ["a", "b", "c"]
    assert info["versions"]["mcdensity"] == mcdensity.__version__


def test_a_loaded_model_can_be_cloned_and_fitted_again(tmp_path):
    model = MCD("mlp", discriminator_params={"steps": 20}, random_state=0).fit(X, Y)
    save(model, tmp_path / "model.mcd")
    again = clone(load(tmp_path / "model.mcd")).fit(X, Y)
    assert_same(model, again)


class OwnModule(nn.Linear):
    pass


class OwnClassifier(RandomForestClassifier):
    pass


def own_factory(n_inputs):
    return nn.Linear(n_inputs, 1)


@pytest.mark.parametrize(
    ("discriminator", "name"),
    [
        (OwnModule(3, 1), "OwnModule"),
        (nn.Sequential(OwnModule(3, 1)), "OwnModule"),
        (own_factory, "own_factory"),
        (OwnClassifier(5), "OwnClassifier"),
        (make_pipeline(OwnClassifier(5)), "OwnClassifier"),
    ],
    ids=["module", "inner module", "function", "learner", "inner learner"],
)
def test_unknown_classes_are_refused_by_name_and_can_be_pickled(discriminator, name, tmp_path):
    model = MCD(discriminator, random_state=0).fit(X, Y)
    with pytest.raises(TypeError, match=rf"{name}.*pickle or joblib"):
        save(model, tmp_path / "model.mcd")
    assert list(tmp_path.iterdir()) == []
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_joblib_works_too(tmp_path):
    model = MCD("quadratic", random_state=0).fit(X, Y)
    joblib.dump(model, tmp_path / "model.joblib")
    assert_same(model, joblib.load(tmp_path / "model.joblib"))


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        save(MCD(), tmp_path / "model.mcd")
    with pytest.raises(TypeError, match="must be an estimator of mcdensity, got LogisticRegress"):
        save(LogisticRegression(), tmp_path / "model.mcd")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(MCD("quadratic", random_state=0).fit(X, Y), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_saving_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "model.mcd"
    model = MCD("quadratic", random_state=0).fit(X, Y)
    save(model, path)
    before = path.read_bytes()

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        save(MCD("elastic-net", random_state=0).fit(X, Y), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_version_of_scikit_learn_is_said(tmp_path):
    save(MCD("elastic-net", random_state=0).fit(X, Y), tmp_path / "model.mcd")
    changed = change_head(
        (tmp_path / "model.mcd").read_bytes(),
        lambda head: head["versions"].update({"scikit-learn": "1.0"}),
    )
    (tmp_path / "model.mcd").write_bytes(changed)
    with pytest.warns(UserWarning, match=r"scikit-learn 1\.0"):
        load(tmp_path / "model.mcd")


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load(tmp_path / "nothing.mcd")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load(tmp_path)


def test_all_parts_are_known_where_nothing_was_fitted():
    """Modules that only some fits import register their classes all the same."""
    package = Path(mcdensity.__file__).parent
    names = []
    for path in package.rglob("*.py"):
        module = ".".join(["mcdensity", *path.relative_to(package).with_suffix("").parts])
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            decorators = [ast.unparse(d) for d in getattr(node, "decorator_list", ())]
            if "storable" in decorators:
                names.append(f"{module}:{node.name}")
    code = "import sys, mcdensity\nfrom mcdensity._known import find\n[*map(find, sys.argv[1:])]"
    names += ["mcdensity.contrasted:JointContrast", "mcdensity.likelihood:JointLikelihood"]
    assert len(names) > 10
    # A file names the estimator first; experts import much.
    names = ["mcdensity.mcd:MCD", *sorted(names, key=lambda name: ".experts." in name)]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
