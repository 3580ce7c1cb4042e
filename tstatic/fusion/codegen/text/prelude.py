"""Device functions that generated kernels carry with them: their text is copied into each module that calls them.

``to_bf16`` and ``from_bf16`` differ between the interpreter, which truncates, and compiled code, which rounds to nearest even.
"""

# Nothing here is called from Python, and only kernels import this file; Triton needs its functions untyped.
# mypy: ignore-errors
import os

import triton
import triton.language as tl

# Comments on a function are written above it, as its own text is copied into kernels.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")


# ``tl.maximum`` returns the number beside a NaN.
@triton.jit
def _maximum(a, b):
    """The larger one; NaN wins, as in numpy and torch."""
    return tl.where((a != a) | (b != b), a + b, tl.where(a > b, a, b))


@triton.jit
def _minimum(a, b):
    """The smaller one; NaN wins."""
    return tl.where((a != a) | (b != b), a + b, tl.where(a < b, a, b))


# ``tl.max`` loses NaN, which is looked for by itself. The product with NaN has the type of the values.
@triton.jit
def _row_max(a):
    """The largest value of each row, one column; NaN wins."""
    has_nan = tl.max((a != a).to(tl.int32), 1) > 0
    largest = tl.max(a, 1)
    return tl.where(has_nan, largest * float("nan"), largest)[:, None]


# Which elements a thread holds, and so the order in which ``tl.sum`` adds them, depends on everything else in a kernel. An axis of
# two elements has one order. Twenty levels are more than a tile's axis ever has.
@triton.jit
def _tree_sum(a, axis: tl.constexpr):
    """The sum along an axis: neighbours first, then their sums, in an order that the rest of the kernel does not change."""
    for _ in tl.static_range(20):
        if a.shape[axis] > 1:
            if axis == 0 and len(a.shape) == 1:
                a = tl.sum(tl.reshape(a, (a.shape[0] // 2, 2)), 1)
            elif axis == 0:
                a = tl.sum(tl.reshape(a, (a.shape[0] // 2, 2, a.shape[1])), 1)
            else:
                a = tl.sum(tl.reshape(a, (a.shape[0], a.shape[1] // 2, 2)), 2)
    return tl.sum(a, axis)


# exp2 of float32 takes subnormal powers for 0, and three instructions less; beside the 1 of the largest value they are lost.
@triton.jit
def _online(peak, total, a, mask):
    """Per place of a block: the largest value met there and the sum of exp(a - largest), with one more block taken in.

    Online normaliser calculation for softmax (M. Milakov and N. Gimelshein, 2018): the sum so far is scaled down where the
    largest value grows; one of the two powers is exp(0). ``peak`` begins at the lowest finite number.
    """
    a = tl.where(mask, a, float("-inf"))
    low = tl.abs(a - peak)
    power = tl.exp(0 - low) if a.dtype == tl.float64 else tl.exp2(low * -1.4426950408889634)
    return tl.where(a > peak, a, peak), tl.where(a > peak, total * power + 1, total + power)


@triton.jit
def _online_row(peak, total):
    """The same of whole rows, from what their places hold; a row with NaN, inf or nothing but -inf has the sum NaN."""
    top = tl.max(peak, 1)[:, None]
    whole = tl.sum(total * tl.exp(peak - top), 1)[:, None]
    return top, tl.where(whole == 0, float("nan"), whole)


# No column has the number -1, so the mask of the look-up hides it; without this, 2**32 + 3 would wrap around to column 3.
@triton.jit
def _place(a):
    """A column's number in 32 bits; what is none becomes -1."""
    return tl.where((a < 0) | (a > 0x7FFFFFFF), -1, a).to(tl.int32)


@triton.jit
def _sign(a):
    """-1, 0 or 1; NaN stays, and zero has no sign, as in numpy."""
    return tl.where(a != a, a, (a > 0).to(a.dtype) - (a < 0).to(a.dtype))


@triton.jit
def _neg(a):
    """Triton's unary minus is a subtraction from 0, which turns 0 into 0 and not into -0."""
    return a * -1


@triton.jit
def _trunc(a):
    """Towards zero."""
    return tl.where(a < 0, tl.ceil(a), tl.floor(a))


@triton.jit
def _divisor(b):
    """1 instead of 0 and -1: what a division by 0, or of the least number by -1, gives differs from chip to chip."""
    return tl.where((b == 0) | (b + 1 == 0), 1, b)


# The quotient is one too large where the signs differ and there is a rest. A divisor of -1 is replaced, too, and the
# result is then the negated dividend, which wraps around for the least number as numpy's does.
@triton.jit
def _floor_div(a, b):
    """Integer division rounded down; Triton's ``//`` rounds towards zero. 0 where numpy says so: for a divisor 0."""
    d = _divisor(b)
    q = a // d
    down = tl.where((q * d != a) & ((a < 0) != (d < 0)), q - 1, q)
    return tl.where(b == 0, 0, tl.where(b == d, down, 0 - a))


@triton.jit
def _floor_mod(a, b):
    """What :func:`_floor_div` leaves; it has the divisor's sign, and is 0 for a divisor 0."""
    d = _divisor(b)
    r = a % d
    return tl.where((r != 0) & ((r < 0) != (d < 0)), r + d, r)


# Where exp(a) rounds to u, log(u) is the exact argument of u: the quotient a / log(u) takes the rounding out again. Beyond 1
# nothing cancels, and at u = 0 the logarithm is -inf.
@triton.jit
def _expm1(a):
    """exp(a) - 1 without cancellation (W. Kahan's quotient of rounded values)."""
    u = tl.exp(a)
    near = (u - 1) * (a / tl.log(u))
    return tl.where(u == 1, a, tl.where((tl.abs(a) > 1) | (u == 0), u - 1, near))


@triton.jit
def _log1p(a):
    """log(1 + a) without cancellation (W. Kahan's quotient of rounded values)."""
    u = 1 + a
    return tl.where(u == 1, a, tl.where(tl.abs(u) == float("inf"), tl.log(u), tl.log(u) * (a / (u - 1))))


# Beyond 20, 1 - tanh is below 1e-17, and the distance from 1 to the next smaller double is 1e-16. -0 stays -0.
@triton.jit
def _tanh(a):
    """From expm1 of twice the magnitude, clamped where the result is 1 in any precision."""
    m = _expm1(2 * tl.where(tl.abs(a) > 20, 20, tl.abs(a)))
    t = m / (m + 2)
    return tl.where(a < 0, -t, tl.where(a == 0, a, t))


# ``1 / a`` is eight instructions, seven of which are for divisors that are subnormal, or whose reciprocal is.
@triton.jit
def _reciprocal(a):
    """1 / a of float32 between 2**-126 and 2**126, to one unit in the last place."""
    if INTERPRETED:
        r = 1 / a
    else:
        r = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [a], dtype=tl.float32, is_pure=True, pack=1)
    return r


# A quarter of the instructions of ``_tanh``. The polynomial is at most 2 units in the last place off and the quotient 4, with the
# errors that are allowed to the hardware's exp2 and reciprocal. Far out the power is 0. The sign comes last: zeros keep theirs.
@triton.jit
def _tanh32(a):
    """Returns tanh of float32: a polynomial where the quotient of powers would cancel."""
    t = tl.abs(a)
    power = tl.exp2(t * -2.8853900817779268)
    s = t * t
    near = ((-0.052150461822748184 + 0.01551253441721201 * s) * s + 0.13312004506587982) * s - 0.33332541584968567
    t = tl.where(t < 0.6, near * s * t + t, 1 - 2 * (power * _reciprocal(1 + power)))
    return (t.to(tl.uint32, bitcast=True) | (a.to(tl.uint32, bitcast=True) & 0x80000000)).to(tl.float32, bitcast=True)


# The complement of erf is 2 to the power of a polynomial in the magnitude: an absolute error of 1.8 * 2**-24, as that of 1 + erf,
# in a third of its instructions, and digits left where the sum would cancel to none. The leading coefficient is negative: far
# out the power is 0.
@triton.jit
def _erf_plus_one(a):
    """1 + erf(a) of float32."""
    t = tl.abs(a)
    p = 0.00028714593405066926 - 2.4169547659504798e-05 * t
    p = p * t - 0.0010267400881546886
    p = p * t - 0.0014493489589344178
    p = p * t + 0.028773016530744322
    p = p * t - 0.14868633504095
    p = p * t - 0.9183798811592738
    p = p * t - 1.627910686593423
    power = tl.exp2(p * t)
    return tl.where(a < 0, power, 2 - power)


# Key and counter are those of ``tuned/philox.py``, whose words lie in pairs in memory. ``rng`` has the program's seed, then the run
# and the place's part of the key; ``draw`` the op's number and the trip of a loop, then its own seed. Places are not negative.
@triton.jit
def _words(rng, draw, block, flip, rounds: tl.constexpr):
    """The four random words of each block of an op's stream: Philox-4x32 on the number of the block."""
    own = tl.load(draw + 1)
    seed = tl.where(own == 0, tl.load(rng), own)
    run = tl.load(rng + 1)
    op = tl.load(draw)
    k0 = seed.to(tl.uint32)
    k1 = ((seed ^ run) >> 32).to(tl.uint32)
    c0 = block.to(tl.uint32)
    c1 = ((block ^ op) >> 32).to(tl.uint32)
    c2 = op.to(tl.uint32)
    c3 = run.to(tl.uint32) ^ flip
    for _ in tl.static_range(rounds):
        p0 = c0.to(tl.uint64) * 0xD2511F53
        p1 = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = p1.to(tl.uint32)
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = p0.to(tl.uint32)
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _philox(rng, draw, at, flip):
    """The random word of each place of an op's stream."""
    c0, c1, c2, c3 = _words(rng, draw, at.to(tl.int64) >> 2, flip, 10)
    word = at & 3
    return tl.where(word < 2, tl.where(word == 0, c0, c1), tl.where(word == 2, c2, c3))


@triton.jit
def _drawn(rng, draw, at):
    """The random words less 2^31, as signed numbers."""
    return (_philox(rng, draw, at, 0) ^ 0x80000000).to(tl.int32, bitcast=True)


# Where neighbours lie in one thread, the compiler makes the words of a block once for all of them.
@triton.jit
def _half(rng, draw, at):
    """The half of each place of an op's stream: 16 bits, eight in a block, made in seven rounds."""
    c0, c1, c2, c3 = _words(rng, draw, at.to(tl.int64) >> 3, 0, 7)
    word = (at >> 1) & 3
    pair = tl.where(word < 2, tl.where(word == 0, c0, c1), tl.where(word == 2, c2, c3))
    return ((pair << (16 - 16 * (at & 1).to(tl.uint32))) >> 16).to(tl.int32)


# Where one thread makes a run's words and others use them, numbers of 64 bits go there in one step; words that are joined twice
# would take two, with twice the barriers.
@triton.jit
def _half_runs(rng, draw, at, columns, run: tl.constexpr, turned: tl.constexpr):
    """The same for a matrix of which only the first place of each run of 8 or 4 columns is given (turned: of rows)."""
    c0, c1, c2, c3 = _words(rng, draw, at >> 3, 0, 7)
    low, high = c0.to(tl.uint64) | (c1.to(tl.uint64) << 32), c2.to(tl.uint64) | (c3.to(tl.uint64) << 32)
    if run == 4:
        fours = tl.expand_dims(tl.where(at & 4 == 0, low, high), 2)
        fours = tl.reshape(tl.broadcast_to(fours, (at.shape[0], at.shape[1], 4)), (at.shape[0], 4 * at.shape[1]))
    elif turned:
        fours = tl.expand_dims(tl.permute(tl.join(low, high), (0, 2, 1)), 2)
        fours = tl.reshape(tl.broadcast_to(fours, (at.shape[0], 2, 4, at.shape[1])), (8 * at.shape[0], at.shape[1]))
    else:
        fours = tl.expand_dims(tl.join(low, high), 3)
        fours = tl.reshape(tl.broadcast_to(fours, (at.shape[0], at.shape[1], 2, 4)), (at.shape[0], 8 * at.shape[1]))
    pair = tl.where(columns & 2 != 0, fours >> 32, fours).to(tl.uint32)
    return ((pair << (16 - 16 * (columns & 1).to(tl.uint32))) >> 16).to(tl.int32)


# The product is not rounded before the difference is taken: where a and less are large, most of both cancels.
@triton.jit
def exp_less(a, factor, less):
    """2 to the power of a * factor - less."""
    if INTERPRETED:
        r = tl.exp2((a.to(tl.float64) * factor - less.to(tl.float64)).to(tl.float32))
    else:
        r = tl.exp2(tl.fma(a, factor, -less))
    return r


@triton.jit
def _unit24(rng, draw, at):
    """The upper 24 bits of the random words, exactly."""
    return (_philox(rng, draw, at, 0) >> 8).to(tl.float32)


@triton.jit
def _unit53(rng, draw, at):
    """53 bits of the two draws of each place, exactly."""
    first = _philox(rng, draw, at, 0).to(tl.float64) * 2097152.0
    return first + (_philox(rng, draw, at, 0x80000000) >> 11).to(tl.float64)


# Down to ``_within`` the operations are those of ``tuned/normal.py``, in its order: the bits are the reference's where no product
# and sum become one instruction.
@triton.jit
def _minus_two_log24(n):
    """-2 log(n / 2^24) of float32."""
    bits = n.to(tl.int32, bitcast=True) - 0x4B3504F3
    k = (bits >> 23).to(tl.float32)
    f = ((bits & 0x7FFFFF) + 0x3F3504F3).to(tl.float32, bitcast=True) - 1
    s = tl.div_rn(f, f + 2)
    square = s * s
    fourth = square * square
    even = (fourth * 0.48558157682 + 0.80001944304) * fourth
    odd = (fourth * 0.56997573376 + 1.33333325386) * square
    power = f * f
    return k * -1.3862943611198906 + ((power - (odd + even + power) * s) - (f + f))


@triton.jit
def _minus_two_log(n, power: tl.constexpr):
    """-2 log(n / 2^power) of float64."""
    bits = n.to(tl.int64, bitcast=True) - (0x3FE6A09E00000000 + (power << 52))
    k = (bits >> 52).to(tl.float64)
    f = ((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E00000000).to(tl.float64, bitcast=True) - 1
    s = f / (f + 2)
    square = s * s
    fourth = square * square
    even = (fourth * 0.3062767539841874664 + 0.4444439686429956792) * fourth + 0.7999999999881883134
    odd = (fourth * 0.2959639721023317182 + 0.3636714432324210018) * fourth + 0.571428574873247830
    odd = (odd * fourth + 1.333333333333347026) * square
    square = f * f
    return k * -1.3862943611198906 + ((square - (odd + even * fourth + square) * s) - (f + f))


@triton.jit
def _of_pair(length, sine, cosine, q, at):
    """The number of each place of a pair: its root of length times the cosine or the sine, by the quarter of the turn."""
    turn = q.to(tl.int32) + 3 * (at & 1).to(tl.int32)
    length = tl.where(((turn + 1) & 2) == 0, length, length * -1)
    return tl.where((turn & 1) == 0, cosine, sine) * length


@triton.jit
def _normal24(rng, draw, at):
    """A normal number of float32 for each place, by the method of Box and Muller; neighbours are a pair."""
    c0, c1, c2, c3 = _words(rng, draw, at.to(tl.int64) >> 2, 0, 10)
    low = (at & 2) == 0
    length = tl.sqrt_rn(_minus_two_log24((tl.where(low, c0, c2) >> 8).to(tl.float32) + 1))
    y = (tl.where(low, c1, c3) >> 8).to(tl.float32) * 2.384185791015625e-07
    q = tl.floor(y + 0.5)
    y = y - q
    z = y * y
    sine = ((z * -0.004602149128913879 + 0.07968021929264069) * z - 0.6459634900093079) * z + 1.5707963705062866
    cosine = ((z * 0.0009067399078048766 - 0.02086152881383896) * z + 0.253669410943985) * z - 1.2337005138397217
    return _of_pair(length, sine * y, cosine * z + 1, q, at)


@triton.jit
def _normal53(rng, draw, at):
    """The same of float64."""
    c0, c1, c2, c3 = _words(rng, draw, at.to(tl.int64) >> 2, 0, 10)
    d0, d1, d2, d3 = _words(rng, draw, at.to(tl.int64) >> 2, 0x80000000, 10)
    low = (at & 2) == 0
    n = tl.where(low, c0, c2).to(tl.float64) * 2097152.0 + (tl.where(low, d0, d2) >> 11).to(tl.float64)
    length = tl.sqrt(_minus_two_log(n + 1, 53))
    n = tl.where(low, c1, c3).to(tl.float64) * 2097152.0 + (tl.where(low, d1, d3) >> 11).to(tl.float64)
    y = n * 4.440892098500626e-16
    q = tl.floor(y + 0.5)
    y = y - q
    z = y * y
    sine = (z * 5.633933781537854e-08 - 3.59864335298231e-06) * z + 0.0001604411507421909
    sine = ((sine * z - 0.004681754132340976) * z + 0.07969262624604301) * z - 0.6459640975062443
    cosine = (z * -6.329396344967424e-09 + 4.710678405505227e-07) * z - 2.5202039028029178e-05
    cosine = ((cosine * z + 0.0009192602745468447) * z - 0.020863480763340773) * z + 0.2536695079010478
    cosine = (cosine * z - 1.2337005501361697) * z + 1
    return _of_pair(length, (sine * z + 1.5707963267948966) * y, cosine, q, at)


# Wichura's algorithm AS 241. The table has the quotient's numbers behind the operator's own two.
@triton.jit
def _within(draw, n):
    """The normal quantile of (n + 0.5) * factor + low, in float64; -inf at 0 and +inf at 1."""
    factor = tl.load(draw + 2).to(tl.float64, bitcast=True)
    p = (n + 0.5) * factor + tl.load(draw + 3).to(tl.float64, bitcast=True)
    q = p - 0.5
    x = 0.180625 - q * q
    top = ((x * 2509.0809287301227 + 33430.57558358813) * x + 67265.7709270087) * x
    top = (((top + 45921.95393154987) * x + 13731.69376550946) * x + 1971.5909503065513) * x
    top = (top + 133.14166789178438) * x + 3.3871328727963665
    bottom = ((x * 5226.495278852854 + 28729.085735721943) * x + 39307.89580009271) * x
    bottom = (((bottom + 21213.794301586597) * x + 5394.196021424751) * x + 687.1870074920579) * x
    bottom = (bottom + 42.31333070160091) * x + 1.0
    centre = q * (top / bottom)
    least = tl.where(p < 1 - p, p, 1 - p)
    tail = tl.sqrt(_minus_two_log(least * 18014398509481984.0, 54) * 0.5)
    x = tail - 1.6
    top = ((x * 0.0007745450142783414 + 0.022723844989269184) * x + 0.2417807251774506) * x
    top = (((top + 1.2704582524523684) * x + 3.6478483247632045) * x + 5.769497221460691) * x
    top = (top + 4.630337846156546) * x + 1.4234371107496835
    bottom = ((x * 1.0507500716444169e-09 + 0.0005475938084995345) * x + 0.015198666563616457) * x
    bottom = (((bottom + 0.14810397642748008) * x + 0.6897673349851) * x + 1.6763848301838038) * x
    bottom = (bottom + 2.053191626637759) * x + 1.0
    outer = top / bottom
    x = tail - 5
    top = ((x * 2.0103343992922881e-07 + 2.7115555687434876e-05) * x + 0.0012426609473880784) * x
    top = (((top + 0.026532189526576124) * x + 0.29656057182850487) * x + 1.7848265399172913) * x
    top = (top + 5.463784911164114) * x + 6.657904643501103
    bottom = ((x * 2.0442631033899397e-15 + 1.421511758316446e-07) * x + 1.8463183175100548e-05) * x
    bottom = (((bottom + 0.0007868691311456133) * x + 0.014875361290850615) * x + 0.1369298809227358) * x
    bottom = (bottom + 0.599832206555888) * x + 1.0
    outer = tl.where(tail > 5, top / bottom, outer)
    outer = tl.where(least == 0, float("inf"), outer)
    return tl.where(tl.abs(q) > 0.425, tl.where(q < 0, outer * -1, outer), centre)


@triton.jit
def _within24(rng, draw, at):
    """The normal quantile of the random word of each place, moved to the interval of the table."""
    return _within(draw, _philox(rng, draw, at, 0).to(tl.float64))


@triton.jit
def _within53(rng, draw, at):
    """The same of 53 bits."""
    return _within(draw, _unit53(rng, draw, at))


@triton.jit
def _below(rng, draw, at):
    """A whole number below the table's span for each place: the upper half of the random word times the span."""
    span = tl.load(draw + 2).to(tl.uint64, bitcast=True)
    return tl.umulhi(_philox(rng, draw, at, 0).to(tl.uint64) << 32, span).to(tl.int64, bitcast=True)


@triton.jit
def _below64(rng, draw, at):
    """The same of both draws, for a span above 2^32; 0 means 2^64."""
    span = tl.load(draw + 2).to(tl.uint64, bitcast=True)
    word = (_philox(rng, draw, at, 0).to(tl.uint64) << 32) | _philox(rng, draw, at, 0x80000000).to(tl.uint64)
    return tl.where(span == 0, word, tl.umulhi(word, span)).to(tl.int64, bitcast=True)


# As a block: the interpreter spoils a truth value that it spreads.
@triton.jit
def _loaded(table, at):
    """The number of a table, for each place."""
    return tl.broadcast_to(tl.load(table), at.shape)


@triton.jit
def _element(rng, draw, at):
    """The number of each element."""
    return at.to(tl.int64)


# Added is half of the last place that stays, less one bit where that place is even: ties go to even. NaN gets its quiet bit,
# as it would become an infinity if all its bits were among those that are cut off.
@triton.jit
def to_bf16(a):
    """float32 to bfloat16, nearest even."""
    if INTERPRETED:
        bits = a.to(tl.uint32, bitcast=True)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        kept = tl.where(a != a, (bits >> 16) | 0x40, kept)
        r = kept.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        r = a.to(tl.bfloat16)
    return r


@triton.jit
def from_bf16(a):
    """bfloat16 to float32; the interpreter's own conversion takes subnormal numbers for 0."""
    if INTERPRETED:
        bits = a.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        r = bits.to(tl.float32, bitcast=True)
    else:
        r = a.to(tl.float32)
    return r


@triton.jit
def round_bf16(a):
    """float32 rounded to what bfloat16 can hold."""
    return from_bf16(to_bf16(a))


@triton.jit
def round_fp16(a):
    """float32 rounded to what float16 can hold."""
    return a.to(tl.float16).to(tl.float32)


@triton.jit
def wide(a):
    """16-bit floats as float32, other types as they are."""
    if a.dtype == tl.bfloat16:
        r = from_bf16(a)
    elif a.dtype == tl.float16:
        r = a.to(tl.float32)
    else:
        r = a
    return r


# The interpreter multiplies the bits of bfloat16 as integers, so operands are widened there. Compiled, an operand that was
# widened would be multiplied as TF32: half the speed, and other products.
@triton.jit
def dot(a, b, total):
    """Total + a @ b, added up in the type of total; float32 operands are multiplied in full precision."""
    if INTERPRETED:
        r = tl.dot(wide(a), wide(b), total, input_precision="ieee", out_dtype=total.dtype)
    elif a.dtype == tl.float32:
        r = tl.dot(a, b, total, input_precision="ieee")
    else:
        r = tl.dot(a, b, total, out_dtype=total.dtype)
    return r


# In the interpreter, which has no TF32, the product of float32.
@triton.jit
def dot_tf32(a, b, total):
    """Total + a @ b, added up in float32; float32 operands are rounded to TF32."""
    return tl.dot(a, b, total, input_precision="tf32")
