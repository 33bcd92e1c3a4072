"""Special functions of float32 values on vectors, written with `Lanes` as those of `libm`: computed in float64, good enough to round.

The polynomials' relative errors are at most 1e-11, so that results are those of SciPy's functions of float64, rounded, but for few that lie
halfway between two float32 values.
"""

from __future__ import annotations

import math

from shardwise.runtime.machine import libm
from shardwise.runtime.machine.flow import RARE
from shardwise.runtime.machine.lane import Lane
from shardwise.runtime.machine.lanes import Lanes
from shardwise.runtime.machine.libm_angles import in_double

# erfcx(x) * (1 + 2 x) in (x - 3.75) / (x + 3.75) for positive x
_ERFCX = (
    -1.3091970915552394e-07, 1.2871046397122951e-08, 1.5292227289128347e-06, -1.0898594782076337e-06, -1.1217376208983269e-05,
    2.2499516715507854e-05, 5.150759116182717e-05, -0.0002902247282467809, 0.0002937678673670915, 0.0017556525823270452,
    -0.009746591870078378, 0.028362271400896852, -0.05869339706402646, 0.09230432190088382, -0.10880393022829919,
    0.08227673844843511, 0.0035854154869275623, -0.140240598584853, 1.2375126308378268,
)  # fmt: skip
# i0e(x) and i1e(x) / x in x / 4 - 1 for x from 0 to 8, and sqrt(x) times i0e and i1e in 16 / x - 1 for x from 8 on
_I0_NEAR = (
    -1.9863040977793096e-06, 6.193667685327226e-06, -6.685434304472423e-06, 1.666381076572699e-05, -6.954041486757222e-05,
    0.0001758882737244621, -0.0003789563347949399, 0.0008430642155355512, -0.001814413416691325, 0.0036256468951473444,
    -0.006791327021484842, 0.011956443477564938, -0.019682953226613616, 0.030178928852801726, -0.04298589700758204,
    0.056776852134246575, -0.06954120102873629, 0.07927524464744037, -0.08496338062955965, 0.08734341516839389,
    -0.08904344136663221, 0.09451562856112536, -0.11300432688618613, 0.20700192122391287,
)  # fmt: skip
_I0_FAR = (
    1.4389697565781544e-09, -1.7947396249050242e-09, -1.1078513446732808e-08, -3.129224103356587e-09, 2.3282119873813695e-08,
    4.483005025703062e-08, 8.832705498899627e-08, 2.958822671205622e-07, 1.4838904089191788e-06, 1.1143210446566857e-05,
    0.00013621607295039918, 0.0033605519774710965, 0.40217650944500816,
)  # fmt: skip
_I1_NEAR = (
    -2.0612062075796862e-07, 6.757491672246862e-07, -8.950406312783973e-07, 2.4364477936224414e-06, -9.509690005349226e-06,
    2.5582965320515227e-05, -6.106061725927573e-05, 0.00014709784260783965, -0.000341406310495055, 0.0007453623543667115,
    -0.0015387779921540085, 0.0030054000290293745, -0.005534594280698207, 0.009584063535206985, -0.015571304701913912,
    0.02368599901544846, -0.033671355975518784, 0.04467457449185445, -0.055280039203974486, 0.06376740361275576,
    -0.06848260620626795, 0.06805759991163304, -0.061124338029664826, 0.04468770987560139,
)  # fmt: skip
_I1_FAR = (
    -1.431179576405231e-09, 2.040742003733068e-09, 1.1520634011561788e-08, 2.715609974837701e-09, -2.5326518482709754e-08,
    -4.889954983206979e-08, -9.956124734350854e-08, -3.4683221259794795e-07, -1.8349595801284815e-06, -1.5038733192504842e-05,
    -0.0002192357621641299, -0.009749577186707516, 0.3893984590258725,
)  # fmt: skip
# lgamma(x) / ((x - 1) * (x - 2)) in 3.75 * (x - 1.5) / (x + 1.5) - 0.25 for x from 1 to 3, and x times what Stirling's formula leaves in
# 6 / x - 1 for x from 3 on
_GAMMA_NEAR = (
    -8.153495436181641e-10, 2.0457086501156625e-09, -1.1962581072324237e-08, 3.253666911273711e-08, -2.3052697943660553e-07,
    6.554697792149026e-07, -4.583477616869781e-06, 1.3449017140510017e-05, -9.88064749253389e-05, 0.00029254004735384804,
    -0.0025005192627610825, 0.007123768046523577, -0.11271688479055822, 0.45446418042756176,
)  # fmt: skip
_GAMMA_FAR = (
    -4.5600288615690487e-11, -9.158119487085041e-11, 1.7030229912660492e-09, -3.4800496635862005e-09, -5.469977957033745e-08,
    4.5061198287744643e-07, 2.2191764496825543e-06, -7.366478465939835e-05, -0.00015194427326194117, 0.08325677293844873,
)  # fmt: skip
# erf_inv(x) / x in v - 2.5, in sqrt(v) - 3.11803395 and in sqrt(v) - 7.1, where v = -log(1 - x**2) is up to 5, up to 16, and up to 104
_INVERSE_CENTRE = (
    4.384995311926027e-13, -3.388817519066577e-13, -3.0122346021629576e-11, 1.2982446043371449e-10,
    9.024881447909744e-10, -1.0906655743110653e-08, 1.3429287142216358e-08, 4.788369412627382e-07,
    -3.416636103077881e-06, -4.9962227613667115e-06, 0.000218250273934182, -0.0012527078260762582,
    -0.00417731772599164, 0.24664027673055933, 1.501409351110792,
)  # fmt: skip
_INVERSE_TAILS = (
    -5.277463916509813e-07, -3.6283061647768164e-06, 1.3420775837606851e-05, -2.060906823460732e-06,
    -5.9807197155136596e-05, 0.00014216828542780587, -9.795906007011592e-05, -0.000324056772574665,
    0.0012765294834164386, -0.0025728048975185974, 0.003883112598621307, -0.005407977805507985, 0.007159778999106227,
    1.0036197232525796, 2.9513285394529594,
)  # fmt: skip
_INVERSE_ENDS = (
    -1.6181567224635642e-14, 6.462681945327049e-14, 4.4307577523826856e-13, -1.7600809929941184e-12,
    -5.8671316784351955e-12, 2.549814562280166e-11, 1.0072467383975547e-11, 2.705240526495993e-11,
    -1.2699071017800202e-09, 8.05176050098278e-09, -4.7205077517333935e-08, 2.777974396589859e-07,
    -1.441863708843316e-06, 5.2913545915132e-06, 8.550619313581478e-06, -0.0005104220956403912, 1.008493302253134,
    6.969874094342212,
)  # fmt: skip


def _mills(w: Lanes, size: Lane) -> Lane:
    """``exp(x**2 / 2)`` times the normal distribution's share beyond positive float64 x, good enough to round to float32."""
    u = w.mul(size, w.like(math.sqrt(0.5), size))
    y = w.div(w.sub(u, w.like(3.75, u)), w.add(u, w.like(3.75, u)))
    return w.div(w.poly(y, _ERFCX), w.fma(u, w.like(4, u), w.like(2, u)))


def _size_and_bell(w: Lanes, wide: Lane) -> tuple[Lane, Lane]:
    """The size of float64 x, finite but for NaN, and ``x**2 / 2``."""
    size, most = w.abs(wide), w.like(1e100, wide)
    size = w.select(w.compare("gt", size, most), most, size)
    return size, w.mul(w.mul(size, size), w.like(0.5, size))


def log_ndtr(w: Lanes, x: Lane) -> Lane:
    """The logarithm of the normal distribution function of float32 values, in float64: log1p of less one share, or of what the share is
    besides its bell, which is added as its exponent.
    """
    wide = in_double(w, x)
    size, square = _size_and_bell(w, wide)
    share, below = _mills(w, size), w.compare("lt", wide, w.like(0, wide))
    above = w.neg(w.mul(share, libm.exp(w, w.neg(square))))
    least = w.like(2.0**-40 - 1, share)  # further out the square is all that counts
    under = w.sub(share, w.like(1, share))
    under = w.select(w.compare("lt", under, least), least, under)
    y = libm.log1p(w, w.select(below, under, above))
    return w.convert(w.select(below, w.sub(y, square), y), "float32")


def log_ndtr_slope(w: Lanes, x: Lane) -> Lane:
    """Its derivative, the density over the distribution function, likewise."""
    wide = in_double(w, x)
    size, square = _size_and_bell(w, wide)
    share, below = _mills(w, size), w.compare("lt", wide, w.like(0, wide))
    whole = w.select(below, share, w.sub(libm.exp(w, square), share))
    return w.convert(w.div(w.like(1 / math.sqrt(2 * math.pi), whole), whole), "float32")


def erf_inv(w: Lanes, x: Lane) -> Lane:
    """The inverse error function."""
    wide = in_double(w, x)
    one = w.like(1, wide)
    return w.convert(w.copysign(_inverse_error(w, wide, w.fma(w.neg(wide), wide, one)), wide), "float32")


def ndtri(w: Lanes, x: Lane) -> Lane:
    """The inverse of the normal distribution function: sqrt(2) times erf_inv of 2 x - 1."""
    wide = in_double(w, x)
    one, four = w.like(1, wide), w.like(4, wide)
    far = w.fma(w.like(2, wide), wide, w.neg(one))
    found = _inverse_error(w, far, w.mul(w.mul(four, wide), w.sub(one, wide)))
    return w.convert(w.mul(found, w.like(math.sqrt(2), found)), "float32")


def _inverse_error(w: Lanes, x: Lane, rest: Lane) -> Lane:
    """erf_inv of float64 x, where `rest` is 1 - x**2, good enough to round to float32."""
    v = w.neg(libm.log(w, rest))
    near = w.poly(w.sub(v, w.like(2.5, v)), _INVERSE_CENTRE)

    def tails() -> list[str]:
        root = w.call("sqrt", v)
        few = w.poly(w.sub(root, w.like(3.11803395, v)), _INVERSE_TAILS)
        ends = w.poly(w.sub(root, w.like(7.1, v)), _INVERSE_ENDS)
        far = w.select(w.compare("gt", v, w.like(16, v)), ends, few)
        infinity = w.like(math.inf, v)
        far = w.select(w.compare("eq", v, infinity), infinity, far)
        return [w.select(beyond, far, near).ref]

    beyond = w.compare("gt", v, w.like(5, v))
    found = w.branch(w.some(beyond), tails, [near.ref], [w.vector("double")], RARE)
    return w.mul(Lane(found[0], "float64"), x)


def i0e(w: Lanes, x: Lane) -> Lane:
    """The modified Bessel function of order 0, times exp(-abs(x))."""
    size = w.abs(in_double(w, x))
    near, far = _bessel(w, size, _I0_NEAR, _I0_FAR)
    return w.convert(w.select(w.compare("gt", size, w.like(8, size)), far, near), "float32")


def i1e(w: Lanes, x: Lane) -> Lane:
    """The same of order 1."""
    wide = in_double(w, x)
    size = w.abs(wide)
    near, far = _bessel(w, size, _I1_NEAR, _I1_FAR)
    found = w.select(w.compare("gt", size, w.like(8, size)), far, w.mul(near, size))
    return w.convert(w.copysign(found, wide), "float32")


def _bessel(w: Lanes, size: Lane, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Lane, Lane]:
    """By the polynomials for `size` up to 8, and from there on."""
    eight, one = w.like(8, size), w.like(1, size)
    low = w.select(w.compare("gt", size, eight), eight, size)
    high = w.select(w.compare("lt", size, eight), eight, size)
    below = w.poly(w.sub(w.mul(low, w.like(0.25, low)), one), near)
    above = w.poly(w.sub(w.div(w.like(16, high), high), one), far)
    return below, w.div(above, w.call("sqrt", high))


def lgamma(w: Lanes, x: Lane) -> Lane:
    """The logarithm of the size of the gamma function; infinite values give NaN."""
    wide = in_double(w, x)
    size, zero = w.abs(wide), w.like(0, wide)
    right = _lgamma_of_size(w, size)

    def reflect() -> list[str]:
        nearest = w.call("rint", size)
        slope = w.abs(libm.sin(w, w.mul(w.sub(size, nearest), w.like(math.pi, size))))
        left = w.sub(libm.log(w, w.div(w.like(math.pi, size), w.mul(size, slope))), right)
        return [w.select(below, left, right).ref]

    below = w.compare("lt", wide, zero)
    found = w.branch(w.some(below), reflect, [right.ref], [w.vector("double")], RARE)
    return w.convert(Lane(found[0], "float64"), "float32")


def _lgamma_of_size(w: Lanes, size: Lane) -> Lane:
    """Of positive values: below 1 that of the next value, less the logarithm."""
    one, three, log = w.like(1, size), w.like(3, size), libm.log(w, size)
    little = w.compare("lt", size, one)
    a = w.select(little, w.add(size, one), size)
    a = w.select(w.compare("gt", a, three), three, a)
    t = w.div(w.sub(a, w.like(1.5, a)), w.add(a, w.like(1.5, a)))
    near = w.poly(w.fma(t, w.like(3.75, t), w.like(-0.25, t)), _GAMMA_NEAR)
    near = w.fma(w.mul(w.sub(a, one), w.sub(a, w.like(2, a))), near, w.like(0, a))  # 0.0 at 1, not -0.0
    near = w.select(little, w.sub(near, log), near)
    b = w.select(w.compare("lt", size, three), three, size)
    inverse = w.div(one, b)
    rest = w.mul(w.poly(w.fma(inverse, w.like(6, b), w.like(-1, b)), _GAMMA_FAR), inverse)
    far = w.fma(w.sub(b, w.like(0.5, b)), log, w.sub(w.add(rest, w.like(0.5 * math.log(2 * math.pi), b)), b))
    return w.select(w.compare("gt", size, three), far, near)
