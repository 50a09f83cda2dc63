"""Neural discriminators: architectures, training, prediction on a grid."""

import copy
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from mcdensity import MCD, build_contrast, stack_targets
from mcdensity.baselines import MarginalBaseline
from mcdensity.data import TrainingData
from mcdensity.discriminators import get_discriminator
from mcdensity.networks import glu, mlp, resnet, snn
from mcdensity.networks.layers import (
    StackedAlphaDropout,
    StackedBatchNorm,
    StackedDropout,
    StackedLinear,
    through,
)
from mcdensity.networks.pairs import TrainingPairs
from mcdensity.networks.random import seeded
from mcdensity.networks.training import train

ARCHITECTURES = {
    "mlp": mlp.mlp,
    "mlp-plain": mlp.mlp_plain,
    "resnet": resnet.resnet,
    "glu": glu.glu,
    "snn": snn.snn,
}
pytestmark = pytest.mark.filterwarnings("ignore:ratio=:UserWarning")


def data(n=100, p=2, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + noise * rng.normal(size=n)


def training_pairs(contrast, seed, members=5):
    held_out = TrainingData.of_contrast(contrast, seed).held_out(members)
    rng = np.random.default_rng(seed)
    return TrainingPairs(contrast, members, held_out, True, rng, torch.device("cpu"))


@pytest.fixture(params=ARCHITECTURES)
def name(request):
    return request.param


def trained(name, members=3, n_inputs=4):
    """A network whose batch norms have seen data."""
    torch.manual_seed(0)
    network = ARCHITECTURES[name](n_inputs, members=members, width=8)
    for _ in range(5):
        network(torch.randn(members, 50, n_inputs) * 2 + 1)
    return network.eval()


def test_members_are_independent(name):
    network = trained(name)
    pairs = torch.randn(3, 20, 4)
    changed = pairs.clone()
    changed[1] += 1
    before, after = network(pairs), network(changed)
    assert before.shape == (3, 20)
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


def test_folding_changes_nothing(name):
    network = trained(name)
    pairs = torch.randn(3, 20, 4)
    folded = network.folded()
    torch.testing.assert_close(folded(pairs), network(pairs), rtol=1e-4, atol=1e-5)
    if name == "mlp":
        assert not any(isinstance(m, StackedBatchNorm | StackedDropout) for m in folded.modules())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_outer_sum_is_the_forward_pass(name, shared, block):
    network = trained(name).folded()
    X = torch.randn(6, 3)
    Y = torch.randn(1 if shared else 6, 11)
    pairs = torch.cat([X[:, None].expand(6, 11, 3), Y.expand(6, 11)[..., None]], dim=-1)
    expected = network(pairs.reshape(1, 66, 4).expand(3, -1, -1)).mean(0).reshape(6, 11)
    out = network.outer(network.of_x(X), Y, block, lambda logits: logits.mean(0))
    torch.testing.assert_close(out, expected.double(), rtol=1e-4, atol=1e-5)


def test_stacked_layers_are_torch_layers():
    linear, norm = StackedLinear(1, 4, 5), StackedBatchNorm(1, 5)
    reference = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    with torch.no_grad():
        reference[0].weight.copy_(linear.weight[0].T)
        reference[0].bias.copy_(linear.bias[0, 0])
    x = torch.randn(30, 4)
    torch.testing.assert_close(norm(linear(x[None]))[0], reference(x), rtol=1e-4, atol=1e-5)
    norm.eval()
    reference.eval()
    # torch keeps the unbiased variance, ours the biased one.
    torch.testing.assert_close(norm(linear(x[None]))[0], reference(x), rtol=0.02, atol=0.02)


def test_dropout_keeps_the_mean():
    dropout = StackedDropout(0.25)
    x = torch.ones(2, 400, 50)
    out = dropout(x)
    assert torch.equal(out[0], out[1])
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(dropout.eval()(x), x)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_units_are_their_layers(share):
    """What is computed together in training is what the layers say: values, slopes, buffers."""
    layers = [
        StackedLinear(2, 4, 5), StackedBatchNorm(2, 5), nn.SiLU(), StackedDropout(share),
        StackedLinear(2, 5, 3), StackedBatchNorm(2, 3), nn.SiLU(), StackedDropout(share),
        StackedLinear(2, 3, 1),
    ]  # fmt: skip
    torch.manual_seed(0)
    x, factor = torch.randn(2, 30, 4), torch.randn(2, 30, 1)
    found = []
    for together in (True, False):
        module = copy.deepcopy(nn.Sequential(*layers)).double().train()
        inputs = x.double().requires_grad_()
        with seeded(1):
            out = through(list(module), inputs) if together else module(inputs)
        (out * factor).sum().backward()
        slopes = [parameter.grad for parameter in module.parameters()]
        # Batch norm takes the constant of the layer before it off: that has no slope.
        slopes = [torch.zeros(()) if slope is None else slope for slope in slopes]
        found.append([out, inputs.grad, *slopes, *module.buffers()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.double().expand(other.shape), other.double())


def test_steps_are_those_of_adamw_in_one_cycle():
    """`train` is torch's AdamW with clipped slopes and OneCycleLR."""
    torch.manual_seed(0)
    X, y = torch.randn(40, 3, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    reference = copy.deepcopy(ours)
    train(
        ours, lambda: 30 * (ours(X) - y).square().mean(), None,
        steps=50, learning_rate=0.03, weight_decay=0.1, clip=1.0,
    )  # fmt: skip
    parameters = list(reference.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.03, weight_decay=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.03, total_steps=50)
    for _ in range(50):
        optimizer.zero_grad()
        (30 * (reference(X) - y).square().mean()).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        cycle.step()
    for one, other in zip(ours.parameters(), parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
        assert one.grad is None


def test_each_member_keeps_its_best_weights():
    """One member gets better all the time, the other worse."""
    module = StackedLinear(2, 1, 1)
    with torch.no_grad():
        module.weight.fill_(0)
        module.bias.fill_(0)

    def score():
        return torch.stack([-((module.bias[0, 0, 0] - 1) ** 2), -(module.bias[1, 0, 0] ** 2)])

    taken = train(
        module, lambda: ((module.bias - 1) ** 2).sum(), score,
        steps=200, learning_rate=0.05, weight_decay=0.0,
    )  # fmt: skip
    assert module.bias[0, 0, 0] > 0.9
    assert module.bias[1, 0, 0] < 0.2
    assert taken == 200


def test_training_stops_early():
    module = StackedLinear(1, 1, 1)
    taken = train(
        module, lambda: (module.bias**2).sum(), lambda: torch.zeros(1),
        steps=600, learning_rate=0.01, weight_decay=0.0,
    )  # fmt: skip
    assert 180 < taken < 600


def test_learns_where_there_is_something(name):
    X, y = data(200)
    X_new, y_new = data(500, seed=1)
    model = MCD(discriminator=name, random_state=0).fit(X, y)
    gain = model.score(X_new, y_new) - MarginalBaseline("adaptive").fit(X, y).score(X_new, y_new)
    # The most there is to gain: the mutual information, 0.5 log(1 + 1 / 0.5²) = 0.80.
    assert 0.4 < gain < 0.9
    assert model.discriminator_.trust_ > 0.5
    assert model.discriminator_.gain_ > 0.3


def test_says_so_where_there_is_nothing(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.normal(size=200)
    model = MCD(discriminator=name, random_state=0).fit(X, y)
    X_new, y_new = rng.normal(size=(500, 5)), rng.normal(size=500)
    loss = MarginalBaseline("adaptive").fit(X, y).score(X_new, y_new) - model.score(X_new, y_new)
    assert loss < 0.05


@pytest.mark.parametrize(
    "case", ["tiny y", "huge y", "heavy tails", "many columns", "identical x", "integers"]
)
def test_training_never_diverges(case):
    rng = np.random.default_rng(0)
    X, y = data(100)
    X_new, y_new = data(300, seed=1)
    if case == "tiny y":
        y, y_new = 1e-6 * y, 1e-6 * y_new
    elif case == "huge y":
        y, y_new = 1e6 * y, 1e6 * y_new
    elif case == "heavy tails":
        y, y_new = rng.standard_t(2, size=100), rng.standard_t(2, size=300)
    elif case == "many columns":
        X, X_new = rng.normal(size=(100, 300)), rng.normal(size=(300, 300))
    elif case == "identical x":
        X, X_new = np.ones_like(X), np.ones_like(X_new)
    else:
        y, y_new = np.round(y), np.round(y_new)
    model = MCD("mlp", random_state=0).fit(X, y)
    density = model.logpdf(X_new, y_new)
    assert np.isfinite(density).all()
    assert density.mean() > MarginalBaseline("adaptive").fit(X, y).score(X_new, y_new) - 0.05


def test_torch_is_left_as_it_was():
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    dtype = torch.get_default_dtype()
    X, y = data(50)
    first = MCD("mlp", random_state=3).fit(X, y).predict(X)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads
    assert torch.get_default_dtype() == dtype
    torch.manual_seed(99)
    np.testing.assert_array_equal(MCD("mlp", random_state=3).fit(X, y).predict(X), first)


def test_held_out_observations_are_in_no_batch():
    """Groups of three rows: whatever row of a group is held out, none is trained on."""
    X, _ = data(30)
    X, y, groups = stack_targets(X, np.random.default_rng(0).normal(size=(30, 3)))
    X = np.column_stack([groups, groups]).astype(float)
    contrast = build_contrast(X, y, ratio=0.1, groups=groups, random_state=0)
    training = training_pairs(contrast, 0)
    held = [set(v[:, 0].unique().tolist()) for v in training.validation_x]
    assert len(set.union(*held)) == 30
    of_y = dict(zip(y.astype(np.float32).tolist(), groups.tolist(), strict=True))
    for pairs, _ in islice(training.batches(16, 48), 20):
        for member in range(5):
            x = set(pairs[member, :, 0].tolist())
            y_groups = {of_y[v] for v in pairs[member, :, 2].tolist()}
            assert not held[member] & (x | y_groups)
        broken_x = pairs[:, 16:, 0].numpy()
        broken_y = np.vectorize(of_y.get)(pairs[:, 16:, 2].numpy())
        assert (broken_x != broken_y).all()
        joint_y = np.vectorize(of_y.get)(pairs[:, :16, 2].numpy())
        assert (pairs[:, :16, 0].numpy() == joint_y).all()


@pytest.mark.parametrize(
    "change",
    [
        {"width": 8},
        {"depth": 3},
        {"dropout": 0.5},
        {"members": 2},
        {"steps": 10},
        {"batch_size": 32},
        {"learning_rate": 1e-4},
        {"weight_decay": 10.0},
        {"class_weight": None},
        {"validation_share": 0.4},
        {"fresh_pairs": False},
    ],
    ids=str,
)
def test_every_parameter_changes_something(change):
    X, y = data(60)
    usual = MCD("mlp", discriminator_params={"steps": 30}, random_state=0).fit(X, y)
    other = MCD("mlp", discriminator_params={"steps": 30} | change, random_state=0).fit(X, y)
    assert not np.allclose(usual.predict(X), other.predict(X), rtol=1e-6)


def test_class_weight_changes_the_ratio():
    """With the other's ratio the density would integrate to 19, or to 1/19."""
    X, y = data(400)
    grid = np.linspace(-6, 6, 1201)
    for weight in ("balanced", None):
        params = {"class_weight": weight}
        model = MCD("mlp", discriminator_params=params, normalize=False, random_state=0).fit(X, y)
        expected = 0.5 if weight == "balanced" else model.ratio_
        assert model.discriminator_.ratio_ == expected
        integral = np.trapezoid(model.pdf_from_X(X[:50], grid), grid, axis=1)
        assert 0.7 < np.median(integral) < 1.4


def test_batches_larger_than_the_data():
    X, y = data(30)
    model = MCD("mlp", discriminator_params={"batch_size": 5000, "steps": 5}, random_state=0).fit(
        X, y
    )
    assert np.isfinite(model.predict(X)).all()


def test_very_few_rows():
    """Nothing can be held out of four rows: the result is the marginal, unless asked otherwise."""
    X, y = data(4)
    model = MCD("mlp", random_state=0).fit(X, y)
    assert model.discriminator_.trust_ == 0
    marginal = MarginalBaseline("adaptive").fit(X, y)
    np.testing.assert_allclose(model.predict(X), marginal.predict(X), rtol=1e-4, atol=1e-4)
    trusted = MCD("mlp", discriminator_params={"validation_share": 0.0}, random_state=0).fit(X, y)
    assert trusted.discriminator_.trust_ == 1


@pytest.mark.parametrize("construction", ["id", "iid"])
@pytest.mark.parametrize("n", [6, 12])
def test_few_rows_of_noise_cost_little(n, construction):
    losses = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
        X_new, y_new = rng.normal(size=(200, 2)), rng.normal(size=200)
        model = MCD("mlp", construction=construction, ratio=0.3, random_state=seed).fit(X, y)
        assert model.discriminator_.n_steps_ > 0
        marginal = MarginalBaseline("adaptive").fit(X, y)
        losses.append(marginal.score(X_new, y_new) - model.score(X_new, y_new))
    assert np.mean(losses) < 0.2


def test_any_default_dtype():
    X, y = data(30)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            model = MCD("mlp", discriminator_params={"steps": 5}, random_state=0).fit(X, y)
            assert np.isfinite(model.predict(X)).all()
    finally:
        torch.set_default_dtype(torch.float32)
    assert next(model.discriminator_.module_.parameters()).dtype == torch.float32


def test_independent_pairs_hold_out_what_they_do_not_train_on():
    for seed in range(20):
        X = np.arange(40.0)[:, None]
        y = 100 + np.arange(40.0)
        contrast = build_contrast(X, y, construction="iid", ratio=0.1, random_state=seed)
        training = training_pairs(contrast, seed)
        pairs, _ = next(training.batches(50, 100))
        for member in range(5):
            held = set(training.validation_x[member, :, 0].tolist())
            assert not held & set(pairs[member, :, 0].tolist())
            assert not held & set((pairs[member, :, 1] - 100).tolist())


def test_far_features_and_empty_grids():
    X, y = data(30)
    model = MCD("mlp", discriminator_params={"steps": 5}, normalize=False, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_quantiles([[1e40, -1e40]])).all()
    with pytest.raises(ValueError, match="y_grid is empty"):
        model.pdf_from_X(X, [])


def test_weights_and_groups_and_extra_data_together():
    X, _ = data(40)
    X, y, groups = stack_targets(X, np.random.default_rng(0).normal(size=(40, 3)))
    model = MCD("mlp", discriminator_params={"steps": 20}, random_state=0)
    model.fit(
        X,
        y,
        sample_weight=np.random.default_rng(1).uniform(0.1, 2, size=len(y)),
        X_unlabeled=X[:10] + 1,
        y_marginal=y[:7] + 0.1,
        groups=groups,
    )
    assert np.isfinite(model.predict_quantiles(X)).all()


class Scaled(nn.Module):
    """A module whose output can be made NaN."""

    def __init__(self, n_inputs, factor=1.0):
        super().__init__()
        self.layer, self.factor = nn.Linear(n_inputs, 1), factor

    def forward(self, pairs):
        return self.layer(pairs) * self.factor


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"device": "cuda"}, ValueError, "torch finds no GPU here"),
        ({"device": "abacus"}, ValueError, "device must be"),
        ({"validation_share": 0.99}, ValueError, "leaves fewer than 2 of 30 observations to train"),
        ({"validation_share": 1.0}, ValueError, r"validation_share must lie in \[0, 1\)"),
        ({"batch_size": 1}, ValueError, "batch_size must be an integer of at least 2"),
        ({"steps": 0}, ValueError, "steps must be an integer of at least 1"),
        ({"members": -1}, ValueError, "members must be an integer of at least 1"),
        ({"width": 0}, ValueError, "width must be an integer of at least 1"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\)"),
        ({"class_weight": "x"}, ValueError, "class_weight must be"),
        ({"hidden": 3}, TypeError, "discriminator_params do not fit 'mlp': .*'hidden'"),
    ],
)
def test_bad_parameters(parameters, error, message):
    if parameters.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(error, match=message):
        MCD("mlp", discriminator_params=parameters, random_state=0).fit(*data(30))


def test_a_module_that_returns_nan():
    with pytest.raises(ValueError, match="loss of the neural network is not finite"):
        MCD(discriminator=Scaled(3, float("nan")), random_state=0).fit(*data(30))
    good = MCD(discriminator=Scaled(3), discriminator_params={"steps": 5}, random_state=0)
    good.fit(*data(30)).discriminator_.module_.factor = float("nan")
    with pytest.raises(ValueError, match="returned NaN"):
        good.predict([[0.0, 0.0]])


def test_module_with_parameters_of_its_own():
    model = MCD(
        discriminator=Scaled,
        discriminator_params={"module_params": {"factor": 2.0}, "steps": 5, "weight_decay": 0.1},
        random_state=0,
    ).fit(*data(30))
    assert model.discriminator_.module_.factor == 2.0


def test_named_parameters_are_listed():
    assert get_discriminator("glu", width=7, steps=3).module_params == {"width": 7}


def test_alpha_dropout_keeps_mean_and_variance():
    layer = StackedAlphaDropout(0.2).train()
    x = torch.randn(1, 20_000, 10, generator=torch.Generator().manual_seed(0))
    with seeded(1):  # not the stream that x was drawn from
        out = layer(x)
    assert abs(float(out.mean())) < 0.01
    assert abs(float(out.var()) - 1) < 0.02
    assert torch.equal(layer.eval()(x), x)
