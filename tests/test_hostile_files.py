"""Hostile model files: each is made from a good one, is refused, and runs nothing."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from estimators import ESTIMATORS
from sklearn.base import clone

from mcdensity import load, save
from mcdensity.persistence import FORMAT, ModelFileError
from model_files import change_head, members_of, packed

pytest.importorskip("skops")
pytest.importorskip("safetensors")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
Y = X[:, 0] + RNG.normal(size=80)


def first_member(data, suffix):
    return next(name for name in members_of(data) if name.endswith(suffix))


def change_content(data, change, **replaced):
    return change_head(data, lambda head: change(head["content"]["value"]), **replaced)


def set_state(name, value):
    return lambda content: content["state"].update({name: value})


def npy(header, body=b""):
    text = (header + " " * (63 - len(header) % 64)).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


class Bomb:
    """What pickle would run."""

    def __reduce__(self):
        return os.system, ("touch CANARY",)


def deep(levels):
    out = "1"
    for _ in range(levels):
        out = f"[{out}]"
    return out


def flipped(data, position):
    return data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]


def object_array():
    out = io.BytesIO()
    np.save(out, np.array([Bomb()], dtype=object), allow_pickle=True)
    return out.getvalue()


def skops_with(class_name, module):
    """A learner's file that asks for something else."""
    node = {"__class__": class_name, "__module__": module, "__loader__": "ObjectNode",
            "__id__": 1, "content": {"__class__": "dict", "__module__": "builtins",
            "__loader__": "DictNode", "__id__": 2, "content": {}, "key_types":
            {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode",
             "__id__": 3, "content": []}}, "protocol": 2, "_skops_version": "0.11"}  # fmt: skip
    return packed([("schema.json", json.dumps(node))])


def hostile_archives(quadratic):
    """Make archives that must be refused, by name."""
    array = first_member(quadratic, ".npy")
    good = list(members_of(quadratic).items())
    zeros = bytes(1 << 20)
    body = quadratic.find(members_of(quadratic)[array])
    yield "text", b"this is no model"
    yield "empty", b""
    yield "truncated", quadratic[: len(quadratic) // 2]
    yield "without its end", quadratic[:-30]
    yield "pickle", pickle.dumps(Bomb())
    yield "pickle as head", packed([("model.json", pickle.dumps(Bomb()))])
    yield "no head", packed([("other.json", "{}")])
    yield "flipped bit in an array", flipped(quadratic, body + 200)
    yield "flipped bit in the head", flipped(quadratic, quadratic.find(b'"state"') + 3)
    yield "later format", change_head(quadratic, lambda h: h.update(format=FORMAT + 1))
    yield "earlier format", change_head(quadratic, lambda h: h.update(format=0))
    yield "no format", change_head(quadratic, lambda h: h.pop("format"))
    yield "head is a list", packed([("model.json", "[1, 2]"), *good[1:]])
    yield "path traversal", packed([*good, ("../CANARY", "here")])
    yield "absolute path", packed([*good, ("/tmp/CANARY", "here")])
    yield "zip bomb", packed([*good, ("bomb", zeros * 300)], zipfile.ZIP_DEFLATED)
    yield "bomb as head", packed([("model.json", b"[" * (200 << 20))], zipfile.ZIP_DEFLATED)
    yield "deep head", packed([("model.json", deep(100_000)), *good[1:]])
    yield (
        "deep content",
        change_content(
            quadratic, set_state("x", json.loads('{"$": "tuple", "value": [' * 400 + "]}" * 400))
        ),
    )


def hostile_contents(quadratic, forest, network, booster):
    """Make archives that are whole, but whose content must be refused, by name."""
    array = first_member(quadratic, ".npy")
    skops = first_member(forest, ".skops")
    tensors = first_member(network, ".safetensors")
    ubj = first_member(booster, ".ubj")
    head = members_of(quadratic)["model.json"]
    good = list(members_of(quadratic).items())
    zeros = bytes(1 << 20)
    yield "unlisted member", packed([*good, ("more.npy", "here")])
    yield "missing member", packed([m for m in good if m[0] != array])
    yield "wrong checksum", packed([(n, c + b"x" if n == array else c) for n, c in good])
    yield "unknown class", change_content(quadratic, lambda c: c.update({"class": "os:system"}))
    yield (
        "known module, other name",
        change_content(quadratic, lambda c: c.update({"class": "mcdensity.mcd:np"})),
    )
    yield (
        "unknown function",
        change_content(quadratic, set_state("x", {"$": "function", "value": "builtins:eval"})),
    )
    yield (
        "class for a function",
        change_content(quadratic, set_state("x", {"$": "function", "value": "mcdensity.mcd:MCD"})),
    )
    yield "magic attribute", change_content(quadratic, set_state("__class__", 1))
    yield "unknown tag", change_content(quadratic, set_state("x", {"$": "run", "value": "ls"}))
    yield (
        "not an estimator",
        change_head(quadratic, lambda h: h.update(content={"$": "tuple", "value": []})),
    )
    yield "array of objects", change_head(quadratic, lambda h: None, **{array: object_array()})
    yield "array of petabytes", change_head(
        quadratic, lambda h: None,
        **{array: npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }")},
    )  # fmt: skip
    yield (
        "learner of os.system",
        change_head(forest, lambda h: None, **{skops: skops_with("system", "os")}),
    )
    yield (
        "learner of subprocess",
        change_head(forest, lambda h: None, **{skops: skops_with("Popen", "subprocess")}),
    )
    yield (
        "learner is a pickle",
        change_head(forest, lambda h: None, **{skops: pickle.dumps(Bomb())}),
    )
    yield "bomb in a learner", change_head(
        forest, lambda h: None,
        **{skops: packed([("schema.json", zeros * 300)], zipfile.ZIP_DEFLATED)},
    )  # fmt: skip
    yield "network of garbage", change_head(network, lambda h: None, **{tensors: b"\xff" * 100})
    yield "booster of garbage", change_head(booster, lambda h: None, **{ubj: b"\x00garbage" * 9})
    yield "head of wrong kinds", packed([
        ("model.json", head.replace(b'"members": {', b'"members": 3, "x": {')), *good[1:]
    ])  # fmt: skip


@pytest.fixture(scope="module")
def good_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    out = []
    for name in ("quadratic", "random-forest", "mlp", "xgboost"):
        save(clone(ESTIMATORS[f"MCD-{name}"]).fit(X, Y), folder / name)
        out.append((folder / name).read_bytes())
    return out


RUN = """
from pathlib import Path
from mcdensity import load
from mcdensity.persistence import ModelFileError
for path in sorted(Path("files").iterdir()):
    try:
        load(path)
        print(path.name, "LOADED", sep="\\t")
    except ModelFileError as error:
        print(path.name, "refused", str(error).replace("\\n", " "), sep="\\t")
    except BaseException as error:
        print(path.name, type(error).__name__, str(error)[:100], sep="\\t")
status = Path("/proc/self/status").read_text().split()
print("peak", int(status[status.index("VmHWM:") + 1]) // 1024, sep="\\t")
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_hostile_files_are_refused_and_run_nothing(good_files, tmp_path):
    (tmp_path / "files").mkdir()
    names = {}
    for i, (name, data) in enumerate(
        [*hostile_archives(good_files[0]), *hostile_contents(*good_files)]
    ):
        names[f"{i:02d}"] = name
        (tmp_path / "files" / f"{i:02d}").write_bytes(data)
    assert len(names) >= 20
    before = {p for p in tmp_path.rglob("*") if "__pycache__" not in p.parts}
    out = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    *lines, peak = (line.split("\t") for line in out)
    assert {names[line[0]]: line[1] for line in lines} == dict.fromkeys(names.values(), "refused")
    for line in lines:
        assert len(line[2]) > 30, (names[line[0]], line)
    assert {p for p in tmp_path.rglob("*") if "__pycache__" not in p.parts} == before
    assert not os.path.exists("/tmp/CANARY")
    assert int(peak[1]) < 500, "megabytes"


def test_any_flipped_byte_is_harmless(good_files, tmp_path):
    """Wherever a bit flips, the file is refused or predicts what it did."""
    data = good_files[0]
    path = tmp_path / "model.mcd"
    path.write_bytes(data)
    expected = load(path).predict(X)
    rng = np.random.default_rng(0)
    for position in rng.integers(len(data), size=150):
        path.write_bytes(flipped(data, int(position)))
        try:
            found = load(path).predict(X)
        except ModelFileError:
            continue
        np.testing.assert_array_equal(found, expected)
