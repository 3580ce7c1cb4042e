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
