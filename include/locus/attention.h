// How an attention call is described: masks, positions, scale.
#ifndef LOCUS_ATTENTION_H_
#define LOCUS_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {

// Query position m sees key positions n with  -right <= m - n <= left.
struct Window {
  int64_t left = 0;
  int64_t right = 0;
};

// Everything about a call that is not a term. Spans must outlive the call.
//
// A key is visible to a query if all of this holds: its index is below the key
// length of its sequence, both have the same segment, its position is not after
// the query's (causal), and the offset lies in the window.
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

  // Threads to use; 0: as many as the machine has. Results do not depend on it.
  int threads = 0;
  // Also return lse. The backward pass and Merge need it.
  bool return_lse = false;
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

struct AttentionGrads {
  Tensor d_q;  // in the shapes and types of q, k and v
  Tensor d_k;
  Tensor d_v;
  TermGrads terms;
};

// Gradients of sum(d_out * out), given what Attention returned with
// return_lse. The same bits for any number of threads. Tables over a 2-D window
// or with a special token are refused; a bias may have both.
AttentionGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                 const Tensor& k, const Tensor& v,
                                 const AttentionResult& forward,
                                 const Terms& terms,
                                 const AttentionOptions& options = {});

// The same for an encoding, with the gradients of its parameters (see
// encoding.h).
struct EncodingGrads;
EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const AttentionResult& forward,
                                const Encoding& encoding,
                                const AttentionOptions& options = {});

}  // namespace locus

#endif  // LOCUS_ATTENTION_H_
