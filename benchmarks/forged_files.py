"""Model files forged with right checksums: each must be refused, or predict finite numbers.

    python benchmarks/forged_files.py [--count 150] [--family lightgbm] [--seed 0]

For each family an honest model is saved and changed in `count` ways: bytes, counts, indices,
cycles, types, lengths, numbers that are none, bombs, and parameters. Each file is loaded in a
process of its own, which then predicts; its time and its memory are measured. Needs Linux.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import select
import signal
import struct
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mcdensity import MCD, load, save
from mcdensity._codec.ubjson import read_ubjson, write_ubjson
from mcdensity.baselines import get_estimator

Random = np.random.Generator
Members = dict[str, bytes]

FAMILIES = {
    "lightgbm": (".txt",),
    "xgboost": (".ubj",),
    "catboost": (".json", ".cbm"),
    "trees": (".skops",),
    "histogram boosting": (".skops",),
    "kd trees": (".skops",),
    "networks": (".safetensors",),
}
SMALL = {"n_estimators": 20}
NETWORK = {"steps": 40, "width": 16}
LONGEST, MOST_MEMORY = 10.0, 500
HOSTILE: tuple[Any, ...] = (
    -1, -2, 0, 1, 3, 255, 2**31 - 1, -(2**31), 2**32, 10**9, 2**63 - 1, 10**30, 0.5, -1e-320, 1e38,
    -1e308, 1e999, -1e999, float("nan"), None, True, "", "x", [], {}, [0] * 1000,
)  # fmt: skip


# Honest models.


def data(n: int = 120) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + rng.normal(size=n)


def honest(family: str) -> list[Any]:
    """Fitted models with learners of a family."""
    one = {"random_state": 0}
    models: dict[str, Callable[[], list[Any]]] = {
        "lightgbm": lambda: [
            MCD("lightgbm", discriminator_params=SMALL | {"verbosity": -1}, **one)
        ],
        "xgboost": lambda: [MCD("xgboost", discriminator_params=SMALL, **one)],
        "catboost": lambda: [MCD("catboost", discriminator_params=SMALL, **one)],
        "trees": lambda: [
            MCD("random-forest", discriminator_params=SMALL, **one),
            MCD("forest", discriminator_params={"n_trees": 10}, **one),
            get_estimator("rfcde", n_trees=10, **one),
        ],
        "histogram boosting": lambda: [
            MCD("hist-gradient-boosting", discriminator_params={"max_iter": 20}, **one)
        ],
        "kd trees": lambda: [get_estimator("nnkcde"), get_estimator("flexcode-nn")],
        "networks": lambda: [
            MCD(name, discriminator_params=NETWORK, **one)
            for name in ("mlp", "resnet", "mixture", "flow")
        ],
    }
    return [model.fit(*data()) for model in models[family]()]


def members_of(content: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_checksums(head: dict[str, Any], members: Members) -> bytes:
    head["members"] = {
        name: {"size": len(content), "sha256": sha256(content).hexdigest()}
        for name, content in members.items()
    }
    return packed({"model.json": json.dumps(head).encode(), **members})


def parts(content: bytes) -> tuple[dict[str, Any], Members]:
    members = members_of(content)
    return json.loads(members.pop("model.json")), members


def as_binary_catboost(content: bytes, model: Any) -> bytes:
    """The same file as earlier versions wrote it, with catboost's binary format."""
    head, members = parts(content)
    name = next(name for name in members if name.endswith(".json"))
    with tempfile.TemporaryDirectory() as folder:
        model.discriminator_.learner_.save_model(f"{folder}/model.cbm")
        members[name[:-4] + "cbm"] = Path(folder, "model.cbm").read_bytes()
    del members[name]
    text = json.dumps(head).replace(f'"{name}"', f'"{name[:-4]}cbm"')
    return with_checksums(json.loads(text) | {"format": 2}, members)


# Changes of bytes, JSON, arrays.


def pick(rng: Random, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def change_bytes(content: bytes, rng: Random) -> bytes:
    out = bytearray(content)
    place = int(rng.integers(len(out)))
    match int(rng.integers(7)):
        case 0:
            out[place] ^= 1 << int(rng.integers(8))
        case 1:
            for i in rng.integers(len(out), size=20):
                out[i] = int(rng.integers(256))
        case 2:
            del out[place:]
        case 3:
            del out[place : place + int(rng.integers(1, 64))]
        case 4:
            out[place:place] = bytes(int(rng.integers(1, 64)))
        case 5:
            out[place : place + 8] = pick(rng, (b"\xff" * 8, b"\x7f" + b"\xff" * 7, bytes(8)))
        case _:
            out[place:] = rng.bytes(len(out) - place)
    return bytes(out)


def change_value(value: Any, rng: Random) -> Any:
    """Put something hostile into the place of one value somewhere inside of another."""
    if isinstance(value, np.ndarray):
        return change_array(value, rng)
    if isinstance(value, dict | list) and len(value) and rng.random() < 0.97:
        key = pick(rng, list(value) if isinstance(value, dict) else range(len(value)))
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.03:
            del copy[key]
        else:
            copy[key] = change_value(value[key], rng)
        return copy
    if isinstance(value, list) and rng.random() < 0.5:
        return value * 2
    if isinstance(value, str) and value.lstrip("-").isdigit() and rng.random() < 0.8:
        return str(pick(rng, (-1, 0, 1, int(value) + 1, 10**6, 10**9, 2**31 - 1, 2**63)))
    if isinstance(value, int | float) and rng.random() < 0.6:
        return pick(rng, (-1, 0, value + 1, -value, 2 * value + 1, 1000, 2**31 - 1, 1e300))
    return pick(rng, HOSTILE)


def change_array(values: Any, rng: Random) -> Any:
    """Change one element of an array, or its shape or its type."""
    values = values.copy()
    kind = rng.random()
    if kind < 0.75 and values.size:
        whole = values
        if values.dtype.names:  # indices more often than the rest; a view
            names = [name for name in values.dtype.names if values.dtype[name].kind in "iu"]
            whole = values[pick(rng, names if rng.random() < 0.7 else values.dtype.names)]
        for place in rng.integers(values.size, size=pick(rng, (1, 1, 1 + values.size // 3))):
            whole.reshape(-1)[place] = hostile_number(whole.dtype, rng, int(place))
        return values
    if kind < 0.8:
        return values[: len(values) // 2] if values.ndim else values.reshape(1)
    if kind < 0.85:
        return np.concatenate([values, values]) if values.ndim else values.reshape(1, 1)
    if kind < 0.9 and values.ndim:
        return values[:0]
    if values.dtype.names or values.dtype.kind not in "iuf":
        return values[::-1].copy() if values.ndim else values
    return values.astype(pick(rng, ("i1", "u2", "f4", "f8", "c16", ">f8", "i8")))


def hostile_number(dtype: Any, rng: Random, place: int) -> Any:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        choices = (0, 1, place, place + 1, place // 2, 7, 100, limits.max, limits.min, -1, 10**6)
        return int(np.clip(pick(rng, choices), limits.min, limits.max))
    if dtype.kind == "f":
        choices = (np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30, 1e300, -1.0, 1e6, 1e-30)
        number = pick(rng, choices)
        return number if not np.isfinite(number) else float(np.clip(number, -3e38, 3e38))
    return np.zeros((), dtype)[()]


# Changes that know the format.


def change_text(content: bytes, rng: Random) -> bytes:
    """A number, a line or a block of lightgbm's text."""
    lines = content.decode().split("\n")
    i = pick(rng, [i for i, line in enumerate(lines) if "=" in line])
    name, _, text = lines[i].partition("=")
    words = text.split(" ")
    match int(rng.integers(6)):
        case 0 | 1 | 2:
            words[int(rng.integers(len(words)))] = str(
                pick(
                    rng, (-1, 0, 1, 2, 5, 14, 10**6, 2**31 - 1, -(2**31), "nan", "1e999", "x", -15)
                )
            )
        case 3:
            words = words[: len(words) // 2]
        case 4:
            words = words * 2
        case _:
            lines.insert(int(rng.integers(len(lines))), lines.pop(i))
            return "\n".join(lines).encode()
    lines[i] = f"{name}={' '.join(words)}"
    return "\n".join(lines).encode()


def change_skops(content: bytes, rng: Random) -> bytes:
    members = members_of(content)
    schema = json.loads(members["schema.json"])
    arrays = [name for name in members if name.endswith(".npy")]
    kind = rng.random()
    if kind < 0.55:
        # Nodes and indices, and others of some size, more often than numbers of classes.
        large = [name for name in arrays if len(members[name]) > 300] or arrays
        nodes = [name for name in large if b"('" in members[name][:200]] or large
        name = pick(rng, pick(rng, (nodes, large, arrays)))
        out = io.BytesIO()
        np.save(out, change_array(np.load(io.BytesIO(members[name])), rng))
        members[name] = out.getvalue()
    elif kind < 0.62:
        name = pick(rng, arrays)
        members[name] = change_bytes(members[name], rng)
    elif kind < 0.67:
        a, b = pick(rng, arrays), pick(rng, arrays)
        members[a], members[b] = members[b], members[a]
    else:
        numbers = [node for node in nodes_of(schema) if node.get("__loader__") == "JsonNode"]
        if kind < 0.92:
            node = pick(rng, numbers)
            node["content"] = json.dumps(change_value(json.loads(node["content"]), rng))
        elif kind < 0.95:
            node = pick(rng, [n for n in nodes_of(schema) if n.get("type") == "numpy"])
            node |= {"__loader__": "SparseMatrixNode", "type": "scipy", "file": "bomb.npz"}
            members["bomb.npz"] = bomb()
        else:
            schema = change_value(schema, rng)
        members["schema.json"] = json.dumps(schema).encode()
    return packed(members)


def nodes_of(value: Any) -> list[dict[str, Any]]:
    out = [value] if isinstance(value, dict) and "__loader__" in value else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return out + [node for part in inner for node in nodes_of(part)]


def bomb() -> bytes:
    """A sparse matrix of 1 MB that unpacks to 1 GB."""
    if not BOMB:
        out = io.BytesIO()
        header = io.BytesIO()
        shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 27,)}
        np.lib.format.write_array_header_1_0(header, shape)
        with (
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("data.npy", "w", force_zip64=True) as member,
        ):
            member.write(header.getvalue())
            for _ in range(1 << 10):
                member.write(bytes(1 << 20))
        BOMB.append(out.getvalue())
    return BOMB[0]


BOMB: list[bytes] = []


def change_tensors(content: bytes, rng: Random) -> bytes:
    size = int.from_bytes(content[:8], "little")
    head, body = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    name = pick(rng, [name for name in head if name != "__metadata__"])
    start, stop = head[name]["data_offsets"]
    kind = rng.random()
    if kind < 0.6 and head[name]["dtype"] == "F32":
        values = np.frombuffer(bytes(body[start:stop]), "<f4").copy()
        if kind < 0.3:
            values[int(rng.integers(len(values)))] = hostile_number(values.dtype, rng, 0)
        elif kind < 0.5:
            values[:] = hostile_number(values.dtype, rng, 0)
        else:
            values *= pick(rng, (1e3, 1e6, 1e10, 1e20, -1.0, 0.0))
        body[start:stop] = values.tobytes()
    elif kind < 0.7:
        head[name]["shape"] = [*head[name]["shape"][::-1], 1]
    elif kind < 0.8:
        other = pick(rng, [key for key in head if key != "__metadata__"])
        head[name], head[other] = head[other], head[name]
    elif kind < 0.9:
        head = change_value(head, rng)
    else:
        return change_bytes(content, rng)
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + bytes(body)


def change_head(head: dict[str, Any], members: Members, rng: Random) -> dict[str, Any]:
    """Parameters and attributes in model.json: workers, positions of generators, anything."""
    state = head["content"]["value"]["state"]
    kind = rng.random()
    if kind < 0.2:
        key = np.zeros(624, np.uint32)
        out = io.BytesIO()
        np.save(out, key)
        members["key.npy"] = out.getvalue()
        position = int(pick(rng, (-1, 625, 10**6, 2**40)))
        array = {"$": "array", "value": "key.npy"}
        inner = {"$": "dict", "value": [["key", array], ["pos", position]]}
        pairs = [["bit_generator", "MT19937"], ["state", inner], ["has_gauss", 0], ["gauss", 0.0]]
        state["random_state"] = {"$": "random_state", "value": {"$": "dict", "value": pairs}}
        return head
    if kind < 0.35:
        text = json.dumps(head["content"])
        for name in ("n_jobs", "num_threads", "thread_count", "nthread"):
            text = text.replace(f'["{name}", null]', f'["{name}", 1000000]')
        state.update(json.loads(text)["value"]["state"], n_jobs=10**6)
        return head
    # Values deep inside more often than whole parts.
    for _ in range(20):
        changed = change_value(head["content"], rng)
        if abs(len(json.dumps(changed)) - len(json.dumps(head["content"]))) < 200:
            break
    return head | {"content": changed}


CHANGES: dict[str, Callable[[bytes, Random], bytes]] = {
    ".txt": change_text,
    ".ubj": lambda content, rng: write_ubjson(change_value(read_ubjson(content), rng)),
    ".json": lambda content, rng: json.dumps(change_value(json.loads(content), rng)).encode(),
    ".cbm": change_bytes,
    ".skops": change_skops,
    ".safetensors": change_tensors,
}


def forge(content: bytes, family: str, rng: Random) -> bytes:
    """A changed file with right checksums."""
    while True:
        head, members = parts(content)
        name = pick(rng, [name for name in members if name.endswith(FAMILIES[family])])
        kind = rng.random()
        try:
            if kind < 0.15:
                members[name] = change_bytes(members[name], rng)
            elif kind < 0.3:
                head = change_head(head, members, rng)
            else:
                for _ in range(int(rng.integers(1, 3))):
                    members[name] = CHANGES[Path(name).suffix](members[name], rng)
        except (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, struct.error):
            continue  # what cannot be written in its format at all
        if with_checksums(head, members) != content:
            return with_checksums(head, members)


# Loading them.


def work(path: Path) -> tuple[str, str]:
    """What became of a file: a word and a sentence."""
    try:
        model = load(path)
    except ValueError as error:
        return "refused", str(error)
    except Exception as error:
        return "error", f"load: {type(error).__name__}: {error}"
    X, y = data(200)
    try:
        law = model.predict(X), model.predict_quantiles(X), np.exp(model.logpdf(X, y))
    except ValueError as error:
        return "refused later", str(error)
    except Exception as error:
        return "error", f"predict: {type(error).__name__}: {error}"
    return ("fine", "") if all(np.isfinite(part).all() for part in law) else ("not finite", "")


def in_child(path: Path) -> tuple[str, str, float, float]:
    """Load a file in a child process: what became of it, seconds, and megabytes at the most."""
    reading, writing = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os.write(writing, "\t".join(work(path))[:2000].encode())
        os._exit(0)
    os.close(writing)
    said = b""
    if not select.select([reading], [], [], 4 * LONGEST)[0]:
        os.kill(child, signal.SIGKILL)
        said = b"hangs\t"
    else:
        said = os.read(reading, 4096)
    os.close(reading)
    _, status, used = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    if not said:
        return "crashed", f"signal {os.WTERMSIG(status)}", seconds, used.ru_maxrss / 1024
    word, _, sentence = said.decode(errors="replace").partition("\t")
    return word, sentence.replace("\n", " "), seconds, used.ru_maxrss / 1024


def honest_files(family: str, folder: Path) -> list[bytes]:
    """Fit and save in a child: threads that learned something do not survive a fork."""
    child = os.fork()
    if child == 0:
        try:
            for i, model in enumerate(honest(family)):
                save(model, folder / f"{i}.mcd")
                if family == "catboost":
                    # The same as earlier versions wrote it.
                    content = (folder / f"{i}.mcd").read_bytes()
                    (folder / "old.mcd").write_bytes(as_binary_catboost(content, model))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    files = [path.read_bytes() for path in sorted(folder.glob("*.mcd"))]
    return files[:1] * 3 + files[1:] if family == "catboost" else files


def run(family: str, count: int, seed: int, keep: Path | None) -> dict[str, Any]:
    rng = np.random.default_rng([seed, *family.encode()])
    words: Counter[str] = Counter()
    longest, largest, worst = 0.0, 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        files, base = honest_files(family, Path(folder)), []
        path = Path(folder) / "model"
        for content in files:
            path.write_bytes(content)
            word, sentence, _, memory = in_child(path)
            assert word == "fine", (family, word, sentence)
            base.append(memory)
        for i in range(count):
            which = i % len(files)
            path.write_bytes(forge(files[which], family, rng))
            word, sentence, seconds, memory = in_child(path)
            words[word] += 1
            longest, largest = max(longest, seconds), max(largest, memory - base[which])
            bad = word not in ("refused", "refused later", "fine")
            if bad or seconds > LONGEST or memory - base[which] > MOST_MEMORY:
                worst.append(f"{family} {i}: {word}, {sentence[:150]}")
                if keep is not None:
                    (keep / f"{family.replace(' ', '-')}-{i}.mcd").write_bytes(path.read_bytes())
    return {"words": words, "longest": longest, "largest": max(largest, 0.0), "worst": worst}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--family", choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for files that went wrong")
    options = parser.parse_args()
    for name in (
        "torch",
        "lightgbm",
        "xgboost",
        "catboost",
        "safetensors.torch",
        "sklearn.ensemble",
    ):
        __import__(name)  # once, and not in each of the children
    columns = "refused", "refused later", "fine", "not finite", "error", "crashed", "hangs"
    print(f"{'family':<20}" + "".join(f"{c:>14}" for c in columns) + "   longest  more memory")
    failed = []
    for family in [options.family] if options.family else list(FAMILIES):
        found = run(family, options.count, options.seed, options.keep)
        numbers = "".join(f"{found['words'][c]:>14}" for c in columns)
        print(
            f"{family:<20}{numbers}{found['longest']:>8.1f} s{found['largest']:>10.0f} MB",
            flush=True,
        )
        failed += found["worst"]
    print(*failed, sep="\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
