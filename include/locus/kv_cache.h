// A cache of keys and values, for decoding token by token.
#ifndef LOCUS_KV_CACHE_H_
#define LOCUS_KV_CACHE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace LOCUS_API locus {

class Encoding;

struct KvCacheConfig {
  int64_t batch = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
  int64_t value_dim = 0;  // 0: head_dim
  // Storage: f32, bf16, f16 or i8. Arithmetic is in f32.
  //
  // i8: every row of k and v (one head of one token) is stored, after the
  // rotation, as integers q and one float scale s = max |x| / 127, with
  // q = x / s rounded to nearest even. |x - q s| is at most max |x| / 254 over
  // the row (2^-127 for rows below 1e-36), up to float rounding. A row with a
  // NaN or an infinity reads back as all NaN, which reaches only the queries
  // that see it. Where Decode multiplies integers, it rounds queries and
  // weights to int16.
  DType dtype = DType::kF32;
  // Tokens to allocate for up front; the cache grows as needed.
  int64_t capacity = 0;
  // Query heads of the encodings given to Append and Rerotate; 0: kv_heads.
  int64_t q_heads = 0;
  // Values are the first value_dim channels of the keys (multi-head latent
  // attention: 512 of 576): only keys are stored, and Append takes no v. If
  // stored keys are rotated, the rotated channels must come after those.
  bool values_in_keys = false;
};

// How tokens are appended. Spans must outlive the call.
struct AppendOptions {
  // Per token: [n], or [batch * n]. Empty: each sequence begins at 0 and
  // continues as text does (Rotation::After): one after its last token, and for
  // packed positions of M-RoPE one above the largest coordinate cached.
  std::span<const int64_t> positions = {};
  // Only the first lengths[b] tokens of sequence b are appended, so that the
  // sequences of a batch may have different lengths. Empty: all n.
  std::span<const int64_t> lengths = {};
  int threads = 0;  // 0: UsableCpus()
};

// How queries attend over a cache. Fields mean what they do in
// AttentionOptions, except that `causal` defaults to true, since the queries
// are tokens of the cached text. There are no k_positions: the cache has them.
// Spans must outlive the call.
struct DecodeOptions {
  bool causal = true;  // false: queries also see later cached tokens
  bool by_index = false;
  std::optional<double> scale = {};
  std::optional<Window> window = {};
  std::optional<int64_t> chunk = {};
  std::optional<double> softcap = {};
  std::span<const int64_t> q_positions = {};
  std::span<const int64_t> key_lengths = {};
  std::span<const int64_t> q_segments = {};
  std::span<const int64_t> k_segments = {};
  std::span<const int64_t> prefix_lengths = {};
  PairMask mask = {};
  Tensor key_bias = {};
  Tensor pair_bias = {};
  Tensor sinks = {};
  Tensor table_queries = {};
  int threads = 0;
  bool return_lse = false;
  bool return_weights = false;

  // Conversion from and to the options of an attention call; `causal` is
  // copied, not defaulted. Throws Error if `options` has k_positions.
  static DecodeOptions From(const AttentionOptions& options);
  AttentionOptions ForAttention() const;
};

// Rows as a cache stores them, [B, H, capacity, D], and, for i8 only, their
// scales, [B, H, capacity, 1].
struct CachedRows {
  Tensor rows = {};
  Tensor scales = {};  // undefined unless i8
};

// A growing cache. Keys are rotated once, when they are appended, and stored
// rotated. Rotations with a decay (xPos), which acts on pairs of tokens, and
// terms with a key table, which needs unrotated keys, are exceptions: keys are
// then stored unrotated and rotated whenever they are read.
//
// Decode may run on several threads at once, but not while another member
// changes the cache. A member that throws, std::bad_alloc included, leaves the
// cache unchanged.
class KvCache {
 public:
  explicit KvCache(const KvCacheConfig& config);
  // Move-only, since copies would share their storage; see Fork.
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  // Appends unrotated keys k [B, Hkv, n, D] and values v [B, Hkv, n, Dv] of any
  // element type and strides; with values_in_keys, v must be undefined. Throws
  // Error if the cached keys were rotated by a different rotation.
  void Append(const Tensor& k, const Tensor& v, const Terms& terms,
              const AppendOptions& options = {});
  void Append(const Tensor& k, const Tensor& v, const Encoding& encoding,
              const AppendOptions& options = {});

  // Attention of unrotated queries q [B, Hq, Lq, D] of f32, bf16 or f16 over
  // the cached tokens: the rows that Attention over the full sequence returns
  // for them, causal by default. `out` has the type of q. Without q_positions
  // the last query is aligned with the last key of its sequence (key_lengths
  // considered), as in Attention: query i is token max(keys - Lq, 0) + i, and
  // tokens past the last cached one continue as text.
  AttentionResult Decode(const Tensor& q, const Terms& terms,
                         const DecodeOptions& options = {}) const;
  AttentionResult Decode(const Tensor& q, const Encoding& encoding,
                         const DecodeOptions& options = {}) const;

  // Rotates the cached keys from the current rotation to another,
  // K' = R_new R_old^-1 K, for rotations that change with the length (dynamic
  // NTK, LongRoPE): angles in float64, one product in float32. f32 keys end up
  // within two roundings of keys appended under the new rotation; bf16, f16 and
  // i8 keys are rounded to storage again each time, i8 by another
  // max |x| / 254.
  void Rerotate(const Rotation& rotation);
  // The same for an encoding, lowered for sequences of `length` tokens, or of
  // the cached length if that is longer.
  void Rerotate(const Encoding& encoding, int64_t length = 0);

  // The edits below apply to one sequence, or by default to all.
  using Sequence = std::optional<int64_t>;
  // Keeps the first n tokens; if there are fewer, keeps all.
  void Truncate(int64_t n, Sequence sequence = {});
  // Removes tokens [begin, end), counted from 0 in the order of appending. The
  // others keep their positions; later ones move down in memory.
  void Evict(int64_t begin, int64_t end, Sequence sequence = {});
  // Adds `delta` to the positions of tokens [begin, end), by default of all,
  // and rotates their keys from the old position to the new one as Rerotate
  // does, with the same rounding. Keys that are stored unrotated are left
  // alone. Throws Error for packed positions of M-RoPE, which hold several
  // coordinates.
  void Shift(int64_t delta, Sequence sequence = {}, int64_t begin = 0,
             std::optional<int64_t> end = {});
  // Removes all tokens and forgets the rotation; keeps the memory.
  void Clear();
  // An independent copy with its own memory, of the same capacity.
  KvCache Fork() const;

  // Number of tokens of the longest sequence, and of sequence b.
  int64_t size() const;
  int64_t size(int64_t b) const;
  int64_t capacity() const { return k_.rows.size(2); }
  const KvCacheConfig& config() const { return config_; }
  // Positions of the tokens of one sequence.
  std::span<const int64_t> positions(int64_t b = 0) const;
  // Views of the stored rows, [B, Hkv, size, D] and [B, Hkv, size, Dv], and of
  // the scales of i8, [B, Hkv, size, 1], which are undefined for other types.
  // Views become stale with the next change of the cache.
  Tensor keys() const { return View(k_.rows); }
  Tensor values() const { return View(v_.rows); }
  Tensor key_scales() const { return View(k_.scales); }
  Tensor value_scales() const { return View(v_.scales); }
  // Rotation::Id() of the rotation of the keys, or 0 if there is none.
  uint64_t table_id() const { return rotation_ ? rotation_->Id() : 0; }

 private:
  struct Prepared;
  Tensor View(const Tensor& x) const;
  Prepared Prepare(const Tensor& q, const DecodeOptions& options) const;
  // Checks the options and returns the positions of n new tokens per sequence.
  std::vector<std::vector<int64_t>> NewPositions(
      int64_t n, const AppendOptions& options) const;
  // A shape that lowers an encoding just for its rotation.
  Shape ShapeOf(int64_t first_position, int64_t last_position) const;
  // The same for tokens at these positions and all cached ones.
  Shape ShapeWith(const std::vector<std::vector<int64_t>>& positions) const;
  // Where text continues after these tokens of the cache.
  TextPositions After(std::span<const int64_t> positions) const;
  void Grow(int64_t tokens);
  // Recomputes alike_ and counting_ after tokens were removed or moved.
  void Recount();
  // The sequences that an edit applies to, [first, second).
  std::pair<int64_t, int64_t> Chosen(Sequence sequence) const;
  // Positions of tokens [begin, end) of a sequence; throws Error if it is
  // shorter.
  std::span<const int64_t> Range(int64_t b, int64_t begin, int64_t end) const;
  void CheckTable(const Terms& terms, const char* what) const;
  // Throws Error if values are stored in the keys and this rotation of the
  // stored keys (nullptr: none) would rotate value channels.
  void CheckValueChannels(const Rotation* stored) const;
  // Whether keys are stored rotated.
  bool KeysRotated() const;
  void RotateTo(std::optional<Rotation> rotation, bool with_key_table);

  KvCacheConfig config_;
  CachedRows k_, v_;
  std::vector<std::vector<int64_t>> positions_;  // one list per sequence
  bool alike_ = true;     // every sequence has the same positions
  bool counting_ = true;  // every token's position is its index
  std::optional<Rotation> rotation_;
  bool with_key_table_ = false;  // the terms also have a key table
};

// A paged cache: keys and values in blocks that the caller owns. Token i of
// sequence b is row i % block_size of block block_table[b * n + i / block_size]
// for n blocks per sequence, and its position is i. Table entries beyond the
// length of a sequence are ignored.
struct KvPages {
  Tensor k = {};  // [blocks, Hkv, block_size, D], f32, bf16 or f16, any strides
  Tensor v = {};  // [blocks, Hkv, block_size, Dv]
  std::span<const int64_t> block_table = {};  // [B * n]
  std::span<const int64_t> lengths = {};      // [B] tokens
};

// KvCache::Decode over pages: queries q [B, Hq, Lq, D], results with the same
// bits. Pages are read in place. Keys must be stored as a KvCache stores them:
// already rotated, unless the rotation has a decay (xPos) or the terms have a
// key table. options.key_lengths must be empty: pages.lengths takes its place.
AttentionResult DecodePages(const Tensor& q, const KvPages& pages,
                            const Terms& terms,
                            const DecodeOptions& options = {});
AttentionResult DecodePages(const Tensor& q, const KvPages& pages,
                            const Encoding& encoding,
                            const DecodeOptions& options = {});

}  // namespace locus

#endif  // LOCUS_KV_CACHE_H_
