"""Model files forged with right checksums: refused before compiled code follows them."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from estimators import ESTIMATORS
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.ensemble import RandomForestRegressor as Forest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import mcdensity
from mcdensity import MCD, _known, load, save
from mcdensity._codec.boosters import dump_booster, load_booster
from mcdensity._codec.catboost_model import checked_catboost
from mcdensity._codec.learners import dump_learner, load_learner
from mcdensity._codec.lightgbm_model import checked_lightgbm
from mcdensity._codec.states import generator_of, random_state_of, read_sparse
from mcdensity._codec.structure import make_tree
from mcdensity._codec.ubjson import read_ubjson, write_ubjson
from mcdensity._codec.xgboost_model import checked_xgboost
from mcdensity.persistence import ModelFileError, storable
from model_files import change_head, members_of, packed

pytest.importorskip("skops")
pytest.importorskip("safetensors")

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "forged_files.py"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
Y = X[:, 0] + RNG.normal(size=80)
LABEL = (Y > 0).astype(int)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_files_forged_at_random_are_refused_or_predict(tmp_path):
    """A few of each family; the whole of it is benchmarks/forged_files.txt."""
    for name in ("lightgbm", "xgboost", "catboost"):
        pytest.importorskip(name)
    paths = [str(Path(mcdensity.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--count", "3"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.split("\n")) > 7


# Trees of scikit-learn.


def changed_tree(tree, **changes):
    """Rebuild a tree with changes of its nodes (field=(node, value)) or of its state."""
    _, arguments, state = tree.__reduce__()
    state = dict(state)
    state["nodes"] = state["nodes"].copy()
    for name, change in changes.items():
        if name in state["nodes"].dtype.names:
            state["nodes"][name][change[0]] = change[1]
        else:
            state[name] = change
    return make_tree(arguments, state)


def test_trees_are_followed_only_where_they_lead_somewhere():
    tree = Forest(1, max_depth=4, random_state=0).fit(X, Y).estimators_[0].tree_
    rows = X.astype(np.float32)
    np.testing.assert_array_equal(changed_tree(tree).predict(rows), tree.predict(rows))
    n, state = tree.node_count, tree.__getstate__()
    inner = int(np.flatnonzero(tree.children_left > 0)[-1])
    for problem, changes in {
        "children out of range": {"left_child": (0, n)},
        "children out": {"right_child": (inner, -2)},
        "children": {"left_child": (inner, 0)},
        "two parents": {"right_child": (0, int(tree.children_left[0]))},
        "one child": {"left_child": (inner, -1)},
        "features out of range": {"feature": (0, 2)},
        "features": {"feature": (inner, -1)},
        "another number of nodes": {"node_count": n + 1},
        "deeper than it claims": {"max_depth": tree.max_depth - 1},
        "impossible depth": {"max_depth": 10**9},
        "no integers": {"node_count": float(n)},
        "missing or not finite": {"values": np.full_like(state["values"], np.nan)},
        "missing or": {"values": state["values"][:-1]},
    }.items():
        with pytest.raises(ModelFileError, match=problem):
            changed_tree(tree, **changes)
    _, (width, classes, outputs), _ = tree.__reduce__()
    for arguments in ((0, classes, outputs), (width, classes, 10**9), (width, classes * 0, 1)):
        with pytest.raises(ModelFileError, match="impossible sizes"):
            make_tree(arguments, state)


def saved_again(learner, change):
    """What is loaded of a learner whose attributes were changed after fitting."""
    data = dump_learner(learner, "learner")
    skops = pytest.importorskip("skops.io")
    change(learner)
    assert load_learner(data) is not None
    return load_learner(skops.dumps(learner))


def narrower(forest):
    forest.estimators_[2] = Forest(1).fit(X[:, :1], Y).estimators_[0]


def test_all_trees_of_a_forest_have_its_width():
    with pytest.raises(ModelFileError, match="another number of features"):
        saved_again(Forest(3).fit(X, Y), narrower)
    with pytest.raises(ModelFileError, match="another number of features"):
        saved_again(Forest(3).fit(X, Y), lambda forest: vars(forest).pop("n_features_in_"))
    boosted = GradientBoostingRegressor(n_estimators=3).fit(X, Y)
    with pytest.raises(ModelFileError, match="is missing in a boosted model"):
        saved_again(boosted, lambda b: setattr(b, "estimators_", np.tile(b.estimators_, (1, 2))))
    with pytest.raises(ModelFileError, match="asks for 1000000 workers"):
        saved_again(Forest(3).fit(X, Y), lambda forest: forest.set_params(n_jobs=10**6))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("left", 0, "children out of range"),
        ("right", 10**6, "children out of range"),
        ("feature_idx", -1, "features out of range"),
        ("feature_idx", 2, "features out of range"),
        ("is_categorical", 1, "splits by categories"),
        ("is_leaf", 0, "children|features"),
        ("value", np.inf, "not finite"),
    ],
)
def test_nodes_of_histogram_boosting(field, value, problem):
    def change(model):
        nodes = model._predictors[1][0].nodes
        where = nodes["is_leaf"] == (field in ("is_leaf", "value"))
        nodes[field][np.flatnonzero(where)[0]] = value

    learner = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5).fit(X, Y)
    with pytest.raises(ModelFileError, match=problem):
        saved_again(learner, change)


# Neighbours.


def test_search_trees_are_built_from_their_rows():
    """Whatever a file says of nodes and indices, the neighbours are the right ones."""
    learner = NearestNeighbors(algorithm="kd_tree", leaf_size=5).fit(X)
    expected = learner.kneighbors(X, 3)
    data = dump_learner(learner, "learner")
    members = members_of(data)
    arrays = {name: np.load(io.BytesIO(c)) for name, c in members.items() if name.endswith(".npy")}
    changed = 0
    for name, values in arrays.items():
        if values.dtype.kind != "f" or values.ndim != 2:  # indices, nodes
            out = io.BytesIO()
            np.save(out, np.full_like(values, 10**6 if values.dtype.kind == "i" else 0))
            members[name] = out.getvalue()
            changed += 1
    assert changed >= 2
    found = load_learner(packed(members.items())).kneighbors(X, 3)
    for part, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(part, other)


def test_rows_and_labels_of_neighbours():
    learner = KNeighborsClassifier(algorithm="brute").fit(X, LABEL)
    with pytest.raises(ModelFileError, match="labels of unknown classes"):
        saved_again(clone(learner).fit(X, LABEL), lambda k: k._y.__setitem__(3, 10**6))
    with pytest.raises(ModelFileError, match="another width"):
        saved_again(learner, lambda k: setattr(k, "_fit_X", X[:, :1]))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m._n_support.__setitem__(0, 10**6),
        lambda m: setattr(m, "_dual_coef_", np.tile(m._dual_coef_, (2, 1))),
        lambda m: setattr(m, "support_vectors_", m.support_vectors_[:, :1]),
        lambda m: setattr(m, "_intercept_", np.zeros(0)),
        lambda m: setattr(m, "kernel", "precomputed"),
        lambda m: setattr(m, "_impl", "nu_svr"),
    ],
)
def test_kernel_machines(change):
    learner = SVC(random_state=0).fit(X, LABEL)
    again = load_learner(dump_learner(learner, "learner"))
    np.testing.assert_array_equal(again.decision_function(X), learner.decision_function(X))
    with pytest.raises(ModelFileError, match="support vector machine"):
        saved_again(learner, change)


# Parts of any model.


def test_positions_of_random_number_generators():
    state = np.random.RandomState(1).get_state(legacy=False)
    assert random_state_of(state).random() == np.random.RandomState(1).random()
    for position in (-1, 625, 2**40, 1.5, None):
        with pytest.raises(ModelFileError, match="position"):
            random_state_of(state | {"state": state["state"] | {"pos": position}})
    bits = np.random.Generator(np.random.Philox(1))
    assert generator_of(bits.bit_generator.state).random() == bits.random()
    with pytest.raises(ModelFileError, match="position 9"):
        generator_of(bits.bit_generator.state | {"buffer_pos": 9})
    with pytest.raises(ModelFileError, match="unknown random number generator"):
        generator_of(bits.bit_generator.state | {"bit_generator": "set_state"})


def npz(**arrays):
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def test_sparse_matrices_and_archives_in_archives():
    matrix = sparse.random(9, 5, 0.4, format="csr", random_state=0)
    out = io.BytesIO()
    sparse.save_npz(out, matrix)
    np.testing.assert_array_equal(read_sparse(out.getvalue()).toarray(), matrix.toarray())
    good = {"format": b"csr", "data": matrix.data, "indices": matrix.indices}
    good |= {"indptr": matrix.indptr, "shape": matrix.shape}
    wrong = {"indices": matrix.indices + 5, "indptr": matrix.indptr[::-1].copy()}
    wrong |= {"data": matrix.data[1:], "shape": (10**12, 5), "format": b"dia"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=r"sparse|ind|shape"):
            read_sparse(npz(**(good | {name: value})))
    with pytest.raises(ModelFileError, match="unpack to more than 64 MB"):
        read_sparse(npz(**(good | {"data": np.zeros(10_000_000)})))


def test_a_member_is_used_once(tmp_path):
    save(MCD("quadratic", random_state=0).fit(X, Y), tmp_path / "model.mcd")
    data = (tmp_path / "model.mcd").read_bytes()
    name = next(name for name in members_of(data) if name.endswith(".npy"))
    again = {"$": "array", "value": name}
    forged = change_head(
        data, lambda head: head["content"]["value"]["state"].update(note_=[again, again])
    )
    (tmp_path / "model.mcd").write_bytes(forged)
    with pytest.raises(ModelFileError, match="which is not there or was used"):
        load(tmp_path / "model.mcd")


def test_unchecked_learners_need_to_be_registered(tmp_path, monkeypatch):
    """Compiled code of clusterings takes what a file says; who trusts it can register them."""
    monkeypatch.setattr(_known, "_registered", dict(_known._registered))
    learner = make_pipeline(KMeans(3, n_init=1, random_state=0), LogisticRegression())
    model = MCD(learner, random_state=0).fit(X, Y)
    with pytest.raises(TypeError, match=r"KMeans.*persistence\.storable"):
        save(model, tmp_path / "model.mcd")
    storable(KMeans)
    save(model, tmp_path / "model.mcd")
    np.testing.assert_array_equal(load(tmp_path / "model.mcd").predict(X), model.predict(X))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["mlp", "mixture"])
def test_weights_of_networks_that_are_no_numbers(name, value, tmp_path):
    model = clone(ESTIMATORS[f"MCD-{name}"]).fit(X, Y)
    save(model, tmp_path / "model.mcd")
    data = (tmp_path / "model.mcd").read_bytes()
    tensors = next(name for name in members_of(data) if name.endswith(".safetensors"))
    content = members_of(data)[tensors]
    size = 8 + int.from_bytes(content[:8], "little")
    weights = np.full((len(content) - size) // 4, value, "<f4").tobytes()
    (tmp_path / "model.mcd").write_bytes(
        change_head(data, lambda head: None, **{tensors: content[:size] + weights})
    )
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        load(tmp_path / "model.mcd")


# Boosters: what is kept is the same model, and what was changed is refused.


def round_trip(learner):
    family = type(learner).__module__.split(".")[0]
    suffix, data = dump_booster(learner, family, "learner")
    parameters = {k: v for k, v in learner.get_params().items() if v is not None}
    value = {"class": f"{family}:{type(learner).__name__}", "parameters": parameters}
    return data, load_booster(value | {"model": f"0.{suffix}"}, lambda v: v, lambda name: data)


def assert_kept(learner):
    rows = np.random.default_rng(1).normal(size=(300, 2))
    rows[::7, 1] = np.nan
    data, again = round_trip(learner)
    np.testing.assert_array_equal(again.predict_proba(rows), learner.predict_proba(rows))
    assert round_trip(again)[0] == data
    assert again.n_features_in_ == 2


@pytest.mark.parametrize(
    "parameters",
    [{}, {"tree_method": "exact", "gamma": 1}, {"booster": "dart"}, {"booster": "gblinear"}],
    ids=str,
)
def test_kinds_of_xgboost(parameters):
    xgboost = pytest.importorskip("xgboost")
    assert_kept(xgboost.XGBClassifier(n_estimators=5, n_jobs=1, **parameters).fit(X, LABEL))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"boosting_type": "dart"}, {"linear_tree": True}, {"min_child_samples": 500}],
    ids=str,
)
def test_kinds_of_lightgbm(parameters):
    lightgbm = pytest.importorskip("lightgbm")
    learner = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbosity=-1, **parameters)
    assert_kept(learner.fit(X, LABEL))


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise", "Lossguide"])
def test_kinds_of_catboost(policy):
    catboost = pytest.importorskip("catboost")
    settings = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
    learner = catboost.CatBoostClassifier(iterations=5, grow_policy=policy, **settings)
    assert_kept(learner.fit(X, LABEL))
    assert round_trip(learner)[1].get_params() == learner.get_params()


def test_forged_text_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    learner = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, n_jobs=1, verbosity=-1)
    text = round_trip(learner.fit(X, LABEL))[0].decode()
    assert checked_lightgbm(text.encode()) == text
    tree = text[text.index("Tree=1") :]
    line = {entry.partition("=")[0]: entry for entry in tree.split("\n")[:20]}
    for name, value in {
        "left_child": "0 2 -2",
        "right_child": "1 1 -4",
        "split_feature": "0 2 0",
        "decision_type": "2 1 2",
        "num_leaves": "1000000000",
        "leaf_value": "nan 0 0 0",
        "threshold": "0.5",
        "num_cat": "1",
    }.items():
        forged = text.replace(line[name], f"{name}={value}")
        assert forged != text
        with pytest.raises(ModelFileError, match=r"a tree|num_leaves"):
            checked_lightgbm(forged.encode())
    for old, new in {
        "max_feature_idx=1": "max_feature_idx=900000000",
        "num_class=1": "num_class=3",
        "objective=binary sigmoid:1": "objective=multiclass num_class:9",
        "version=v4": "version=v9",
        "Tree=1\n": "Tree=1\nnum_leaves=4\n",
    }.items():
        with pytest.raises(ModelFileError, match="a booster"):
            checked_lightgbm(text.replace(old, new).encode())
    # What is not known does not reach lightgbm.
    assert checked_lightgbm((text + "parameters:\n[machines: x]\n").encode()) == text


def test_forged_trees_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    learner = xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(X, LABEL)
    data = round_trip(learner)[0]
    assert checked_xgboost(data) == data

    def forged(change):
        model = read_ubjson(data)
        booster = model["learner"]["gradient_booster"]["model"]
        for tree in booster["trees"]:
            for name, values in tree.items():
                tree[name] = values.copy() if isinstance(values, np.ndarray) else values
        change(model["learner"], booster, booster["trees"][1])
        return write_ubjson(model)

    def set_entry(name, place, value):
        return lambda learner, booster, tree: tree[name].__setitem__(place, value)

    changes = [
        set_entry("left_children", 0, 0),
        set_entry("right_children", 0, 10**6),
        set_entry("parents", 1, 5),
        set_entry("split_indices", 0, 2),
        set_entry("split_conditions", -1, np.inf),
        set_entry("default_left", 0, 7),
        set_entry("split_type", 0, 1),
        lambda learner, booster, tree: tree.update(left_children=tree["left_children"][:-1]),
        lambda learner, booster, tree: tree["tree_param"].update(num_nodes="1000000"),
        lambda learner, booster, tree: booster.update(tree_info=[0, 1, 0]),
        lambda learner, booster, tree: booster.update(iteration_indptr=[0, 9]),
        lambda learner, booster, tree: booster["gbtree_model_param"].update(num_trees="9"),
        lambda learner, booster, tree: learner["learner_model_param"].update(num_class="99"),
        lambda learner, booster, tree: learner["learner_model_param"].update(base_score="nan"),
        lambda learner, booster, tree: learner.update(objective={"name": "x"}),
    ]
    for change in changes:
        with pytest.raises(ModelFileError, match=r"a tree|a booster"):
            checked_xgboost(forged(change))
    for cut in (1, 50, len(data) // 2, len(data) - 1):
        with pytest.raises(ModelFileError, match="a booster"):
            checked_xgboost(data[:cut])


def test_forged_trees_of_catboost():
    catboost = pytest.importorskip("catboost")
    settings = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
    learner = catboost.CatBoostClassifier(iterations=3, depth=2, **settings).fit(X, LABEL)
    data = round_trip(learner)[0]
    assert json.dumps(checked_catboost(data)).encode() == data
    split = ("oblivious_trees", 1, "splits", 0)
    for *place, value in [
        (*split, "float_feature_index", 2),
        (*split, "split_index", 10**6),
        (*split, "border", 0.123),
        (*split, "split_type", "OnlineCtr"),
        ("oblivious_trees", 1, "leaf_values", [0.0]),
        ("oblivious_trees", 1, "leaf_values", 0, float("inf")),
        ("oblivious_trees", 1, "splits", []),
        ("features_info", "float_features", 0, "borders", [1.0, 0.0]),
        ("features_info", "float_features", 0, "flat_feature_index", 9),
        ("features_info", "categorical_features", []),
        ("scale_and_bias", [1.0, [0.0, 0.0]]),
        ("model_info", "class_params", "class_names", ["a", "b"]),
    ]:
        model = json.loads(data)
        inner = model
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        with pytest.raises(ModelFileError, match=r"a tree|a booster"):
            checked_catboost(json.dumps(model).encode())


def test_catboost_of_earlier_versions(tmp_path):
    """Its binary format is turned into JSON by a child process; so is what harms it."""
    pytest.importorskip("catboost")
    model = clone(ESTIMATORS["MCD-catboost"]).fit(X, Y)
    path = tmp_path / "model.mcd"
    save(model, path)
    name = next(
        name
        for name in members_of(path.read_bytes())
        if name.endswith(".json") and name != "model.json"
    )
    model.discriminator_.learner_.save_model(str(tmp_path / "model.cbm"))
    binary = (tmp_path / "model.cbm").read_bytes()

    def as_before(content):
        members = members_of(path.read_bytes())
        del members[name]
        text = members["model.json"].replace(f'"{name}"'.encode(), b'"old.cbm"')
        members |= {"model.json": text, "old.cbm": content}
        (tmp_path / "old.mcd").write_bytes(
            change_head(packed(members.items()), lambda head: head.update(format=2))
        )
        return tmp_path / "old.mcd"

    np.testing.assert_array_equal(load(as_before(binary)).predict(X), model.predict(X))
    with pytest.raises(ModelFileError, match="a model of catboost is damaged"):
        load(as_before(binary[: len(binary) // 2]))


# Signatures.


@pytest.fixture
def signed(tmp_path):
    model = MCD("quadratic", random_state=0).fit(X, Y)
    save(model, tmp_path / "signed.mcd", key="right")
    save(model, tmp_path / "unsigned.mcd")
    return model, tmp_path / "signed.mcd", tmp_path / "unsigned.mcd"


def test_signed_files_need_the_same_key(signed):
    model, path, unsigned = signed
    for key in ("right", b"right", None):
        np.testing.assert_array_equal(load(path, key=key).predict(X), model.predict(X))
    with pytest.raises(ModelFileError, match="signed with another key, or changed since"):
        load(path, key=b"wrong")
    with pytest.raises(ModelFileError, match="is not signed, and a key was given"):
        load(unsigned, key="right")
    with pytest.raises(TypeError, match="key must be bytes or text, got int"):
        load(path, key=3)
    with pytest.raises(ValueError, match="key is empty"):
        save(model, path, key="")


def test_any_change_breaks_a_signature(signed):
    """Of a member, of its list, of the content, of what is said of the model."""
    _, path, _ = signed
    data = path.read_bytes()
    array = next(name for name in members_of(data) if name.endswith(".npy"))
    content = members_of(data)[array]
    for forged in (
        change_head(data, lambda head: None, **{array: content[:-1] + b"\x00"}),
        change_head(data, lambda head: head["content"]["value"]["state"].update(epsilon=0.5)),
        change_head(data, lambda head: head.update(n_features=3)),
        change_head(data, lambda head: head.update(more=3)),
        change_head(data, lambda head: head.update(signature="0" * 64)),
    ):
        path.write_bytes(forged)
        with pytest.raises(ModelFileError, match="signed with another key, or changed since"):
            load(path, key="right")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.npy", content)
    path.write_bytes(change_head(data, lambda head: head.pop("signature")))
    with pytest.raises(ModelFileError, match="is not signed"):
        load(path, key="right")


def test_the_command_line_signs_with_a_key_file(tmp_path, monkeypatch):
    from mcdensity.cli.shared import load_model, model_key

    assert model_key() is None
    (tmp_path / "key").write_bytes(b"a secret\n")
    monkeypatch.setenv("MCDENSITY_KEY_FILE", str(tmp_path / "key"))
    model = MCD("quadratic", random_state=0).fit(X, Y)
    save(model, tmp_path / "model.mcd", key=model_key())
    load_model(tmp_path / "model.mcd")
    save(model, tmp_path / "model.mcd", key="another")
    with pytest.raises(ModelFileError, match="another key"):
        load_model(tmp_path / "model.mcd")
