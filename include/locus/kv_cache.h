// Keys and values of the tokens so far, for decoding token by token.
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
  // i8: every row, one head of one token, of k and of v, is stored as integers
  // q and one float s = max |x| / 127, q = x / s rounded to nearest even, after
  // the rotation. |x - q s| is at most max |x| / 254 over the row (rows below
  // 1e-36: 2^-127), up to the rounding of float. A row with a NaN or an
  // infinity is read back as NaN, every channel of it, and spoils only what
  // sees it. Decode rounds queries and weights to int16 where it multiplies
  // integers.
  DType dtype = DType::kF32;
  // Tokens to make room for at once; the cache grows by itself.
  int64_t capacity = 0;
  // Query heads of the encodings given to Append and Rerotate; 0: kv_heads.
  int64_t q_heads = 0;
  // Values are the first value_dim channels of the keys (multi-head latent
  // attention: 512 of 576): only keys are stored, and Append takes no v. A
  // rotation that keys are stored with must lie behind those channels.
  bool values_in_keys = false;
};

// How tokens are appended. Spans must outlive the call.
struct AppendOptions {
  // Per token: [n], or [batch * n]. Empty: each sequence begins at 0 and
  // continues as text does (Rotation::After): by one from its last token, and
  // for packed positions of M-RoPE from the largest coordinate cached.
  std::span<const int64_t> positions = {};
  // Only the first lengths[b] tokens of a sequence are appended: sequences of
  // one batch may be of different lengths. Empty: all n.
  std::span<const int64_t> lengths = {};
  int threads = 0;  // 0: as many as the machine has
};

// How queries attend over a cache: as AttentionOptions says, but causal unless
// asked otherwise, since the queries are tokens of the cached text, and without
// k_positions, which the cache knows. Spans must outlive the call.
struct DecodeOptions {
  bool causal = true;  // false: queries also see the cached tokens after them
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

  // The options of a call, causal or not as they are. Throws Error if they have
  // k_positions.
  static DecodeOptions From(const AttentionOptions& options);
  AttentionOptions ForAttention() const;
};

// Rows as a cache stores them, [B, H, capacity, D], and the scales of those of
// i8, [B, H, capacity, 1].
struct CachedRows {
  Tensor rows = {};
  Tensor scales = {};  // of other types not defined
};

// A growing cache. Keys are stored rotated by the rotation of their encoding,
// once, when they are appended. Under a rotation that acts on pairs of tokens
// (a decay, xPos), and with a key table, which sees unrotated keys, they are
// stored as they came and rotated when they are read.
//
// Not to be changed by one thread while another uses it; Decode may run on many
// at once. What throws, std::bad_alloc included, has changed nothing.
class KvCache {
 public:
  explicit KvCache(const KvCacheConfig& config);
  // Copies would share their storage; Fork makes one that does not.
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  // Adds unrotated keys k [B, Hkv, n, D] and values v [B, Hkv, n, Dv] of any
  // type and strides; with values_in_keys v is not defined. Throws Error if the
  // cached keys were rotated by another table.
  void Append(const Tensor& k, const Tensor& v, const Terms& terms,
              const AppendOptions& options = {});
  void Append(const Tensor& k, const Tensor& v, const Encoding& encoding,
              const AppendOptions& options = {});

  // Attends queries q [B, Hq, Lq, D], unrotated, of f32, bf16 or f16, over
  // everything cached: the rows that Attention over the whole sequence gives
  // for them, causal by default. The result is of the type of q. Without
  // q_positions the queries end where their sequence ends, or where its
  // key length cuts it off, as in Attention: query i is token
  // max(keys - Lq, 0) + i, and tokens past the last cached one continue as
  // text.
  AttentionResult Decode(const Tensor& q, const Terms& terms,
                         const DecodeOptions& options = {}) const;
  AttentionResult Decode(const Tensor& q, const Encoding& encoding,
                         const DecodeOptions& options = {}) const;

  // Rotates the cached keys to another table, K' = R_new R_old^-1 K, for tables
  // that change with the length (dynamic NTK, LongRoPE): angles in float64,
  // one product in float32. Keys of f32 come within two roundings of keys
  // appended under the new table; bf16, f16 and i8 are rounded to storage once
  // more each time, i8 by another max |x| / 254.
  void Rerotate(const Rotation& rotation);
  // The same for an encoding, lowered for sequences of `length` tokens, or for
  // those cached if these reach further.
  void Rerotate(const Encoding& encoding, int64_t length = 0);

  // The changes below act on one sequence, or on all of them without one.
  using Sequence = std::optional<int64_t>;
  // Keeps the first n tokens; n beyond the end keeps all.
  void Truncate(int64_t n, Sequence sequence = {});
  // Removes tokens [begin, end), counted from 0 as they were appended. The
  // others keep their positions; later ones move down in memory.
  void Evict(int64_t begin, int64_t end, Sequence sequence = {});
  // Moves the positions of tokens [begin, end), by default of all, by `delta`,
  // and rotates their keys from the old position to the new one as Rerotate
  // does, with the same rounding. Keys that are stored unrotated stay as they
  // are. Packed positions of M-RoPE, which are more than one number, are
  // refused.
  void Shift(int64_t delta, Sequence sequence = {}, int64_t begin = 0,
             std::optional<int64_t> end = {});
  // Forgets all tokens and the table; keeps the memory.
  void Clear();
  // An independent copy: its own memory of the same capacity, and one pass over
  // the cached tokens to fill it.
  KvCache Fork() const;

  // Tokens of the longest sequence, and of one.
  int64_t size() const;
  int64_t size(int64_t b) const;
  int64_t capacity() const { return k_.rows.size(2); }
  const KvCacheConfig& config() const { return config_; }
  // Positions of the tokens of one sequence.
  std::span<const int64_t> positions(int64_t b = 0) const;
  // Views of the stored tokens, [B, Hkv, size, D] and [B, Hkv, size, Dv], and
  // of the scales of i8, [B, Hkv, size, 1]; of other types these are not
  // defined. Views end with the next Append, and with the cache.
  Tensor keys() const { return View(k_.rows); }
  Tensor values() const { return View(v_.rows); }
  Tensor key_scales() const { return View(k_.scales); }
  Tensor value_scales() const { return View(v_.scales); }
  // What rotated the keys: Rotation::Id(), or 0 if nothing rotates.
  uint64_t table_id() const { return rotation_ ? rotation_->Id() : 0; }

 private:
  struct Prepared;
  Tensor View(const Tensor& x) const;
  Prepared Prepare(const Tensor& q, const DecodeOptions& options) const;
  // Checks the options and gives the positions of n new tokens per sequence.
  std::vector<std::vector<int64_t>> NewPositions(
      int64_t n, const AppendOptions& options) const;
  // A shape to lower an encoding for its rotation alone.
  Shape ShapeOf(int64_t first_position, int64_t last_position) const;
  // The same for these tokens and all that are cached.
  Shape ShapeWith(const std::vector<std::vector<int64_t>>& positions) const;
  // Where text continues after these tokens of the cache.
  TextPositions After(std::span<const int64_t> positions) const;
  void Grow(int64_t tokens);
  // Finds alike_ and counting_ anew after tokens were removed or moved.
  void Recount();
  // The sequences that a change acts on, [first, second).
  std::pair<int64_t, int64_t> Chosen(Sequence sequence) const;
  // Tokens [begin, end) of a sequence; throws Error if it has not got them.
  std::span<const int64_t> Range(int64_t b, int64_t begin, int64_t end) const;
  void CheckTable(const Terms& terms, const char* what) const;
  // Throws Error if keys that carry this rotation, unless nullptr, would rotate
  // the values among their channels.
  void CheckValueChannels(const Rotation* stored) const;
  // Whether the stored keys carry their rotation.
  bool KeysRotated() const;
  void RotateTo(std::optional<Rotation> rotation, bool with_key_table);

  KvCacheConfig config_;
  CachedRows k_, v_;
  std::vector<std::vector<int64_t>> positions_;  // one list per sequence
  bool alike_ = true;     // every sequence has the same positions
  bool counting_ = true;  // every token's position is its index
  std::optional<Rotation> rotation_;
  bool with_key_table_ = false;  // beside a rotation
};

// Keys and values in blocks that the caller owns, as paged engines keep them.
// Token i of sequence b is row i % block_size of block
// block_table[b * n + i / block_size], n blocks per sequence, and its position
// is i. Entries beyond the length of a sequence are not looked at.
struct KvPages {
  Tensor k = {};  // [blocks, Hkv, block_size, D], f32, bf16 or f16, any strides
  Tensor v = {};  // [blocks, Hkv, block_size, Dv]
  std::span<const int64_t> block_table = {};  // [B * n]
  std::span<const int64_t> lengths = {};      // [B] tokens
};

// Attends queries q [B, Hq, Lq, D] over pages as KvCache::Decode does over its
// tokens, with the same bits. Pages are read where they lie. Keys in them are
// as a cache stores them: rotated already by the rotation of the terms, unless
// that decays (xPos) or there is a key table beside it. `lengths` says how many
// keys there are, so options.key_lengths must be empty.
AttentionResult DecodePages(const Tensor& q, const KvPages& pages,
                            const Terms& terms,
                            const DecodeOptions& options = {});
AttentionResult DecodePages(const Tensor& q, const KvPages& pages,
                            const Encoding& encoding,
                            const DecodeOptions& options = {});

}  // namespace locus

#endif  // LOCUS_KV_CACHE_H_
