"""Distributions against torch's and scipy's: densities, moments, entropies, divergences, transforms, draws, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy  # its statistics are loaded when they are used: every worker collects this file
import torch

import tstatic as paddle
from tests.numbers.test_complex import run
from tstatic import errors, static

mine, theirs = paddle.distribution, torch.distributions
A, B = np.array([[0.5, 1.5, 2.5]]), np.array([[0.7], [2.0]])
P, Q = np.array([0.2, 0.5, 0.9]), np.array([0.3, 0.4, 0.6])
W = np.array([[0.2, 1.3, 0.5], [2.0, 1.0, 4.0]])
HALVES = np.array([[0.1, 0.5, 0.8], [0.3, 0.9, 0.25]])
SHARES = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, tuple[str, ...]]] = {
    "Normal": (mine.Normal, theirs.Normal, (A, B), ("mean", "variance", "stddev", "entropy")),
    "Uniform": (mine.Uniform, theirs.Uniform, (-A, B + 1.0), ("mean", "variance", "entropy")),
    "Laplace": (mine.Laplace, theirs.Laplace, (A, B), ("mean", "variance", "stddev", "entropy", "cdf", "icdf")),
    "Cauchy": (mine.Cauchy, theirs.Cauchy, (A, B), ("entropy", "cdf")),
    "Gumbel": (mine.Gumbel, theirs.Gumbel, (A, B), ("mean", "variance", "stddev", "entropy", "cdf")),
    "LogNormal": (mine.LogNormal, theirs.LogNormal, (A, B), ("mean", "variance", "entropy")),
    "Beta": (mine.Beta, theirs.Beta, (A, B), ("mean", "variance", "entropy")),
    "Dirichlet": (mine.Dirichlet, theirs.Dirichlet, (W,), ("mean", "variance", "entropy")),
    "Bernoulli": (mine.Bernoulli, theirs.Bernoulli, (P,), ("mean", "variance", "entropy")),
    "Geometric": (mine.Geometric, theirs.Geometric, (P,), ("mean", "variance", "stddev", "entropy")),
    "Multinomial": (lambda w: mine.Multinomial(5, w), lambda w: theirs.Multinomial(5, w), (W,), ("mean", "variance", "entropy")),
}  # fmt: skip
OUTCOMES = {
    "Dirichlet": SHARES, "Bernoulli": np.array([0.0, 1.0, 1.0]), "Geometric": np.array([0.0, 3.0, 1.0]),
    "Multinomial": np.array([[1.0, 4.0, 0.0], [2.0, 0.0, 3.0]]),
}  # fmt: skip


def both(name: str, *others: Any) -> tuple[Any, Any, np.ndarray[Any, Any], tuple[str, ...]]:
    make, oracle, given, answers = PAIRS[name]
    given = others or given
    return (
        make(*(paddle.assign(v) for v in given)), oracle(*(torch.from_numpy(v) for v in given)),
        OUTCOMES.get(name, HALVES), answers,
    )  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_densities_moments_and_entropies_are_torchs(name: str) -> None:
    ours, oracle, value, answers = both(name)
    x, t = paddle.assign(value), torch.from_numpy(value)
    fetched, wanted = [ours.log_prob(x), ours.prob(x)], [oracle.log_prob(t), oracle.log_prob(t).exp()]
    for answer in answers:
        at = (x,) if answer in ("cdf", "icdf") else ()
        got = getattr(ours, answer)
        fetched.append(got(*at) if callable(got) else got)
        want = getattr(oracle, answer)
        wanted.append((want(t) if at else want()) if callable(want) else want)
    assert (ours.batch_shape, ours.event_shape) == (tuple(oracle.batch_shape), tuple(oracle.event_shape))
    for got, want in zip(run(fetched), wanted, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in PAIRS if n not in ("Multinomial", "Gumbel")])
def test_divergences_are_torchs(name: str) -> None:
    others = (
        (Q,) if name in ("Bernoulli", "Geometric") else (W[::-1].copy(),) if name == "Dirichlet" else (A - 0.3, B + 0.4)
    )
    others = (-A - 0.5, B + 2.0) if name == "Uniform" else others
    (p, left, _, _), (q, right, _, _) = both(name), both(name, *others)
    (found, method) = run([mine.kl_divergence(p, q), p.kl_divergence(q)])
    np.testing.assert_allclose(found, theirs.kl_divergence(left, right).numpy(), rtol=1e-7, atol=1e-12)
    assert np.array_equal(found, method)


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_densities_are_torchs(name: str) -> None:
    make, oracle, given, _ = PAIRS[name]
    value = OUTCOMES.get(name, HALVES)
    inputs = [static.data(f"p{i}", v.shape, "float64") for i, v in enumerate(given)]
    for x in inputs:
        x.stop_gradient = False
    grads = paddle.grad(paddle.sum(make(*inputs).log_prob(paddle.assign(value)) * 0.5), inputs)
    tensors = [torch.from_numpy(v.copy()).requires_grad_() for v in given]
    wanted = torch.autograd.grad(
        (oracle(*tensors).log_prob(torch.from_numpy(value)) * 0.5).sum(), tensors, allow_unused=True
    )
    found = run([g for g in grads if g is not None], **{f"p{i}": v for i, v in enumerate(given)})
    for got, want in zip(found, [w for w in wanted if w is not None], strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-7, atol=1e-9)


def test_categories_follow_paddle() -> None:
    choice, other = mine.Categorical(paddle.assign(W)), mine.Categorical(paddle.assign(W * 2))
    at = np.array([[0, 2], [1, 1]])
    found = run([
        choice.probs(paddle.assign(at)), choice.log_prob(paddle.assign(at)), choice.entropy(), choice.kl_divergence(other),
        choice.probs(paddle.assign(np.array([2, 0]))),
    ])  # fmt: skip
    table = W / W.sum(-1, keepdims=True)
    oracle = theirs.Categorical(logits=torch.from_numpy(W))
    np.testing.assert_allclose(found[0], np.take_along_axis(table, at, 1))
    np.testing.assert_allclose(found[1], np.log(found[0]))
    np.testing.assert_allclose(found[2], oracle.entropy().numpy())
    apart = theirs.kl_divergence(oracle, theirs.Categorical(logits=torch.from_numpy(W * 2)))
    np.testing.assert_allclose(found[3][:, 0], apart.numpy(), rtol=1e-9)
    np.testing.assert_allclose(found[4], table[:, [2, 0]])


SCIPY: dict[str, Callable[[], tuple[Any, Any]]] = {
    "Normal": lambda: (mine.Normal(1.0, 2.0), scipy.stats.norm(1, 2)),
    "Uniform": lambda: (mine.Uniform(1.0, 3.0), scipy.stats.uniform(1, 2)),
    "Laplace": lambda: (mine.Laplace(1.0, 2.0), scipy.stats.laplace(1, 2)),
    "Cauchy": lambda: (mine.Cauchy(1.0, 2.0), scipy.stats.cauchy(1, 2)),
    "Gumbel": lambda: (mine.Gumbel(1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
    "LogNormal": lambda: (mine.LogNormal(0.5, 0.7), scipy.stats.lognorm(0.7, 0, np.exp(0.5))),
    "Beta": lambda: (mine.Beta(0.6, 2.5), scipy.stats.beta(0.6, 2.5)),
}
DRAWS = 4000


@pytest.mark.parametrize("name", SCIPY)
def test_draws_of_continuous_distributions_have_their_distribution(name: str) -> None:
    paddle.seed(7)
    ours, oracle = SCIPY[name]()
    drawn = ours.sample([DRAWS // 2, 2])
    assert drawn.shape == (DRAWS // 2, 2)
    assert drawn.stop_gradient
    (found,) = run([drawn])
    assert scipy.stats.kstest(found.ravel().astype(np.float64), oracle.cdf).pvalue > 1e-3


def test_draws_of_discrete_distributions_have_their_frequencies() -> None:
    paddle.seed(7)
    many = mine.Multinomial(6, paddle.assign(W))
    draws = [
        mine.Bernoulli(P).sample([DRAWS]), mine.Geometric(P).sample([DRAWS]), mine.Categorical(paddle.assign(W)).sample([DRAWS]),
        many.sample([DRAWS]), mine.Dirichlet(paddle.assign(W)).sample([DRAWS]), mine.Bernoulli(P).rsample([DRAWS], 0.1),
    ]  # fmt: skip
    coin, trials, chosen, counts, shares, soft = run(draws)
    assert np.abs(coin.mean(0) - P).max() < 0.03
    assert np.abs(trials.mean(0) - (1 / P - 1)).max() < 0.3
    odds = np.exp(W) / np.exp(W).sum(-1, keepdims=True)
    assert chosen.dtype == np.int64
    assert np.abs(np.stack([(chosen == k).mean(0) for k in range(3)], -1) - odds).max() < 0.03
    assert counts.shape == (DRAWS, 2, 3)
    assert np.all(counts.sum(-1) == 6)
    assert np.abs(counts.mean(0) - 6 * W / W.sum(-1, keepdims=True)).max() < 0.1
    assert np.abs(shares.mean(0) - W / W.sum(-1, keepdims=True)).max() < 0.03
    np.testing.assert_allclose(shares.sum(-1), 1)
    assert np.abs((soft > 0).mean(0) - P).max() < 0.03


def test_samples_carry_gradients_and_shapes_that_are_fed() -> None:
    loc, scale = static.data("loc", [None, 2]), static.data("scale", [None, 2])
    for v in (loc, scale):
        v.stop_gradient = False
    normal = mine.Normal(loc, scale)
    drawn = normal.rsample([3])
    grads = paddle.grad(paddle.sum(drawn), [loc, scale])
    values = {"loc": np.zeros((4, 2), np.float32), "scale": np.ones((4, 2), np.float32)}
    found, dloc, dscale = run([drawn, *grads], **values)
    assert found.shape == (3, 4, 2)
    np.testing.assert_array_equal(dloc, 3)
    np.testing.assert_allclose(dscale, found.sum(0), rtol=1e-5, atol=1e-6)
    for made in (
        mine.Laplace(loc, scale),
        mine.Cauchy(loc, scale),
        mine.Gumbel(loc, scale),
        mine.LogNormal(loc, scale),
    ):
        assert not made.rsample().stop_gradient
        assert made.sample().stop_gradient


# -------------------------------------------------------------------------------------------------------------- transforms
TRANSFORMS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "affine": lambda: (mine.AffineTransform(1.0, -2.0), theirs.AffineTransform(1.0, -2.0), HALVES),
    "exp": lambda: (mine.ExpTransform(), theirs.ExpTransform(), HALVES),
    "power": lambda: (mine.PowerTransform(2.5), theirs.PowerTransform(torch.tensor(2.5)), HALVES),
    "sigmoid": lambda: (mine.SigmoidTransform(), theirs.SigmoidTransform(), HALVES * 4 - 2),
    "tanh": lambda: (mine.TanhTransform(), theirs.TanhTransform(), HALVES * 4 - 2),
    "stick breaking": lambda: (mine.StickBreakingTransform(), theirs.StickBreakingTransform(), HALVES * 4 - 2),
    "reshape": lambda: (mine.ReshapeTransform((3,), (3, 1)), theirs.ReshapeTransform((3,), (3, 1)), HALVES),
    "independent": lambda: (
        mine.IndependentTransform(mine.ExpTransform(), 1), theirs.IndependentTransform(theirs.ExpTransform(), 1), HALVES
    ),
    "chain": lambda: (
        mine.ChainTransform([mine.AffineTransform(0.0, 2.0), mine.StickBreakingTransform()]),
        theirs.ComposeTransform([theirs.AffineTransform(0.0, 2.0), theirs.StickBreakingTransform()]), HALVES,
    ),
    "stack": lambda: (
        mine.StackTransform([mine.ExpTransform(), mine.TanhTransform()], 0),
        theirs.StackTransform([theirs.ExpTransform(), theirs.TanhTransform()], 0), HALVES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_their_inverses_and_volumes_are_torchs(name: str) -> None:
    paddle.set_default_dtype("float64")
    ours, oracle, value = TRANSFORMS[name]()
    x, t = paddle.assign(value), torch.from_numpy(value)
    y = ours.forward(x)
    fetched = [y, ours.inverse(y), ours.forward_log_det_jacobian(x), ours.inverse_log_det_jacobian(y)]
    found = run(fetched)
    paddle.set_default_dtype("float32")
    volume = oracle.log_abs_det_jacobian(t, oracle(t)).numpy()
    for got, want in zip(found, (oracle(t).numpy(), value, volume, -volume), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    assert ours.forward_shape(value.shape) == y.shape
    assert ours.inverse_shape(y.shape) == value.shape


def test_transformed_and_independent_distributions_are_torchs() -> None:
    loc, scale = paddle.assign(A + np.zeros((2, 1))), paddle.assign(B + np.zeros((1, 3)))
    tensors = torch.from_numpy(A + np.zeros((2, 1))), torch.from_numpy(B + np.zeros((1, 3)))
    ours = mine.TransformedDistribution(mine.Normal(loc, scale), [mine.TanhTransform(), mine.AffineTransform(0.0, 2.0)])
    oracle = theirs.TransformedDistribution(
        theirs.Normal(*tensors), [theirs.TanhTransform(), theirs.AffineTransform(0.0, 2.0)]
    )
    shares = mine.StickBreakingTransform()(mine.Normal(loc, scale))
    broken = theirs.TransformedDistribution(theirs.Normal(*tensors), [theirs.StickBreakingTransform()])
    rows = mine.Independent(mine.Normal(loc, scale), 1)
    line = theirs.Independent(theirs.Normal(*tensors), 1)
    four = np.concatenate([SHARES * 0.8, np.full((2, 1), 0.2)], 1)
    x, s = paddle.assign(HALVES), paddle.assign(four)
    found = run([ours.log_prob(x), shares.log_prob(s), rows.log_prob(x), rows.entropy(), shares.sample([5])])
    t = torch.from_numpy(HALVES)
    wanted = [oracle.log_prob(t), broken.log_prob(torch.from_numpy(four)), line.log_prob(t), line.entropy()]
    for got, want in zip(found, wanted, strict=False):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-7)
    assert (shares.batch_shape, shares.event_shape, found[4].shape) == ((2,), (4,), (5, 2, 4))
    np.testing.assert_allclose(found[4].sum(-1), 1, rtol=1e-6)


def test_an_exponential_family_needs_its_normalizer_only() -> None:
    class Coin(mine.Bernoulli):
        pass

    a, b = Coin(P), mine.Bernoulli(P)
    other = Coin(Q)
    entropy = mine.ExponentialFamily.entropy
    beta = mine.Beta(paddle.assign(A), paddle.assign(B))
    found = run([entropy(a), b.entropy(), entropy(beta), beta.entropy(), a.kl_divergence(other)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    apart = theirs.kl_divergence(theirs.Bernoulli(torch.tensor(P)), theirs.Bernoulli(torch.tensor(Q)))
    np.testing.assert_allclose(found[4], apart.numpy(), rtol=1e-5)
    # Beta's carrier x^-1 (1 - x)^-1 is not 1, so the generic entropy lacks the mean of its logarithm.
    assert found[2].shape == found[3].shape


def test_absolute_values_have_two_inverses_and_what_lacks_a_density_says_so() -> None:
    x = paddle.assign(HALVES)
    low, high = mine.AbsTransform().inverse(x)
    found = run([low, high])
    np.testing.assert_array_equal(found[0], -HALVES)
    np.testing.assert_array_equal(found[1], HALVES)
    for call in (
        lambda: mine.SoftmaxTransform().forward_log_det_jacobian(x), lambda: mine.Cauchy(0.0, 1.0).mean,
        lambda: mine.Beta(1.0, 1.0).rsample(), lambda: mine.kl_divergence(mine.Normal(0.0, 1.0), mine.Beta(1.0, 1.0)),
        lambda: mine.Categorical([1.0]).mean,
    ):  # fmt: skip
        with pytest.raises(errors.UnsupportedError):
            call()


def test_wrong_arguments_are_refused() -> None:
    for call, error in (
        (lambda: mine.Normal("a", 1.0), errors.ProgramTypeError), (lambda: mine.Normal([0.0, 1.0], [1.0] * 3), errors.ShapeError),
        (lambda: mine.Dirichlet(1.0), errors.ShapeError), (lambda: mine.Multinomial(0, [1.0]), errors.TstaticError),
        (lambda: mine.TransformedDistribution(1.0, []), errors.ProgramTypeError),
        (lambda: mine.Independent(mine.Normal(0.0, 1.0), 1), errors.TstaticError),
        (lambda: mine.ReshapeTransform((2,), (3,)), errors.ShapeError), (lambda: mine.ExpTransform()(1.0), errors.ProgramTypeError),
        (lambda: mine.register_kl(1, mine.Normal), errors.ProgramTypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
