"""Formats of model files, how old ones are brought up to date, and classes of your own."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from torch import nn

from mcdensity import MCD, _known, load, persistence, save
from mcdensity.persistence import FORMAT, ModelFileError, read_info, storable
from model_files import change_head

pytest.importorskip("skops")
pytest.importorskip("safetensors")

DATA = Path(__file__).parent / "data"
COMMITTED = sorted(DATA.glob("format-*.mcd"))
GRID = np.linspace(-3, 3, 7)


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    return X, X[:, 0] + 0.5 * rng.normal(size=30)


def answers(model):
    """What a committed model must go on predicting."""
    X = rows()[0][:5]
    return {
        "mean": model.predict(X).tolist(),
        "quantiles": model.predict_quantiles(X).tolist(),
        "density": model.pdf_from_X(X, GRID).tolist(),
    }


def write_committed_file():
    """Write the file of the current format, once for each format; see tests/data/README.md."""
    model = MCD("quadratic", marginal="kde", random_state=0).fit(*rows())
    save(model, DATA / f"format-{FORMAT}.mcd")
    (DATA / f"format-{FORMAT}.json").write_text(json.dumps(answers(model), indent=1) + "\n")


def test_committed_files_of_each_format(tmp_path):
    formats = [read_format(path) for path in COMMITTED]
    assert formats == [int(path.stem.split("-")[1]) for path in COMMITTED]
    assert formats[0] == 1
    for path, written in zip(COMMITTED, formats, strict=True):
        if written >= 2:
            expected = json.loads(path.with_suffix(".json").read_text())
            model = load(path)
            found = answers(model)
            assert found.keys() == expected.keys()
            for name, values in expected.items():
                # Ratios have had another floor since: quantiles moved by 3e-6, densities by 2e-7.
                np.testing.assert_allclose(found[name], values, 1e-5, 1e-6, err_msg=name)
            # It is a whole model of this version, whatever parameters were added since.
            assert repr(model).startswith("MCD(")
            assert model.get_params().keys() == MCD().get_params().keys()
            save(model, tmp_path / "again.mcd")
            assert answers(load(tmp_path / "again.mcd")) == found
            assert clone(model).fit(*rows()).n_features_in_ == 2


def read_format(path):
    found = []
    change_head(path.read_bytes(), lambda head: found.append(head["format"]))
    return found[0]


def test_files_of_the_first_format_are_refused_with_advice():
    path = DATA / "format-1.mcd"
    for read in (load, read_info):
        with pytest.raises(ModelFileError) as refused:
            read(path)
        assert str(refused.value) == (
            f"{path} was written by mcdensity 0.1.0 (format 1), which this version cannot read: "
            "fit the model again with this version, or load it with mcdensity 0.1 to export what "
            "you need."
        )


@pytest.fixture
def saved(tmp_path):
    model = MCD("quadratic", random_state=0).fit(*rows())
    save(model, tmp_path / "model.mcd")
    return model, tmp_path / "model.mcd"


def test_old_files_are_brought_up_to_date(saved, monkeypatch):
    """Two formats ago `n_features` was called `width`, and then `columns`."""
    model, path = saved
    old = change_head(
        path.read_bytes(),
        lambda head: head.update(format=FORMAT - 2, width=head.pop("n_features")),
    )
    path.write_bytes(old)
    with pytest.raises(
        ModelFileError, match=rf"\(format {FORMAT - 2}\), which this version cannot"
    ):
        load(path)
    steps = []

    def rename(old, new):
        def migrate(head):
            steps.append(head["format"])
            return {name: value for name, value in head.items() if name != old} | {new: head[old]}

        return migrate

    monkeypatch.setitem(persistence._MIGRATIONS, FORMAT - 2, rename("width", "columns"))
    monkeypatch.setitem(persistence._MIGRATIONS, FORMAT - 1, rename("columns", "n_features"))
    X = rows()[0]
    np.testing.assert_array_equal(load(path).predict(X), model.predict(X))
    assert steps == [FORMAT - 2, FORMAT - 1]
    assert read_info(path)["n_features"] == 2
    # A file that lacks what its format has is damaged, and said to be.
    path.write_bytes(change_head(old, lambda head: head.pop("width")))
    with pytest.raises(ModelFileError, match=rf"lacks parts of a file of format {FORMAT - 2}"):
        load(path)


# Classes of your own.


@storable
class Registered(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Unregistered(nn.Linear):
    pass


@storable
class Offset:
    """A plain object with a state, in the place of a random seed."""

    def __init__(self, value):
        self.value, self.table = value, {"a": np.arange(3.0)}


def test_registered_classes_are_saved_and_loaded(tmp_path):
    model = MCD(Registered(3, 1), discriminator_params={"steps": 20}, random_state=0).fit(*rows())
    model.note_ = Offset(2.5)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    np.testing.assert_array_equal(again.predict(rows()[0]), model.predict(rows()[0]))
    assert type(again.note_) is Offset
    assert again.note_.value == 2.5
    np.testing.assert_array_equal(again.note_.table["a"], np.arange(3.0))


def test_unregistered_classes_are_refused_by_name(tmp_path, monkeypatch):
    model = MCD(Unregistered(3, 1), discriminator_params={"steps": 20}, random_state=0)
    model.fit(*rows())
    with pytest.raises(TypeError, match=r"Unregistered.*persistence\.storable"):
        save(model, tmp_path / "model.mcd")
    # What another process registered is refused where it is not.
    model = MCD("quadratic", random_state=0).fit(*rows())
    model.note_ = Offset(2.5)
    save(model, tmp_path / "model.mcd")
    others = {name: thing for name, thing in _known._registered.items() if thing is not Offset}
    monkeypatch.setattr(_known, "_registered", others)
    with pytest.raises(
        ModelFileError, match=r"holds '\S+:Offset', which this version does not know"
    ):
        load(tmp_path / "model.mcd")


def test_a_name_is_not_enough_to_be_registered():
    class Offset:  # another class of the same name
        pass

    Offset.__qualname__ = "Offset"
    assert _known.name_of(Offset) is None
    with pytest.raises(TypeError, match="takes a class or a function, got 3"):
        storable(3)
