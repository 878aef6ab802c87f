// Fused attention, forward and backward, and the options of a call: masks,
// positions, scale, operands.
#ifndef LOCUS_ATTENTION_H_
#define LOCUS_ATTENTION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "locus/api.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace LOCUS_API locus {

// A query at position m sees keys at positions n with -right <= m - n <= left.
struct Window {
  int64_t left = 0;
  int64_t right = 0;
};

// A mask with one byte per (query, key) pair, 0 for masked:
// [B or 1, Hq or 1, Lq or 1, Lk], any strides. The caller owns the bytes, which
// must outlive the call.
struct PairMask {
  const uint8_t* data = nullptr;  // nullptr: nothing is masked
  std::array<int64_t, 4> shape = {};
  std::array<int64_t, 4> strides = {};  // in bytes

  bool defined() const { return data != nullptr; }
  // The byte of one pair; axes of size 1 are broadcast.
  const uint8_t* At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const auto step = [this](size_t axis, int64_t at) {
      return shape[axis] == 1 ? 0 : at * strides[axis];
    };
    return data + step(0, b) + step(1, h) + step(2, i) + step(3, j);
  }
};

// Dropout of attention weights: each becomes 0 with probability `rate` and is
// divided by 1 - rate otherwise. What is dropped depends only on the seed and
// on the indices of sequence, head, query and key: it is the same in the
// backward pass, for any number of threads and on any machine.
struct Dropout {
  double rate = 0.0;  // in [0, 1), rounded to a multiple of 2^-32
  uint64_t seed = 0;
  // Indices of tokens in the full sequence: query i has index
  // first_query + i * query_stride, and keys likewise, so that a shard of a
  // sequence drops the same weights as the full sequence.
  int64_t first_query = 0;
  int64_t first_key = 0;
  int64_t query_stride = 1;
  int64_t key_stride = 1;
};

// Everything about a call that is not a term. Spans and tensors must outlive
// the call.
//
// A key is visible to a query if all of the following hold: its index is below
// the key length of its sequence, both are in the same segment, `mask` does not
// mask the pair, and the key either belongs to the prefix or satisfies causal
// order (its position is not after the query's), chunk and window.
struct AttentionOptions {
  bool causal = false;
  // Causality and window compare indices instead of positions: key j and query
  // i + max(keys - q_len, 0), the default positions below. Meant for packed
  // positions of M-RoPE, where those of a video may exceed those of the text
  // that follows. Biases and tables then require increasing positions.
  bool by_index = false;
  // The scale that an encoding is lowered with; empty: the encoding's default,
  // usually 1 / sqrt(head_dim). Terms carry their own scale: for a call with
  // Terms, a different value here is an error.
  std::optional<double> scale = {};
  std::optional<Window> window = {};
  // Attention within chunks of this many positions, counted from position 0;
  // empty: no chunks.
  std::optional<int64_t> chunk = {};
  // Soft cap: s becomes cap * tanh(s / cap); empty: none.
  std::optional<double> softcap = {};

  // Positions per token: [batch * length], or [length] shared by all sequences.
  // Empty: keys count from 0, and the last query is aligned with the last key
  // of its sequence, that is k_pos = j and q_pos = i + max(keys - q_len, 0),
  // where keys = key_lengths[b], or k_len without key_lengths.
  std::span<const int64_t> q_positions = {};
  std::span<const int64_t> k_positions = {};
  // Number of valid keys per sequence, [batch]: the result is that of a call
  // whose keys are truncated to key_lengths[b]. Empty: all keys are valid.
  std::span<const int64_t> key_lengths = {};
  // Packed sequences: tokens see only tokens of the same segment. Sizes as for
  // positions; give both or neither.
  std::span<const int64_t> q_segments = {};
  std::span<const int64_t> k_segments = {};

  // Prefix-LM: the first prefix_lengths[b] keys of a sequence are visible to
  // all of its queries, causal or not: [batch]. Empty: none.
  std::span<const int64_t> prefix_lengths = {};
  PairMask mask = {};

  // Operands that join the softmax beside the terms, all absent by default.
  // Both biases are added to the scores unscaled, before the soft cap:
  Tensor key_bias = {};   // K [B or 1, Hq or 1, Lk]
  Tensor pair_bias = {};  // M [B or 1, Hq or 1, Lq or 1, Lk]
  // Attention sinks, [Hq]: a logit z_h that joins the softmax of its head but
  // has no value. lse includes it. Partial results for Merge must be computed
  // without sinks; see AddSinks.
  Tensor sinks = {};
  // The left operand r_i of the query table, r_i.Tq[b], in place of q:
  // [B, Hq, Lq, R], for a table with rows [R].
  Tensor table_queries = {};
  Dropout dropout = {};

  // Number of threads; 0: UsableCpus(). Results do not depend on it.
  int threads = 0;
  // Also return lse, which the backward pass and Merge need.
  bool return_lse = false;
  // Also return the attention weights: [B, Hq, Lq, Lk] numbers, which the
  // kernels otherwise never materialise.
  bool return_weights = false;
};

// Positions and segments of sequences packed end to end: lengths {3, 2} give
// positions {0, 1, 2, 0, 1} and segments {0, 0, 0, 1, 1}.
struct PackedTokens {
  std::vector<int64_t> positions = {};
  std::vector<int64_t> segments = {};
};
PackedTokens Pack(std::span<const int64_t> lengths);

// The Shape that a call with these tensors and options lowers its encoding for.
// Throws Error if tensors and options do not match.
Shape CallShape(const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionOptions& options = {});

struct AttentionResult {
  Tensor out = {};  // [B, Hq, Lq, Dv], of the type of q
  Tensor lse = {};  // [B, Hq, Lq] f32; absent unless asked for
  // [B, Hq, Lq, Lk] f32, after dropout; absent unless asked for.
  Tensor weights = {};
};

// Fused attention: q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv], all
// three f32, bf16 or f16, any strides. Accumulates in f32. Scratch memory grows
// linearly with the length. A query that sees no key yields zeros and
// lse = -inf. Throws Error if operands, terms and options do not match.
AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Terms& terms,
                          const AttentionOptions& options = {});

// The same into preallocated tensors, so that short calls need not allocate and
// results can be laid out as their reader wants: result.out of any strides with
// contiguous rows, such as [B, Lq, Hq, Dv] in memory, and, with return_lse,
// result.lse, contiguous, with the shapes and types given in AttentionResult.
// They must not overlap q, k or v.
void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Terms& terms, const AttentionOptions& options,
                   AttentionResult& result);

// Both for an encoding, which is lowered for the call. Encodings of the input
// act on x before the projections, so they add nothing here.
class Encoding;
AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Encoding& encoding,
                          const AttentionOptions& options = {});
void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Encoding& encoding, const AttentionOptions& options,
                   AttentionResult& result);

// Merges the results of the same queries over two disjoint sets of keys into
// the result over their union. Both need lse. Attention may thus be split over
// keys, across caches or machines, and merged in any order. Where neither saw a
// key the result is zeros and lse = -inf; NaN propagates. threads = 0:
// UsableCpus(); results do not depend on it.
AttentionResult Merge(const AttentionResult& a, const AttentionResult& b,
                      int threads = 0);

// `result` with sinks [Hq] added to its softmax, for merged results. Needs lse.
AttentionResult AddSinks(const AttentionResult& result, const Tensor& sinks,
                         int threads = 0);

// Optional inputs and outputs of a backward pass.
struct BackwardOptions {
  // The gradient of lse, [B, Hq, Lq]; absent: zero.
  Tensor d_lse = {};
  // Whether to compute the gradient of the pair bias, which is as large as it.
  bool pair_bias = false;
  // Preallocated tensors for the gradients of q, k and v, with their shapes and
  // types, of any strides with contiguous rows; absent: allocated, contiguous.
  // They must not overlap the operands of the call.
  Tensor d_q = {}, d_k = {}, d_v = {};
};

// The gradients of a call's operands, with the operands' shapes and types;
// absent where the operand is absent.
struct OperandGrads {
  Tensor key_bias = {};
  Tensor pair_bias = {};  // only with BackwardOptions::pair_bias
  Tensor sinks = {};
  Tensor table_queries = {};
};

struct AttentionGrads {
  Tensor d_q;  // with the shapes and types of q, k and v
  Tensor d_k;
  Tensor d_v;
  OperandGrads operands = {};
  TermGrads terms;
};

// Gradients of sum(d_out * out) + sum(d_lse * lse): d_out [B, Hq, Lq, Dv],
// q, k, v, terms and options as in the forward call, and `forward` its result
// with return_lse. The same bits for any number of threads. Throws Error for
// query, key and value tables over a 2-D window or with a special token; biases
// may have both.
AttentionGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                 const Tensor& k, const Tensor& v,
                                 const AttentionResult& forward,
                                 const Terms& terms,
                                 const AttentionOptions& options = {},
                                 const BackwardOptions& backward = {});

// The same for an encoding, with the gradients of its parameters (see
// encoding.h).
struct EncodingGrads;
EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const AttentionResult& forward,
                                const Encoding& encoding,
                                const AttentionOptions& options = {},
                                const BackwardOptions& backward = {});

}  // namespace locus

#endif  // LOCUS_ATTENTION_H_
