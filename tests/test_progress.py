"""Progress says what is being done, of how many, and how long it will still take."""

import os
import tempfile

import joblib
import numpy as np
import pytest

from mcdensity import MCD, _progress
from mcdensity._progress import SILENT, Reporter, _Summary, showing


def _summary(*reports, costs=None):
    out = _Summary("Fitting")
    if costs is not None:
        out.add(f'{{"costs": {costs}}}'.replace("'", '"'))
    for name, share in reports:
        out.add(f'{{"name": "{name}", "share": {share}}}')
    return out


def test_shares_count_by_their_cost():
    summary = _summary(("a", 1.0), ("b", 0.5), costs={"a": 1, "b": 3})
    assert summary.done == pytest.approx((1 + 1.5) / 4)
    assert summary.description == "Fitting: b (1 of 2 done)"


def test_time_left_follows_the_pace():
    summary = _summary(("a", 0.25), costs={"a": 1})
    summary.begin -= 10
    assert summary.left == "about 30 s left"
    summary.begin -= 190
    assert summary.left == "about 10 min left"
    assert _summary(costs={"a": 1}).left == ""


def test_folds_are_stretches_of_a_part(tmp_path):
    path = tmp_path / "reports"
    path.touch()
    second = Reporter(str(path)).part("a").within(0.5, 1).within(0, 0.5)
    second(0.5)
    second(0.501)  # not worth a line
    second(1)
    summary = _Summary("")
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        summary.add(line)
    assert summary.share == {"a": 0.75}


def test_reports_come_from_other_processes(tmp_path):
    path = tmp_path / "reports"
    path.touch()
    reporter = Reporter(str(path)).part("a")
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        joblib.Parallel(n_jobs=2)(joblib.delayed(reporter)(s) for s in (0.2, 0.4))
    assert sorted(line.split()[-1] for line in path.read_text().splitlines()) == ["0.2}", "0.4}"]


def test_nothing_is_shown_unless_asked_for(capsys):
    with showing(False, "Fitting") as reporter:
        reporter(0.5)
    assert reporter is SILENT
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("discriminator", ["mlp", "auto"])
def test_verbose_says_what_is_done(capsys, monkeypatch, discriminator):
    monkeypatch.setattr(_progress, "_FIRST_LINE", 0.0)
    monkeypatch.setattr(_progress, "_PAUSE", 0.01)
    before = set(os.listdir(tempfile.gettempdir()))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    params = {"steps": 60} if discriminator == "mlp" else {"portfolio": ["quadratic", "mixture"]}
    MCD(discriminator, discriminator_params=params, random_state=0, verbose=True).fit(X, X[:, 0])
    lines = capsys.readouterr().err
    assert "Fitting MCD to 60 rows" in lines
    assert "done in" in lines
    assert ("mixture (1 of 2 done)" in lines) == (discriminator == "auto")
    left = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in left if name.startswith("mcdensity-progress")]
