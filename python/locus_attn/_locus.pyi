"""Positional encodings for transformer attention, fused on the CPU."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

__version__: str

class _Array(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

_ArrayT = TypeVar("_ArrayT", bound=_Array)


class Encoding:
    """
    A positional encoding: parameters, and how they enter attention. Tables are shared, not copied; copy.deepcopy and pickle copy them. Threads may share an encoding.
    """

    @property
    def name(self) -> str:
        """The name in the list, such as "rope"."""

    def params(self) -> dict[str, Any]:
        """The trainable parameters: name -> array, shared."""

    def with_params(self, values: dict[str, Any]) -> Encoding:
        """The same encoding with other parameter values, by name."""

    def embed(self, positions: Any) -> Any:
        """
        For encodings of the input: the rows [n, d_model] (float64) that are added to x. Others raise ValueError.
        """

    def __repr__(self) -> str: ...

class NoPosition(Encoding):
    """Plain attention: no position at all."""

    def __init__(self) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Index(Encoding):
    """
    E[pos] = pos, on every channel of x [.., dim] or appended as one more.

    dim: channels of x [.., dim].
    mode: on every channel, or as one more ("concatenate").
    """

    def __init__(self, dim: int, mode: str = 'add') -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class NormalisedIndex(Encoding):
    """
    E[pos] = pos / (length - 1), on every channel or appended as one more.

    dim: channels of x [.., dim].
    mode: on every channel, or as one more ("concatenate").
    length: of the sequence; without it, the last position of the call counts as 1.
    """

    def __init__(self, dim: int, mode: str = 'add', length: int | None = None) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Binary(Encoding):
    """
    Channel c of E[pos] is bit c of pos, least significant first.

    bits: positions lie in [0, 2^bits).
    dim: channels, zero from bits on; 0: as many as bits.
    """

    def __init__(self, bits: int, dim: int = 0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class SineOnly(Encoding):
    """
    E[pos, j] = sin(pos / base^(j / dim)): the step before sines and cosines in pairs.

    dim: channels of x [.., dim].
    base: of the frequencies base^(-j / dim).
    """

    def __init__(self, dim: int, base: float = 10000.0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Sinusoidal(Encoding):
    """
    Vaswani et al. (2017): sin and cos of (pos + offset) / base^(2i / dim).

    dim: channels of x [.., dim].
    base: of the frequencies base^(-2i / dim).
    layout: "interleaved" (sin at 2i, cos at 2i + 1), "halves" (all sines, then all cosines: RoFormer) or "halves-inclusive" (halves with base^(i / (dim / 2 - 1)): Whisper, M2M100).
    offset: added to every position.
    """

    def __init__(self, dim: int, base: float = 10000.0, layout: str = 'interleaved', offset: int = 0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Learned(Encoding):
    """
    x + table[pos + offset], one trained row per position.

    table [L, d_model]: one row per position; a position without a row is a ValueError.
    offset: of the first position's row: 2 for OPT and BART, padding_idx + 1 for RoBERTa.
    """

    def __init__(self, table: Any, offset: int = 0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    def resized(self, length: int, kernel: str) -> Learned:
        """
        The table stretched or shrunk to `length` rows, by "linear" or "bicubic" (a = -0.75) interpolation as in PyTorch (align_corners = False).
        """

    def resized_2d(self, from_grid: tuple[int, int], to_grid: tuple[int, int], kernel: str = 'bicubic', prefix: int = 0) -> Learned:
        """
        The same for a raster of (height, width) rows after `prefix` rows that stay as they are.
        """

class KeyOffset(Encoding):
    """
    f_k = W_K x_n + rows[m - n + M - 1]: Shaw's keys without clipping.

    rows [[heads,] 2M - 1, D]: row (m - n) + M - 1 belongs to offset m - n.
    """

    def __init__(self, rows: Any) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Shaw(Encoding):
    """
    Shaw et al. (2018): k_n + keys[r], v_n + values[r] with r = clip(m - n, r_min, r_max) - r_min.

    keys [[heads,] r_max - r_min + 1, D]: added to the keys; without an axis of heads they share it.
    values [[heads,] r_max - r_min + 1, D]: added to the values; one of both tables may be None.
    r_min: offset of the first row; without bounds the clip is symmetric.
    r_max: offset of the last row.
    """

    def __init__(self, keys: Any | None, values: Any | None = None, r_min: int | None = None, r_max: int | None = None) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class TransformerXL(Encoding):
    """
    Dai et al. (2019): (q_i + u).k_j + (q_i + v).r[m - n + M - 1].

    r [heads, 2M - 1, D]: relative keys; row (m - n) + M - 1 belongs to offset m - n.
    u [heads, D]: joins the query against keys.
    v [heads, D]: joins the query against relative keys.
    """

    def __init__(self, r: Any, u: Any, v: Any) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    @staticmethod
    @staticmethod
    def sinusoidal_keys(w_r: Any, reach: int) -> Any:
        """
        r [heads, 2 reach - 1, D] = W_r s(m - n), with s the sinusoid of the offset ([sin, cos] halves) and w_r [heads, D, d_model].
        """

class Deberta(Encoding):
    """
    He et al. (2021): (q_i.k_j + q_i.c2p[b] + k_j.p2c[b]) / sqrt(terms * D).

    c2p [heads, 2 span, D]: projected position keys, or None.
    p2c [heads, 2 span, D]: projected position queries, or None.
    position_buckets: span of the tables; 0: max_relative_positions, without a logarithm (v1).
    max_relative_positions: offsets beyond it share the last bucket.
    """

    def __init__(self, c2p: Any | None, p2c: Any | None, position_buckets: int, max_relative_positions: int) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Tupe(Encoding):
    """
    Ke et al. (2021): (q_i.k_j + q_pos[m].k_pos[n]) / sqrt(2D) + bias[h, m - n].

    q_pos [heads, L, E]: projected positions p U_q of the queries.
    k_pos [heads, L, E]: projected positions p U_k of the keys.
    bias [heads, 2M - 1]: by offset; None is TUPE-A.
    cls [heads, 2]: resets the position part of cls_position: where it attends, and where it is attended to.
    cls_position: of the [CLS] token.
    buckets: for copies of a Tupe whose bias is not by offset.
    """

    def __init__(self, q_pos: Any, k_pos: Any, bias: Any | None = None, cls: Any | None = None, cls_position: int = 0, *, buckets: Any | None = None) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class T5Bias(Encoding):
    """
    Raffel et al. (2020): s + table[bucket(n - m), h]. The scale stays 1 / sqrt(D) unless the call gives another; T5 itself passes scale=1.

    table [buckets, heads]: as checkpoints store it.
    max_distance: offsets beyond it share the last bucket.
    bidirectional: half of the buckets are for later keys.
    """

    def __init__(self, table: Any, max_distance: int = 128, bidirectional: bool = False) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Alibi(Encoding):
    """
    Press et al. (2022): s - slope_h |m - n|.

    heads: how many.
    bias_max: the geometric slopes are 2^(-bias_max j / heads).
    slopes [heads]: instead of the geometric ones.
    future_slopes [heads]: those towards later keys; None: the same.
    """

    def __init__(self, heads: int, bias_max: float = 8.0, slopes: Sequence[float] | None = None, future_slopes: Sequence[float] | None = None) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    @staticmethod
    @staticmethod
    def slopes(heads: int, bias_max: float = 8.0) -> list[float]:
        """The geometric slopes, for any number of heads, as BLOOM has them."""

class Kerple(Encoding):
    """
    Chi et al. (2022): s - r1 ln(1 + r2 |m - n|) (kind "logarithmic") or s - r1 |m - n|^r2 ("power").

    kind: of the kernel.
    r1 [heads]: the size of the bias, positive.
    r2 [heads]: the rate or the power, positive; a power is at most 2.
    """

    def __init__(self, kind: str, r1: Any, r2: Any) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Fire(Encoding):
    """
    Li et al. (2024): s + f(psi(m - n) / psi(max(m, threshold))) with psi(x) = ln(|c x| + 1) and f(x) = w2 relu(w1 x + b1) + b2.

    w1 [width]: weights of the hidden units.
    b1 [width]: their biases.
    w2 [heads, width]: weights of the outputs.
    b2 [heads]: their biases.
    c [1]: of psi(x) = ln(|c x| + 1).
    threshold [1]: below it distances are divided by psi(threshold).
    epsilon: added to the divisor.
    """

    def __init__(self, w1: Any, b1: Any, w2: Any, b2: Any, c: Any, threshold: Any, epsilon: float = 1e-06) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Sandwich(Encoding):
    """
    Chi et al. (2023): the sinusoids' own inner product as a bias, steeper for later heads.

    heads: how many; later ones are steeper.
    dim: of the sinusoids, 128 in the paper.
    base: of the frequencies base^(-2i / dim).
    """

    def __init__(self, heads: int, dim: int = 128, base: float = 10000.0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class SwinBias(Encoding):
    """
    Liu et al. (2021): s + table[(dy + height - 1)(2 width - 1) + dx + width - 1, h].

    table [(2 height - 1)(2 width - 1), heads]: as checkpoints store it.
    height: of the window.
    width: of the window; positions are raster indices y * width + x.
    cls: position 0 is a [CLS] token and the table has three rows more (BEiT).
    """

    def __init__(self, table: Any, height: int, width: int, cls: bool = False) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Rope(Encoding):
    """
    Su et al. (2021): pairs of channels of q and k rotated by pos * base^(-2i / rotary_dim).

    head_dim: channels of a head.
    layout: which channels make a pair: "interleaved" (2i, 2i + 1) or "halves" (i, i + rotary_dim / 2).
    base: of the frequencies base^(-2i / dim).
    rotary_dim: how many channels rotate, the first ones or (place="trailing") the last; None: all.
    scaling: a dict as in config.json, such as {"rope_type": "linear", "factor": 4.0}; a key it does not use is a ValueError.
    angles: "exact" (float64 from the integer position) or "float32" (as Hugging Face computes them).
    place: of the channels that rotate.
    frequencies [rotary_dim / 2]: radians per position, given.
    softmax_factor: multiplies the scale of the scores (DeepSeek).
    temperature_beta: queries are multiplied by 1 + beta ln(1 + floor((m + shift) / span)).
    temperature_shift: the shift of that.
    temperature_span: the span of that.
    values: "relative" rotates values at the key and outputs back at the query (DeepSeek-V4), "absolute" leaves the outputs (RoFormer's rotary_value).
    """

    def __init__(self, head_dim: int, layout: str, base: float = 10000.0, rotary_dim: int | None = None, scaling: dict[str, Any] | None = None, angles: str = 'exact', *, place: str = 'leading', frequencies: Sequence[float] | None = None, softmax_factor: float = 1.0, temperature_beta: float = 0.0, temperature_shift: int = 0, temperature_span: int = 8192, values: str = 'none') -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    def frequencies(self, length: int = 1) -> list[float]:
        """
        Radians per position, [rotary_dim / 2], for sequences of `length` tokens (dynamic and longrope scalings change with it).
        """

    def gain(self, length: int = 1) -> float:
        """What multiplies cos and sin (YaRN, LongRoPE)."""

    def cos_sin(self, positions: Any, length: int = 1) -> tuple[Any, ...]:
        """cos and sin [n, rotary_dim / 2], float32, times the gain."""

    @property
    def changes_with_length(self) -> bool:
        """
        Whether the frequencies depend on the length: cached keys then age, see KvCache.rerotate.
        """

class RopeLearned(Encoding):
    """
    RoPE with a trained exponent per pair: pair p turns by pos * base^(-2p / rotary_dim) * exp(alpha[p]).

    alpha [[heads,] rotary_dim / 2]: the first rotary_dim channels rotate; zeros are ordinary RoPE; heads are key heads.
    layout: which channels make a pair: "interleaved" (2i, 2i + 1) or "halves" (i, i + rotary_dim / 2).
    base: of the frequencies base^(-2i / dim).
    """

    def __init__(self, alpha: Any, layout: str, base: float = 10000.0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class Rope2D(Encoding):
    """
    Axial 2-D RoPE: the first half of the pairs rotates by the row, the second by the column.

    head_dim: channels of a head.
    layout: which channels make a pair: "interleaved" (2i, 2i + 1) or "halves" (i, i + rotary_dim / 2).
    width: of the grid: positions are raster indices y * width + x.
    base: of the frequencies base^(-2i / dim).
    frequencies: "shared" by rows and columns (EVA-02, Qwen-VL) or "alternating", rows the even and columns the odd ones (Pixtral).
    """

    def __init__(self, head_dim: int, layout: str, width: int, base: float = 10000.0, frequencies: str = 'shared') -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class RopeMixed(Encoding):
    """
    Heo et al. (2024): over a 2-D grid, pair p turns by y * theta[p, 0] + x * theta[p, 1].

    theta [[heads,] rotary_dim / 2, 2]: radians per row and per column, shared by the heads or of each key head: the first rotary_dim channels rotate.
    layout: which channels make a pair: "interleaved" (2i, 2i + 1) or "halves" (i, i + rotary_dim / 2).
    width: of the grid: positions are raster indices prefix + y * width + x.
    prefix: tokens before the grid, such as [CLS], which are not rotated.
    offsets [2]: added to y and x: (0.5 - height / 2, 0.5 - width / 2) centres the grid.
    """

    def __init__(self, theta: Any, layout: str, width: int, prefix: int = 0, offsets: Sequence[float] = (0.0, 0.0)) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class MRope(Encoding):
    """
    M-RoPE: pairs dealt to time, height and width. Plain positions are text and rotate as those of Rope; tokens of images and videos are at pack_position(t, h, w).

    head_dim: channels of a head.
    layout: which channels make a pair: "interleaved" (2i, 2i + 1) or "halves" (i, i + rotary_dim / 2).
    sections [3]: pairs of time, height and width, head_dim / 2 in all.
    dealing: of pairs to time, height and width: "chunked" (Qwen2-VL) or "interleaved" (Qwen3-VL).
    base: of the frequencies base^(-2i / dim).
    """

    def __init__(self, head_dim: int, layout: str, sections: Sequence[int], dealing: str = 'chunked', base: float = 1000000.0) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

class XPos(Encoding):
    """
    Sun et al. (2022): RoPE whose pairs also decay with the offset, ((2i / D + gamma) / (1 + gamma))^((m - n) / scale_base).

    head_dim: channels of a head.
    layout: which channels make a pair: "interleaved" (2i, 2i + 1) or "halves" (i, i + rotary_dim / 2).
    base: of the frequencies base^(-2i / dim).
    scale_base: offsets over which pairs fade.
    gamma: how evenly pairs fade.
    """

    def __init__(self, head_dim: int, layout: str, base: float = 10000.0, scale_base: float = 512.0, gamma: float = 0.4) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

def pack_position(t: int, h: int, w: int) -> int:
    """
    One int64 position from time, row and column, for MRope: 2^60 + t 2^40 + h 2^20 + w. A text token p is at pack_position(p, p, p), or just at p.
    """

class Terms(Encoding):
    """
    An encoding of your own, from the terms of attention:

        s_ij = scale g[h, m] (rot(q_i).rot(k_j) + a_i.c_j + q_i.Tq[b] + k_j.Tk[b]) + B[h, b]
        o_i  = unrot_m(sum_j p_ij (rot_n(v_j) + Tv[b]))     b = row of m - n

    Every array is optional, shared and not copied, and has its gradient in the d_params of attention_backward under its own name. An axis of heads may be missing or 1: then all heads share the rows.

    scale: of the dot products, unless the call gives one; None is 1 / sqrt(D). scale_rows g [heads, positions].
    theta [pairs], [pairs, axes] or [heads, pairs, axes], which is for each key head: radians per position by which pairs of channels rotate. layout: "interleaved" or "halves", without a default. rotation: a dict of first_channel, axis [pairs], axes (a list of (divisor, modulus, offset): a coordinate is position / divisor % modulus + offset), origin, packed_from, log_decay [pairs], gain and angles ("exact" or "float32").
    q_rows a, k_rows c [heads, positions, E]: more channels of the dot product.
    q_table Tq, k_table Tk [heads, rows, D], v_table Tv [heads, rows, Dv], bias B [heads, rows]: by offset.
    slopes, future_slopes [heads]: B = -slope |m - n|, as ALiBi.
    profile_distance u, profile_gain g, profile_knots, profile_base, profile_slope [heads, segments]: B = base[s] + slope[s] x with x = u[|m - n|] g[m] and s the number of knots <= x, as FIRE.
    value_rotation: a dict of theta, layout, relative and what rotation takes: values rotate at the key and, if relative, outputs back at the query. It does not train.
    input_add [positions, d_model]: rows that embed() gives; attention sees nothing of them.
    first_position: that of the first row of all arrays by position.

    Offsets find their rows by first_offset (row b belongs to first_offset + b; without it an odd number of rows is centred on 0), by buckets (first_offset + i takes row buckets[i]), or by offsets (row b serves offsets[b] up to offsets[b + 1] - 1). clip: offsets beyond either end take the row of that end, else they are a ValueError. Each of the four is for all tables, or a dict by the name of the table.
    """

    def __init__(self, *, scale: float | None = None, scale_rows: Any | None = None, theta: Any | None = None, layout: str | None = None, rotation: dict[str, Any] | None = None, q_rows: Any | None = None, k_rows: Any | None = None, q_table: Any | None = None, k_table: Any | None = None, bias: Any | None = None, slopes: Any | None = None, future_slopes: Any | None = None, profile_distance: Any | None = None, profile_gain: Any | None = None, profile_knots: Any | None = None, profile_base: Any | None = None, profile_slope: Any | None = None, v_table: Any | None = None, value_rotation: dict[str, Any] | None = None, input_add: Any | None = None, first_position: int = 0, first_offset: int | dict[str, Any] | None = None, buckets: Any | dict[str, Any] | None = None, offsets: Any | dict[str, Any] | None = None, clip: bool | dict[str, Any] = True) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    def __repr__(self) -> str: ...

    def embed(self, positions: Any) -> Any:
        """The rows [n, d_model] (float64) of input_add, which are added to x."""

class OffsetBias(Encoding):
    """
    s + table[h, m - n - first_offset]: a bias by offset, any function of m - n.

    table [heads, n] for the offsets first_offset .. first_offset + n - 1, shared and not copied; heads may be 1. Without first_offset an odd n is centred on 0. clip: offsets beyond either end take the value of that end; clip=False makes them a ValueError.
    """

    def __init__(self, table: Any, first_offset: int | None = None, *, clip: bool = True) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    def __repr__(self) -> str: ...

class Custom(Encoding):
    """
    A custom encoding, from functions of the offset m - n:

        locus.Custom(lambda offsets: -np.abs(offsets) / 8)

    Each function is called once per call, with every offset from the lowest to the highest that occurs, int64 [n], and returns one row per offset, as float32 or float64. That is O(N) rows, and attention stays fused. For PyTorch functions with trained parameters see locus.torch.RelativeBias.

    terms: a function, taken as the bias; or a Terms (or a dict of its arguments) with everything that is not a function.
    bias: returns B [heads, n].
    q_table, k_table: return Tq, Tk [heads, n, D], whose dot products with queries and keys join the scores.
    v_table: returns Tv [heads, n, Dv], which is added to the values.

    The heads axis may be missing or 1: then all heads share the rows. In d_params of attention_backward, the name of a table has the gradient of what its function returned; the chain rule leads from there to the function's own parameters.
    """

    def __init__(self, terms: Terms | dict[str, Any] | Callable[[Any], Any] | None = None, *, bias: Callable[[Any], Any] | None = None, q_table: Callable[[Any], Any] | None = None, k_table: Callable[[Any], Any] | None = None, v_table: Callable[[Any], Any] | None = None) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    def __repr__(self) -> str: ...

class EncodingInfo:
    """One row of encodings()."""

    @property
    def name(self) -> str: ...

    @property
    def class_name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def formula(self) -> str: ...

    @property
    def paper(self) -> str: ...

    @property
    def models(self) -> str: ...

    @property
    def reference(self) -> str: ...

    @property
    def trainable(self) -> bool: ...

    @property
    def extrapolates(self) -> str: ...

    @property
    def options(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def fields(self) -> list[Any]:
        """
        The arguments of the class: dicts of name, type, default, choices, shape, optional, by_name, sentence and slider.
        """

    @property
    def example_options(self) -> list[Any]:
        """The options of example(), likewise."""

    @property
    def variants(self) -> list[str]:
        """Options of example() worth comparing, such as "kind=power"."""

    @property
    def training(self) -> list[Any]:
        """How each parameter starts and trains in a model."""

    def __repr__(self) -> str: ...

    def example(self, heads: int = 8, head_dim: int = 64, length: int = 128, seed: int = 1, **options: Any) -> Encoding:
        """
        A ready-made instance: formulas with their usual constants, tables random. options: the encoding's own, see .options.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...

def encodings() -> list[EncodingInfo]:
    """Every encoding, with its formula, paper and properties."""

class Property:
    """One question, measured."""

    @property
    def name(self) -> str: ...

    @property
    def question(self) -> str: ...

    @property
    def verdict(self) -> str: ...

    @property
    def value(self) -> float: ...

    @property
    def measure(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    @property
    def sentence(self) -> str: ...

    def __repr__(self) -> str: ...

class CheckReport:
    """What check() found."""

    @property
    def encoding(self) -> str: ...

    @property
    def properties(self) -> list[Property]: ...

    def __repr__(self) -> str: ...

    def __getitem__(self, name: str) -> Property:
        """A property by its name."""

def check(encoding: Encoding | str, heads: int = 8, head_dim: int = 64, length: int = 128, seed: int = 1) -> CheckReport:
    """
    What an encoding can and cannot do, measured on random tokens: order, uniqueness, relativity, decay and more. encoding: an instance, or a name of encodings().
    """

def machine(threads: int | None = None) -> dict[str, Any]:
    """
    What this machine can do, measured now in some tenth of a second: float32 multiply-adds (GFLOP/s), and bandwidth of reading, copying and updating in place (GB/s).
    """

def explain(encoding: Encoding, heads: int = 8, head_dim: int = 64, length: int = 128, causal: bool = False) -> str:
    """
    The terms that an encoding becomes for a call of these sizes, in words.
    """

@overload
def attention(q: _ArrayT, k: _Array, v: _Array, encoding: Encoding | None = None, *, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, return_lse: Literal[False] = False, return_weights: Literal[False] = False, threads: int | None = None) -> _ArrayT:
    """
    Fused attention with positions, in memory that grows with the length.

        s_ij = scale (rot(q_i).rot(k_j) + ...) + bias    o = softmax(s) v

    q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv]: NumPy arrays or anything on the CPU that speaks DLPack, of float32, bfloat16 or float16 and any strides; Hq is a multiple of Hkv. Returns [B, Hq, Lq, Dv] in the type and framework of q.

    encoding: one of the classes of this module, or a layer of from_config, whose scale, window and softcap hold where these are None; None is no position.
    causal: key positions after the query's are hidden.
    scale: of the dot products; None is the encoding's own, usually 1 / sqrt(D).
    window: an int w hides offsets m - n >= w (and <= -w unless causal); a pair (left, right) keeps -right <= m - n <= left.
    chunk: tokens see only those of their own chunk of so many positions.
    softcap: cap * tanh(s / cap), biases included.
    q_positions, k_positions: integers [L] or [B, L]; by default keys count from 0 and the last query stands at the last key of its sequence.
    key_lengths [B]: only so many keys of a sequence exist; the result is that of the sequence with its keys cut off there.
    q_segments, k_segments: integers [L] or [B, L]; tokens see their own segment only (packed sequences).
    by_index: causal and window compare the indices of tokens, which are the default positions, instead of the positions given; for MRope with videos.
    mask: booleans [B or 1, Hq or 1, Lq or 1, Lk], or the last two or three of these axes; a query sees a key only where it is true.
    prefix_lengths [B]: so many first keys of a sequence are visible to all of its queries, whatever causal, window and chunk say.
    key_bias [B or 1, Hq or 1, Lk], pair_bias [B or 1, Hq or 1, Lq or 1, Lk]: added to the scores.
    sinks [Hq]: a logit per head that takes part in the softmax without a value.
    table_queries [B, Hq, Lq, R]: what meets the query table of the encoding, instead of q.
    dropout, seed: each weight becomes 0 with this probability, the others are divided by 1 - dropout; the seed decides which.
    dropout_tokens: ((first, stride) of the queries, (first, stride) of the keys), what tokens count as in the whole sequence, so that a part of it drops what the whole does; None is ((0, 1), (0, 1)).
    return_lse, return_weights: the result is (out, lse, weights), of these what is asked for. Weights are Lq x Lk numbers per head, which attention itself never holds at once.
    threads: None is all of the machine's. Results do not depend on it.

    A query that sees no key yields zeros and lse = -inf.
    """

@overload
def attention(q: _ArrayT, k: _Array, v: _Array, encoding: Encoding | None = None, *, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, return_lse: Literal[False] = False, return_weights: Literal[True], threads: int | None = None) -> tuple[_ArrayT, _ArrayT]: ...

@overload
def attention(q: _ArrayT, k: _Array, v: _Array, encoding: Encoding | None = None, *, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, return_lse: Literal[True], return_weights: Literal[False] = False, threads: int | None = None) -> tuple[_ArrayT, _ArrayT]: ...

@overload
def attention(q: _ArrayT, k: _Array, v: _Array, encoding: Encoding | None = None, *, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, return_lse: Literal[True], return_weights: Literal[True], threads: int | None = None) -> tuple[_ArrayT, _ArrayT, _ArrayT]: ...

@overload
def attention(q: _ArrayT, k: _Array, v: _Array, encoding: Encoding | None = None, *, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, return_lse: bool = False, return_weights: bool = False, threads: int | None = None) -> _ArrayT | tuple[_ArrayT, ...]: ...

def attention_backward(d_out: _ArrayT, q: _Array, k: _Array, v: _Array, out: _Array, lse: _Array, encoding: Encoding | None = None, *, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, d_lse: Any | None = None, pair_bias_grad: bool = False, threads: int | None = None) -> tuple[_ArrayT, _ArrayT, _ArrayT, dict[str, Any]]:
    """
    Gradients of sum(d_out * out) + sum(d_lse * lse): (d_q, d_k, d_v, d_params).

    out and lse are what attention returned with return_lse=True for the same arguments. d_params: name -> gradient, for every trainable parameter of the encoding and for key_bias, sinks, table_queries and, with pair_bias_grad=True, pair_bias, in their shapes and types. The same bits for any number of threads.
    """

def explain_call(q: Any, k: Any, v: Any, encoding: Encoding | None = None, *, backward: bool = False, causal: bool = False, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, k_positions: Any | None = None, key_lengths: Any | None = None, q_segments: Any | None = None, k_segments: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, dropout: float = 0.0, seed: int | None = None, dropout_tokens: tuple[tuple[int, int], tuple[int, int]] | None = None, return_weights: bool = False, threads: int | None = None) -> dict[str, Any]:
    """
    How attention (or, with backward=True, its gradient) would run a call, without running it: a dict with the driver, the drivers before it and why they do not take the call, threads, SIMD target, sizes, mask and terms. With LOCUS_VERBOSE=1 in the environment every call prints its 'line' and its milliseconds to standard error.
    """

def merge(a: tuple[_ArrayT, _ArrayT], b: tuple[_ArrayT, _ArrayT]) -> tuple[_ArrayT, _ArrayT]:
    """
    Joins (out, lse) of the same queries over two disjoint sets of keys: what one call over all of them gives.
    """

def linear_attention(q: _ArrayT, k: _Array, v: _Array, encoding: Encoding | None = None, *, causal: bool = False, feature_map: Callable[[Any], Any] | None = None, q_positions: Any | None = None, k_positions: Any | None = None) -> _ArrayT:
    """
    Linear attention with rotary positions, O(N), in float64:

        o_i = sum_j (R_m phi(q_i)).(R_n phi(k_j)) v_j / sum_j phi(q_i).phi(k_j)

    feature_map: a function of one row [D] -> [F], not negative; None is elu(x) + 1. Biases and tables cannot be factored and are refused.
    """

def forget_gate_sums(log_gates: _ArrayT, before: Any | None = None) -> _ArrayT:
    """
    F[b, h, t] = before[b, h] + sum over l <= t of log_gates[b, h, l], in float64 (Forgetting Transformer).

    log_gates [B, H, L]: ln of the forget gates, finite. before [B, H]: F of the last token so far, for keys that join a cache; None is 0.
    """

def forget_gate_bias(sums: _ArrayT) -> _ArrayT:
    """
    The key_bias of forget gates, float32 [B, H, Lk]: K_j = F_last - F_j of the sums F of all keys.

    Causal attention with it is that with F_i - F_j added to every score, since F_i is the same for all keys of a query. lse is higher by F_last - F_i; a soft cap and sinks do not go with it.
    """

def forget_gate_backward(d_key_bias: _ArrayT) -> _ArrayT:
    """
    The gradient of log_gates, given that of forget_gate_bias, both [B, H, Lk]: sums over the keys before each.
    """

def pack(lengths: Any) -> tuple[Any, ...]:
    """
    (positions, segments) of sequences packed end to end: [3, 2] gives [0, 1, 2, 0, 1] and [0, 0, 0, 1, 1].
    """

def rotate(x: _ArrayT, encoding: Encoding, positions: Any | None = None, inverse: bool = False, *, axes: str | None = None, inplace: bool = False, threads: int | None = None) -> _ArrayT:
    """
    x rotated by Rope, Rope2D, MRope or Terms with theta, in the type and framework of x.

    x [B, H, L, D], [H, L, D] or [L, D]; axes="BLHD" (or "LHD", "BLD") says otherwise. positions: integers [L] or [B, L], by default 0 .. L - 1. inverse undoes the rotation. inplace writes to x and returns it.
    """

def rotate_with(x: _ArrayT, cos: _Array, sin: _Array, *, layout: str, rotary_dim: int | None = None, positions: Any | None = None, inverse: bool = False, axes: str | None = None, inplace: bool = False, threads: int | None = None) -> _ArrayT:
    """
    x rotated by given tables.

    cos, sin: [rows, rotary_dim / 2], or [rows, rotary_dim] with each value twice as Hugging Face keeps them. positions: the row of each token, integers [L] or [B, L], by default 0 .. L - 1. layout: "interleaved" or "halves", without a default. rotary_dim: how many leading channels rotate; None is all. axes and inplace as for rotate.
    """

class KvCache:
    """
    Keys and values of the tokens so far, for decoding token by token.

    Keys are stored rotated, once, when they are appended. dtype ("float32", "bfloat16", "float16" or "int8") is storage; arithmetic is in float32. int8 keeps one scale per token and head, for keys and for values, and is off by at most max|x| / 254 of that row; a row with a NaN or an infinity is read as NaN. values_in_keys: values are the first value_dim channels of the keys, which alone are stored; append takes no v, and a rotation must lie behind those channels. q_heads: of the encodings, where they differ from kv_heads. A cache whose keys were rotated by one table refuses another, see rerotate.

    Threads may share a cache: calls that read run side by side, one that changes it runs alone.
    """

    def __init__(self, kv_heads: int, head_dim: int, value_dim: int | None = None, *, batch: int = 1, dtype: str = 'float32', capacity: int = 0, q_heads: int | None = None, values_in_keys: bool = False) -> None: ...

    def append(self, k: Any, v: Any | None = None, encoding: Encoding | None = None, *, positions: Any | None = None, lengths: Any | None = None, threads: int | None = None) -> None:
        """
        Adds unrotated keys k [B, Hkv, n, D] and values v [B, Hkv, n, Dv].

        positions: integers [n] or [B, n], by default each sequence goes on by one, and after packed positions of MRope above the largest coordinate. lengths [B]: only so many tokens of a sequence.
        """

    @overload
    def decode(self, q: _ArrayT, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, key_lengths: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[False] = False, return_weights: Literal[False] = False, threads: int | None = None) -> _ArrayT:
        """
        Attends q [B, Hq, Lq, D], unrotated, over everything cached. By default the queries are the last Lq tokens of their sequence, or of what key_lengths leave of it, as in attention.
        """

    @overload
    def decode(self, q: _ArrayT, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, key_lengths: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[False] = False, return_weights: Literal[True], threads: int | None = None) -> tuple[_ArrayT, _ArrayT]: ...

    @overload
    def decode(self, q: _ArrayT, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, key_lengths: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[True], return_weights: Literal[False] = False, threads: int | None = None) -> tuple[_ArrayT, _ArrayT]: ...

    @overload
    def decode(self, q: _ArrayT, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, key_lengths: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[True], return_weights: Literal[True], threads: int | None = None) -> tuple[_ArrayT, _ArrayT, _ArrayT]: ...

    @overload
    def decode(self, q: _ArrayT, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, key_lengths: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: bool = False, return_weights: bool = False, threads: int | None = None) -> _ArrayT | tuple[_ArrayT, ...]: ...

    def rerotate(self, encoding: Encoding, length: int = 0) -> None:
        """
        Rotates the cached keys to another table, K' = R_new R_old^-1 K, for scalings that change with the length.
        """

    def truncate(self, n: int, sequence: int | None = None) -> None:
        """Keeps the first n tokens of one sequence, or of all."""

    def evict(self, begin: int, end: int, sequence: int | None = None) -> None:
        """
        Removes tokens begin .. end - 1 of one sequence, or of all. The others keep their positions.
        """

    def shift(self, delta: int, sequence: int | None = None, *, begin: int = 0, end: int | None = None) -> None:
        """
        Moves the positions of tokens begin .. end - 1, by default of all, of one sequence or of all, by delta, and rotates their keys along. Keys that are stored unrotated stay as they are; packed positions of MRope are refused.
        """

    def clear(self) -> None:
        """Forgets all tokens; keeps the memory."""

    def fork(self) -> KvCache:
        """
        An independent copy, with memory of its own: one pass over the cached tokens.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...

    def __len__(self) -> int: ...

    def length(self, b: int = 0) -> int:
        """Tokens of one sequence."""

    def positions(self, b: int = 0) -> list[int]:
        """Positions of the tokens of one sequence."""

    @property
    def capacity(self) -> int: ...

    @property
    def table_id(self) -> int:
        """What rotated the keys: 0 if nothing did."""

    @property
    def keys(self) -> Any:
        """
        A copy of the stored keys, [B, Hkv, size, D]; of int8 the float32 numbers that they stand for.
        """

    @property
    def values(self) -> Any:
        """
        A copy of the stored values, [B, Hkv, size, Dv]; of int8 the float32 numbers that they stand for.
        """

@overload
def decode_pages(q: _ArrayT, k_pages: _Array, v_pages: _Array, block_table: Any, lengths: Any, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[False] = False, return_weights: Literal[False] = False, threads: int | None = None) -> _ArrayT:
    """
    Attends q [B, Hq, Lq, D], unrotated, over tokens in blocks that the caller owns: k_pages [blocks, Hkv, block_size, D] and v_pages [blocks, Hkv, block_size, Dv], of any strides, which are read where they lie.

    Token i of sequence b is row i % block_size of block block_table[b, i // block_size], and its position is i. block_table: integers [B, n]; entries beyond lengths [B] are not looked at. Keys in the pages are rotated already, as KvCache stores them (not for XPos, nor with a key table). The result is that of KvCache.decode, to the bit.
    """

@overload
def decode_pages(q: _ArrayT, k_pages: _Array, v_pages: _Array, block_table: Any, lengths: Any, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[False] = False, return_weights: Literal[True], threads: int | None = None) -> tuple[_ArrayT, _ArrayT]: ...

@overload
def decode_pages(q: _ArrayT, k_pages: _Array, v_pages: _Array, block_table: Any, lengths: Any, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[True], return_weights: Literal[False] = False, threads: int | None = None) -> tuple[_ArrayT, _ArrayT]: ...

@overload
def decode_pages(q: _ArrayT, k_pages: _Array, v_pages: _Array, block_table: Any, lengths: Any, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: Literal[True], return_weights: Literal[True], threads: int | None = None) -> tuple[_ArrayT, _ArrayT, _ArrayT]: ...

@overload
def decode_pages(q: _ArrayT, k_pages: _Array, v_pages: _Array, block_table: Any, lengths: Any, encoding: Encoding | None = None, *, causal: bool = True, scale: float | None = None, window: int | tuple[int, int] | None = None, chunk: int | None = None, softcap: float | None = None, q_positions: Any | None = None, by_index: bool = False, mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any | None = None, pair_bias: Any | None = None, sinks: Any | None = None, table_queries: Any | None = None, return_lse: bool = False, return_weights: bool = False, threads: int | None = None) -> _ArrayT | tuple[_ArrayT, ...]: ...

class LayerPosition:
    """
    The positions of one layer of a model, from from_config. It may be passed wherever an encoding is; options() has the rest of the call:

        locus.attention(q, k, v, layer.encoding, **layer.options())
    """

    def options(self, q_len: int | None = None, k_len: int | None = None, *, q_positions: Any | None = None, k_positions: Any | None = None) -> dict[str, Any]:
        """
        causal, scale, window and softcap, as keywords of attention. A layer that attends in chunks (Llama 4) needs the lengths of the call, or its positions, which are then among the keywords; chunks become segments, or a window where all queries have one position.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...

    @property
    def encoding(self) -> Encoding:
        """What acts inside attention."""

    @property
    def input(self) -> Encoding:
        """What is added to x."""

    @property
    def needs(self) -> list[Any]:
        """Tensors of the checkpoint that the schemes are made of."""

    @property
    def rotary(self) -> Any:
        """What rotates: layout, base, scaling, frequencies; None if nothing."""

    @property
    def words(self) -> str:
        """The scheme in one line."""

    @property
    def scheme(self) -> str:
        """The scheme's name in the list of encodings."""

    @property
    def model_type(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def part(self) -> str: ...

    @property
    def other_part(self) -> bool:
        """Whether the model has an encoder and a decoder."""

    @property
    def layer_type(self) -> str: ...

    @property
    def layer(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def q_heads(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def value_dim(self) -> int: ...

    @property
    def model_dim(self) -> int: ...

    @property
    def chunk(self) -> int:
        """Tokens see only their own chunk of so many; 0 is all."""

    @property
    def attends(self) -> bool:
        """False for state spaces, linear attention, convolutions."""

    @property
    def sinks(self) -> str:
        """The tensor that goes into attention(sinks=); empty: none."""

    @property
    def scale(self) -> float: ...

    @property
    def softmax_factor(self) -> float: ...

    @property
    def trained_length(self) -> int: ...

    @property
    def warnings(self) -> list[str]: ...

    def __repr__(self) -> str: ...

def from_config(config: Any, layer: int = 0, *, tensors: Any | None = None, part: str | None = None, lenient: bool = False, length: int = 0, grid: tuple[int, int] = (0, 0), angles: str = 'exact') -> LayerPosition:
    """
    The positions of a layer of a real model, exactly, or a ValueError.

    config: a Hugging Face config.json (path, folder or dict) or a .gguf file. A key that nothing uses and that is not known to be harmless is an error naming it; lenient makes it a warning. tensors: for schemes made of weights (learned tables, T5's bias), a .safetensors or .gguf file, or a dict such as a state_dict. part: "encoder" or "decoder" where a model has both, or the key of one of its configs ("vision_config"). length: positions that tables made from sinusoids must serve. grid: (height, width) of an image in patches, if not as trained. angles: "float32" for parity with the arithmetic of Hugging Face.
    """

def convert_layout(weight: _ArrayT, heads: int, head_dim: int, *, from_layout: str, to_layout: str, rotary_dim: int | None = None, first_channel: int = 0) -> _ArrayT:
    """
    The rows of a q or k projection [heads * head_dim, in] (or its bias) reordered from one pair layout to the other. k has its own number of heads where heads are grouped.
    """

def families() -> list[dict[str, Any]]:
    """The model families that from_config knows."""
