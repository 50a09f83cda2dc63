"""Discriminators: adapters, the registry, class weights, early stopping."""

import sys

import numpy as np
import pytest
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import LinearSVC

from mcdensity import MCD, build_contrast
from mcdensity.data import TrainingData
from mcdensity.discriminators import (
    LearnerDiscriminator,
    get_discriminator,
    list_discriminators,
    make_discriminator,
)
from mcdensity.marginals import TailedDensity
from mcdensity.target import InnerMarginal, TargetSpace

NEURAL = ["flow", "two-tower", "mixture", "mlp", "mlp-plain", "resnet", "glu", "snn"]

pytestmark = pytest.mark.filterwarnings("ignore:ratio=:UserWarning")


def normal_data(n=400, rho=0.8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, rho * X[:, 0] + np.sqrt(1 - rho**2) * rng.normal(size=n)


def contrast(n=400, **options):
    return build_contrast(*normal_data(n), random_state=0, **options)


def fit(expert, pairs, seed=0, marginal=None):
    data = TrainingData.of_contrast(pairs, seed)
    data.marginal = marginal
    expert.fit(data)
    return expert


LEARNERS = [
    LogisticRegression(),
    make_pipeline(PolynomialFeatures(2), LogisticRegression(C=0.1)),
    GaussianNB(),
    QuadraticDiscriminantAnalysis(),
    KNeighborsClassifier(200),
    SGDClassifier(loss="log_loss"),
    RandomForestClassifier(20, min_samples_leaf=20),
    RandomForestRegressor(20, min_samples_leaf=20),
    GradientBoostingClassifier(n_estimators=20),
    CalibratedClassifierCV(LinearSVC(), cv=3),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda x: type(x).__name__)
def test_any_learner(learner):
    X, y = normal_data()
    before = repr(learner)
    model = MCD(discriminator=learner, random_state=0).fit(X, y)
    assert repr(learner) == before
    assert not hasattr(learner, "classes_")
    grid = np.linspace(-8, 8, 20_001)
    integral = np.trapezoid(model.pdf_from_X(X[:5], grid), grid, axis=1)
    np.testing.assert_allclose(integral, 1, atol=2e-3)


def test_decision_function_and_probability_give_the_same_logit():
    pairs = contrast()
    learner = LogisticRegression()
    by_logit = fit(make_discriminator(learner), pairs)

    class Probability(LogisticRegression):
        """Not known to be logistic, since it is not of scikit-learn."""

    by_probability = fit(make_discriminator(Probability()), pairs)
    X, Y = np.zeros((3, 1)), np.linspace(-2, 2, 12).reshape(3, 4)
    np.testing.assert_allclose(by_logit.logit_rows(X, Y), by_probability.logit_rows(X, Y))


def test_scores_that_are_no_logits_are_refused():
    with pytest.raises(ValueError, match=r"LinearSVC has no predict_proba.*CalibratedClassifierCV"):
        MCD(discriminator=LinearSVC(), random_state=0).fit(*normal_data())


@pytest.mark.parametrize("name", list_discriminators())
def test_registry_rows_and_grid_agree(name):
    quick = {"steps": 50} if name in NEURAL else {}
    if name == "auto":
        quick = {"portfolio": {"quadratic": {}, "mixture": {"steps": 50}, "mlp": {"steps": 50}}}
    pairs = contrast(100)
    y = pairs.y_pool[:, 0]
    law = TailedDensity().fit(y)
    marginal = InnerMarginal(TargetSpace(0.0, 1.0, limits=(y.min(), y.max())), law)
    expert = fit(get_discriminator(name, **quick), pairs, marginal=marginal)
    X, grid = np.linspace(-1, 1, 4)[:, None], np.linspace(-2, 2, 7)
    conditioned, log_f = expert.condition(X), marginal.logpdf(grid)
    on_grid = conditioned.relative(grid, log_f)
    by_row = conditioned.relative(np.tile(grid, (4, 1)), np.tile(log_f, (4, 1)))
    assert on_grid.shape == (4, 7)
    np.testing.assert_allclose(on_grid, by_row, atol=1e-10)
    some = np.array([3, 1])
    np.testing.assert_allclose(conditioned.relative(grid, log_f, some), on_grid[some], atol=1e-10)
    alone = expert.condition(X[1:2]).relative(grid[3:4], log_f[3:4])
    np.testing.assert_allclose(alone[0, 0], on_grid[1, 3], atol=1e-10)


def test_quadratic_is_logistic_regression_on_degree_two():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, -0.5, 0.0] + rng.normal(size=300)
    pairs = build_contrast(X, y, ratio=0.2, random_state=0)
    ours = fit(get_discriminator("quadratic", C=0.7), pairs)
    theirs = make_pipeline(
        PolynomialFeatures(2, include_bias=False),
        LogisticRegression(C=0.7 * 1000 / len(pairs), tol=1e-8, max_iter=1000),
    ).fit(pairs.materialize(), pairs.label)
    Y = rng.normal(size=(300, 1))
    expected = theirs.decision_function(np.column_stack([X, Y]))
    np.testing.assert_allclose(ours.logit_rows(X, Y)[:, 0], expected, rtol=2e-3, atol=2e-3)


def test_quadratic_with_many_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 80))
    model = MCD(discriminator="quadratic", random_state=0).fit(X, X[:, 0] + rng.normal(size=60))
    assert len(model.discriminator_._of_x) == 160
    assert np.isfinite(model.predict(X)).all()


# A learner's own class weights change r.


@pytest.mark.parametrize(
    "learner",
    [
        LogisticRegression(class_weight="balanced", C=100),
        LogisticRegression(class_weight={0: 1.0, 1: 7.0}, C=100),
        make_pipeline(PolynomialFeatures(1), LogisticRegression(class_weight="balanced", C=100)),
    ],
)
def test_class_weights_change_the_ratio(learner):
    """The odds q / (1 - q) are those of the weighted data, so r must be, too."""
    pairs = contrast()
    plain = fit(make_discriminator(LogisticRegression(C=100)), pairs)
    weighted = fit(make_discriminator(learner), pairs)
    assert weighted.ratio_ > 2 * plain.ratio_
    X, Y = np.zeros((1, 1)), np.zeros((1, 1))
    log_ratio = [d.logit_rows(X, Y) - logit(d.ratio_) for d in (plain, weighted)]
    np.testing.assert_allclose(log_ratio[0], log_ratio[1], atol=0.1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("xgboost", {"scale_pos_weight": 19.0}),
        ("lightgbm", {"is_unbalance": True}),
        ("lightgbm", {"class_weight": "balanced"}),
        ("catboost", {"auto_class_weights": "Balanced"}),
        ("catboost", {"class_weights": {0: 1.0, 1: 19.0}}),
    ],
)
def test_class_weights_of_boosting_libraries(name, options):
    discriminator = get_discriminator(name, n_estimators=5, **options)
    fit(discriminator, contrast())
    assert discriminator.ratio_ == pytest.approx(0.5)
    mean = discriminator.logit_rows(np.zeros((1, 1)), np.zeros((1, 1)))
    assert abs(mean[0, 0]) < 2  # unweighted it would be near logit(0.05) = -2.9


def test_sqrt_balanced():
    discriminator = get_discriminator("catboost", n_estimators=5, auto_class_weights="SqrtBalanced")
    fit(discriminator, contrast())
    assert logit(discriminator.ratio_) == pytest.approx(logit(0.05) / 2)


# Early stopping by pairs would find the training rows among the validation pairs.


@pytest.mark.parametrize(
    ("learner", "parameter"),
    [
        (HistGradientBoostingClassifier(max_iter=3, early_stopping=True), "early_stopping"),
        (MLPClassifier((4,), max_iter=300, early_stopping=True), "early_stopping"),
        (make_pipeline(SGDClassifier(loss="log_loss", early_stopping=True)), "early_stopping"),
        (GradientBoostingClassifier(n_estimators=3, n_iter_no_change=5), "n_iter_no_change"),
    ],
)
def test_early_stopping_by_pairs_is_switched_off(learner, parameter):
    with pytest.warns(UserWarning, match=f"{parameter}.*switched off"):
        model = MCD(discriminator=learner, random_state=0).fit(*normal_data(60))
    fitted = model.discriminator_.learner_
    last = fitted[-1] if hasattr(fitted, "steps") else fitted
    assert not getattr(last, parameter)


def test_automatic_early_stopping_is_switched_off_quietly(recwarn):
    model = MCD(discriminator=HistGradientBoostingClassifier(max_iter=3), random_state=0)
    model.fit(*normal_data(60))
    assert model.discriminator_.learner_.early_stopping is False
    assert not [w for w in recwarn if "switched off" in str(w.message)]


@pytest.mark.parametrize("name", ["hist-gradient-boosting", "xgboost", "lightgbm", "catboost"])
def test_rounds_are_chosen_on_held_out_observations(name):
    """Where x says nothing, held-out rows stop the boosting early; pairs would not."""
    rounds = []
    for rho in (0.0, 0.9):
        pairs = build_contrast(*normal_data(300, rho), random_state=0)
        discriminator = fit(get_discriminator(name), pairs)
        rounds.append(discriminator.n_rounds_)
    assert rounds[0] < rounds[1] <= 500
    few = get_discriminator(name, **{"max_iter" if "hist" in name else "n_estimators": 7})
    fit(few, contrast(12))
    assert few.n_rounds_ == 7


@pytest.mark.parametrize("name", ["hist-gradient-boosting", "xgboost", "lightgbm", "catboost"])
def test_weights_reach_the_choice_of_rounds(name):
    weight = np.random.default_rng(1).uniform(0.2, 3, size=400)
    discriminator = get_discriminator(
        name, **{"max_iter" if "hist" in name else "n_estimators": 20}
    )
    fit(discriminator, contrast(sample_weight=weight))
    assert np.isfinite(discriminator.logit_rows(np.zeros((1, 1)), np.zeros((1, 1)))).all()


# Missing values.


@pytest.mark.parametrize(
    "name",
    ["hist-gradient-boosting", "xgboost", "lightgbm", "catboost", "random-forest", "extra-trees"],
)
def test_missing_values_reach_learners_that_take_them(name):
    X, y = normal_data(200)
    X = np.column_stack([X, X])
    X[::3, 0] = np.nan
    model = MCD(discriminator=name, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_quantiles(X[:6])).all()


@pytest.mark.parametrize("name", ["quadratic", "elastic-net", *NEURAL])
def test_missing_values_are_completed_elsewhere(name):
    X, y = normal_data(50)
    X[3] = np.nan
    model = MCD(discriminator=name, random_state=0).fit(X, y)
    assert model.missing_columns_ == [0]
    assert np.isfinite(model.predict_quantiles(X[:6])).all()


# Torch.


class Net:
    """Made inside, so that collecting the tests does not import torch."""

    def __new__(cls, n_inputs, outputs=1):
        from torch import nn

        return nn.Sequential(nn.Linear(n_inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


@pytest.mark.parametrize("outputs", [1, 2])
def test_torch_module_and_factory(outputs):
    import torch

    X, y = normal_data(200)
    module = Net(2, outputs)
    before = [p.clone() for p in module.parameters()]
    state = torch.random.get_rng_state()
    for given in (module, lambda n_inputs: Net(n_inputs, outputs)):
        model = MCD(
            discriminator=given,
            discriminator_params={"steps": 300, "learning_rate": 0.02},
            random_state=0,
        )
        model.fit(X, y)
        median = model.predict_quantiles([[-1.0], [1.0]], 0.5)[:, 0]
        assert median[0] < -0.3
        assert median[1] > 0.3
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert torch.equal(state, torch.random.get_rng_state())


def test_torch_class():
    from torch import nn

    class Linear(nn.Module):
        def __init__(self, n_inputs):
            super().__init__()
            self.layer = nn.Linear(n_inputs, 1)

        def forward(self, pairs):
            return self.layer(pairs)[:, 0]

    model = MCD(discriminator=Linear, discriminator_params={"steps": 20}, random_state=0)
    assert np.isfinite(model.fit(*normal_data(50)).predict([[0.0]])).all()


def test_torch_module_with_wrong_outputs():
    with pytest.raises(ValueError, match=r"one logit .* or to two .* it returned shape"):
        MCD(discriminator=Net(2, 3), random_state=0).fit(*normal_data(50))


def test_torch_factory_that_returns_no_module():
    with pytest.raises(TypeError, match="must return a torch module"):
        MCD(discriminator=lambda n: 3, random_state=0).fit(*normal_data(50))


# Bad input.


class Failing(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        raise ZeroDivisionError("no luck")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"discriminator": "no"}, ValueError, "'no' is not known; choose from .*'quadratic'"),
        ({"discriminator": LogisticRegression}, TypeError, r"is a class; give an instance"),
        ({"discriminator": 3}, TypeError, "must be a name from"),
        ({"discriminator": Failing()}, RuntimeError, "Failing could not be fitted: no luck"),
        (
            {"discriminator": LogisticRegression(C=-1)},
            ValueError,
            "LogisticRegression could not be fitted: The 'C' parameter",
        ),
        (
            {"discriminator": "quadratic", "discriminator_params": {"D": 1}},
            TypeError,
            "discriminator_params do not fit 'quadratic'",
        ),
        (
            {"discriminator": LogisticRegression(), "discriminator_params": {"C": 1}},
            ValueError,
            "set the parameters of LogisticRegression on the object itself",
        ),
    ],
)
def test_bad_discriminators(options, error, message):
    with pytest.raises(error, match=message):
        MCD(**options, random_state=0).fit(*normal_data(50))


def test_weights_through_pipelines_and_searches():
    X, y = normal_data(60)
    weight = np.random.default_rng(0).uniform(0.1, 3, size=60)
    logistic = LogisticRegression()
    searched = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=3)
    nested = make_pipeline(PolynomialFeatures(1), make_pipeline(LogisticRegression()))
    plain, search, pipeline = (
        MCD(discriminator=d, random_state=0).fit(X, y, weight).predict(X[:5])
        for d in (logistic, searched, nested)
    )
    np.testing.assert_allclose(search, plain)
    np.testing.assert_allclose(pipeline, plain, rtol=0.02)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("hist-gradient-boosting", {"early_stopping": True}),
        ("xgboost", {"early_stopping_rounds": 5}),
    ],
)
def test_early_stopping_of_their_own_is_refused_by_name(name, parameter):
    with pytest.raises(TypeError, match="chosen on held-out observations already"):
        get_discriminator(name, **parameter)


def test_early_stopping_of_a_given_xgboost_is_switched_off():
    learner = pytest.importorskip("xgboost").XGBClassifier(n_estimators=3, early_stopping_rounds=2)
    with pytest.warns(UserWarning, match="switched off"):
        model = MCD(discriminator=learner, random_state=0).fit(*normal_data(60))
    assert model.discriminator_.learner_.early_stopping_rounds is None


def test_weights_for_a_learner_that_takes_none():
    X, y = normal_data(50)
    with pytest.raises(ValueError, match="KNeighborsClassifier cannot be fitted with weights"):
        MCD(discriminator=KNeighborsClassifier()).fit(X, y, sample_weight=np.arange(1, 51))


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
def test_missing_library(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    message = rf"{name} is not installed; get it with: pip install 'mcdensity\[boosting\]'"
    with pytest.raises(ImportError, match=message):
        MCD(discriminator=name).fit(*normal_data(50))


def test_get_discriminator_can_be_given():
    given = get_discriminator("quadratic", C=0.1)
    model = MCD(discriminator=given, random_state=0).fit(*normal_data(50))
    assert model.discriminator_ is not given
    assert model.discriminator_.C == 0.1
    assert isinstance(make_discriminator(LogisticRegression()), LearnerDiscriminator)
