// How an attention call is described: masks, positions, scale.
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

// Query position m sees key positions n with  -right <= m - n <= left.
struct Window {
  int64_t left = 0;
  int64_t right = 0;
};

// Which pairs of a query and a key may see each other: one byte per pair, 0 for
// no, [B or 1, Hq or 1, Lq or 1, Lk] in any strides. The bytes are the caller's
// and must outlive the call.
struct PairMask {
  const uint8_t* data = nullptr;  // nullptr: all may
  std::array<int64_t, 4> shape = {};
  std::array<int64_t, 4> strides = {};  // in bytes

  bool defined() const { return data != nullptr; }
  // The byte of a pair.
  const uint8_t* At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const auto step = [this](size_t axis, int64_t at) {
      return shape[axis] == 1 ? 0 : at * strides[axis];
    };
    return data + step(0, b) + step(1, h) + step(2, i) + step(3, j);
  }
};

// Dropout of attention weights: each becomes 0 with probability `rate`, else it
// is divided by 1 - rate. What is dropped follows from the seed and from the
// numbers of sequence, head, query and key alone: the same in the backward
// pass, on any number of threads and on any machine.
struct Dropout {
  double rate = 0.0;  // in [0, 1), to 32 bits
  uint64_t seed = 0;
  // How tokens are numbered: query i is number first_query + i * query_stride
  // of the sequence, and keys likewise. So a part of a sequence drops what the
  // whole does.
  int64_t first_query = 0;
  int64_t first_key = 0;
  int64_t query_stride = 1;
  int64_t key_stride = 1;
};

// Everything about a call that is not a term. Spans and tensors must outlive
// the call.
//
// A key is visible to a query if all of this holds: its index is below the key
// length of its sequence, both have the same segment, the mask lets it through,
// and it either belongs to the prefix, or its position is not after the query's
// (causal), lies in the same chunk, and the offset in the window.
struct AttentionOptions {
  bool causal = false;
  // Causality and window compare indices instead of positions: key j and query
  // i + max(keys - q_len, 0), which are the positions of a call without any.
  // For packed positions of M-RoPE, where those of a video may pass the text
  // that follows. Biases and tables then need positions that rise.
  bool by_index = false;
  // What an encoding is lowered with; empty: its own, usually
  // 1 / sqrt(head_dim). Terms carry their scale: in a call with Terms another
  // one here is an error.
  std::optional<double> scale = {};
  std::optional<Window> window = {};
  // Tokens see only those of their own chunk of so many positions, counted from
  // position 0; empty: of all.
  std::optional<int64_t> chunk = {};
  // cap * tanh(s / cap); empty: none.
  std::optional<double> softcap = {};

  // Positions per token: [batch * length], or [length] for every sequence
  // alike. Empty: keys count from 0 and queries end where the keys of their
  // sequence end, that is k_pos = j and q_pos = i + max(keys - q_len, 0), with
  // keys = key_lengths[b], or k_len without those.
  std::span<const int64_t> q_positions = {};
  std::span<const int64_t> k_positions = {};
  // Only the first key_lengths[b] keys of a sequence exist: the result is that
  // of a call on this sequence with its keys cut off there. Empty: all.
  std::span<const int64_t> key_lengths = {};
  // Packed sequences: tokens see only tokens of the same segment. Sizes as for
  // positions; both or neither.
  std::span<const int64_t> q_segments = {};
  std::span<const int64_t> k_segments = {};

  // The first prefix_lengths[b] keys of a sequence are visible to all of its
  // queries, those before them as well: [batch]. Empty: none.
  std::span<const int64_t> prefix_lengths = {};
  PairMask mask = {};

  // What joins the scores besides the terms; all are absent by default. Scores
  // get K[b, h, j] and M[b, h, i, j], before the soft cap and not scaled:
  Tensor key_bias = {};   // K [B or 1, Hq or 1, Lk]
  Tensor pair_bias = {};  // M [B or 1, Hq or 1, Lq or 1, Lk]
  // A logit z_h that takes part in the softmax of its head and has no value:
  // [Hq]. lse counts it. Results that Merge joins must come without sinks; see
  // AddSinks.
  Tensor sinks = {};
  // The left operand of the query table, r_i.Tq[b], in the place of q:
  // [B, Hq, Lq, R], for a table of rows [R].
  Tensor table_queries = {};
  Dropout dropout = {};

  // Threads to use; 0: as many as the machine has. Results do not depend on it.
  int threads = 0;
  // Also return lse. The backward pass and Merge need it.
  bool return_lse = false;
  // Also return the weights that values are summed with: N x N numbers, which
  // attention itself never needs at once.
  bool return_weights = false;
};

// Positions and segments of sequences packed end to end: lengths {3, 2} give
// positions {0, 1, 2, 0, 1} and segments {0, 0, 0, 1, 1}.
struct PackedTokens {
  std::vector<int64_t> positions = {};
  std::vector<int64_t> segments = {};
};
PackedTokens Pack(std::span<const int64_t> lengths);

// What an encoding is lowered for when it is given to a call with these tensors
// and options. Throws Error if they do not fit each other.
Shape CallShape(const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionOptions& options = {});

struct AttentionResult {
  Tensor out = {};  // [B, Hq, Lq, Dv], of the type of q
  Tensor lse = {};  // [B, Hq, Lq] f32; absent unless asked for
  // [B, Hq, Lq, Lk] f32, after dropout; absent unless asked for.
  Tensor weights = {};
};

// Fused attention: q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv] of
// f32, bf16 or f16, any strides, all of one type. Accumulates in f32. Memory
// beyond inputs and outputs grows with the length, not its square. A query that
// sees no key yields zeros and lse = -inf.
AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Terms& terms,
                          const AttentionOptions& options = {});

// The same into tensors that the caller keeps from call to call, so that a
// short call need not allocate: result.out and, with return_lse, result.lse,
// contiguous, in the shapes and types of AttentionResult. They must not share
// memory with q, k or v.
void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Terms& terms, const AttentionOptions& options,
                   AttentionResult& result);

// Both with an encoding, which is lowered for the call. An encoding of the
// input has acted on x before the projections and adds nothing here.
class Encoding;
AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Encoding& encoding,
                          const AttentionOptions& options = {});
void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Encoding& encoding, const AttentionOptions& options,
                   AttentionResult& result);

// Joins the results of the same queries over two disjoint sets of keys: what
// one call over all of them gives. Both need lse. So attention may be split
// over keys, cached or on other machines, and put together in any order. Where
// neither saw a key the result is zeros and lse = -inf; a NaN stays one.
// threads = 0: all of the machine's; results do not depend on it.
AttentionResult Merge(const AttentionResult& a, const AttentionResult& b,
                      int threads = 0);

// The same result with sinks [Hq] beside the keys: for results that Merge has
// joined. Needs lse.
AttentionResult AddSinks(const AttentionResult& result, const Tensor& sinks,
                         int threads = 0);

// What a backward pass is asked for beside the gradients of out.
struct BackwardOptions {
  // The gradient of lse, [B, Hq, Lq]; absent: none.
  Tensor d_lse = {};
  // Whether the pair bias gets a gradient: as many numbers as it has.
  bool pair_bias = false;
};

// The gradients of a call's operands, in the shapes and types of these; absent
// where the operand is.
struct OperandGrads {
  Tensor key_bias = {};
  Tensor pair_bias = {};  // if asked for
  Tensor sinks = {};
  Tensor table_queries = {};
};

struct AttentionGrads {
  Tensor d_q;  // in the shapes and types of q, k and v
  Tensor d_k;
  Tensor d_v;
  OperandGrads operands = {};
  TermGrads terms;
};

// Gradients of sum(d_out * out) + sum(d_lse * lse), given what Attention
// returned with return_lse. The same bits for any number of threads. Tables
// over a 2-D window or with a special token are refused; a bias may have both.
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
