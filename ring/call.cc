#include "ring/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "locus/error.h"
#include "locus/rotary.h"
#include "ring/agree.h"
#include "ring/terms_id.h"

namespace locus::ring {
namespace {

// How ids of tokens are given: "" by a rank without tokens, who cannot tell.
std::string Form(std::span<const int64_t> ids, int64_t length) {
  if (length == 0) return "";
  if (ids.empty()) return "none";
  return static_cast<int64_t>(ids.size()) == length ? "one for all sequences"
                                                    : "one a sequence";
}

// The places of what Call reads back from the fields.
enum : size_t { kQPositions, kKPositions, kQSegments, kKSegments };

std::vector<Field> Fields(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Sizes& s, const Encoding& encoding,
                          const Options& options) {
  const AttentionOptions& o = options.attention;
  const auto number = [](auto value) { return fmt::format("{}", value); };
  std::string lengths = "none";
  if (!o.key_lengths.empty()) {
    lengths = fmt::format("{}", fmt::join(o.key_lengths, " "));
  }
  return {
      {"form of q_positions", Form(o.q_positions, s.q_len)},
      {"form of k_positions", Form(o.k_positions, s.k_len)},
      {"form of q_segments", Form(o.q_segments, s.q_len)},
      {"form of k_segments", Form(o.k_segments, s.k_len)},
      {"batch", number(s.batch)},
      {"query heads", number(s.q_heads)},
      {"key heads", number(s.kv_heads)},
      {"head dim", number(s.head_dim)},
      {"value dim", number(s.value_dim)},
      {"element type", fmt::format("{} {} {}", DTypeName(q.dtype()),
                                   DTypeName(k.dtype()), DTypeName(v.dtype()))},
      {"causal", o.causal ? "yes" : "no"},
      {"scale", o.scale ? number(*o.scale) : "the encoding's own"},
      {"window", o.window ? fmt::format("{} back, {} ahead", o.window->left,
                                        o.window->right)
                          : "none"},
      {"softcap", o.softcap ? number(*o.softcap) : "none"},
      {"key lengths", lengths},
      {"sharding", std::string(ShardingName(options.sharding))},
      {"encoding", std::string(encoding.Name())},
      {"parameters of the encoding",
       fmt::format("numbers {:016x}", ParamsId(encoding.Params()))},
  };
}

// The sizes of this rank, after every check that needs no other rank.
Sizes CheckLocal(const Tensor& q, const Tensor& k, const Tensor& v,
                 AttentionOptions options) {
  const auto lengths = options.key_lengths;
  options.key_lengths = {};     // they count the tokens of all ranks
  CallShape(q, k, v, options);  // checks that they fit each other
  const Sizes s{.batch = q.size(0),
                .q_heads = q.size(1),
                .kv_heads = k.size(1),
                .q_len = q.size(2),
                .k_len = k.size(2),
                .head_dim = q.size(3),
                .value_dim = v.size(3)};
  if (options.by_index) {
    throw Error("masks of a ring go by position, not by_index");
  }
  if (q.dtype() == DType::kF64 || q.dtype() != k.dtype() ||
      q.dtype() != v.dtype()) {
    throw Error(fmt::format(
        "q, k and v must be all f32, all bf16 or all f16, got {}, {} and {}",
        q.Describe(), k.Describe(), v.Describe()));
  }
  if (!lengths.empty() && static_cast<int64_t>(lengths.size()) != s.batch) {
    throw Error(fmt::format("key_lengths must have {} entries, got {}", s.batch,
                            lengths.size()));
  }
  return s;
}

// The pieces of every rank, given how many tokens each holds.
std::vector<std::vector<Piece>> Pieces(std::string_view what,
                                       const std::vector<int64_t>& lengths,
                                       int64_t total, Sharding sharding) {
  std::vector<std::vector<Piece>> ranks;
  int64_t first = 0;
  const int count = static_cast<int>(lengths.size());
  for (int r = 0; r < count; ++r) {
    const int64_t length = lengths[static_cast<size_t>(r)];
    std::vector<Chunk> chunks = {{.first = first, .count = length}};
    if (sharding != Sharding::kContiguous) {
      chunks = Shard(sharding, total, r, count);
    }
    std::vector<Piece> pieces;
    int64_t begin = 0;
    for (const Chunk& chunk : chunks) {
      pieces.push_back({.tokens = chunk, .begin = begin});
      begin += chunk.count;
    }
    if (begin != length) {
      throw Error(fmt::format(
          "{} sharding of {} {} over {} ranks gives rank {} {}, it holds {}",
          ShardingName(sharding), total, what, count, r, begin, length));
    }
    first += length;
    ranks.push_back(std::move(pieces));
  }
  return ranks;
}

int64_t Total(const std::vector<int64_t>& lengths) {
  int64_t total = 0;
  for (int64_t length : lengths) total += length;
  return total;
}

// Extreme positions of a rank: of each piece over the batch, and of each
// sequence over the pieces (keys past their length left out).
struct Extremes {
  std::vector<Range> pieces;
  std::vector<Range> sequences;
};

// `begins` are the positions of token 0 where positions are not given, one for
// all sequences or one for each.
Extremes FindExtremes(const std::vector<Piece>& pieces, const TokenIds& ids,
                      std::span<const int64_t> begins,
                      std::span<const int64_t> key_lengths) {
  Extremes extremes;
  extremes.sequences.resize(static_cast<size_t>(ids.batch));
  for (const Piece& piece : pieces) {
    Range all;
    for (int64_t b = 0; b < ids.batch; ++b) {
      const auto at = static_cast<size_t>(b);
      const Chunk& t = piece.tokens;
      const int64_t count =
          key_lengths.empty() ? t.count : CountBefore(t, key_lengths[at]);
      Range range;
      if (count > 0 && ids.values.empty()) {
        const int64_t first = begins[begins.size() == 1 ? 0 : at] + t.first;
        range.Add(first);
        range.Add(first + (count - 1) * t.stride);
      }
      const int64_t step = ids.PerSequence() ? ids.length : 0;
      for (int64_t i = 0; i < count && !ids.values.empty(); ++i) {
        range.Add(ids.values[static_cast<size_t>(b * step + piece.begin + i)]);
      }
      all.Add(range);
      extremes.sequences[at].Add(range);
    }
    extremes.pieces.push_back(all);
  }
  return extremes;
}

Range SegmentsOf(const Piece& piece, const TokenIds& ids) {
  Range range;
  for (int64_t id :
       ids.values.empty() ? std::vector<int64_t>{} : ids.Of(piece)) {
    range.Add(id);
  }
  return range;
}

// Fills positions and segments of every rank's pieces; returns the extreme
// positions of each sequence over all ranks.
std::vector<Range> ShareRanges(const Group& group,
                               std::vector<std::vector<Piece>>& pieces,
                               const Extremes& mine, const TokenIds& segments) {
  std::vector<int64_t> numbers;
  const auto add = [&numbers](const Range& range) {
    numbers.push_back(range.lo);
    numbers.push_back(range.hi);
  };
  const auto& own = pieces[static_cast<size_t>(group.rank())];
  for (size_t n = 0; n < own.size(); ++n) {
    add(mine.pieces[n]);
    add(SegmentsOf(own[n], segments));
  }
  for (const Range& range : mine.sequences) add(range);
  std::vector<Range> sequences(mine.sequences.size());
  const auto gathered = GatherNumbers(group, numbers);
  for (size_t r = 0; r < gathered.size(); ++r) {
    const int64_t* at = gathered[r].data();
    const auto next = [&at] {
      const Range range{.lo = at[0], .hi = at[1]};
      at += 2;
      return range;
    };
    for (Piece& piece : pieces[r]) {
      piece.positions = next();
      piece.segments = next();
    }
    for (Range& range : sequences) range.Add(next());
  }
  return sequences;
}

// Collective. Whether positions rise from token to token of each sequence, and
// of each of its segments, through the tokens of all ranks: the first
// `lengths[b]` of a sequence.
bool Rise(const Group& group, const std::vector<std::vector<Piece>>& pieces,
          const TokenIds& positions, const TokenIds& segments,
          std::span<const int64_t> lengths) {
  const int64_t total = std::ranges::max(lengths);
  std::vector<int64_t> numbers;
  const auto of = [](const TokenIds& ids, int64_t b, int64_t i) {
    const int64_t step = ids.PerSequence() ? ids.length : 0;
    return ids.values[static_cast<size_t>(b * step + i)];
  };
  for (int64_t b = 0; b < positions.batch; ++b) {
    for (int64_t i = 0; i < positions.length; ++i) {
      numbers.push_back(of(positions, b, i));
      numbers.push_back(segments.values.empty() ? 0 : of(segments, b, i));
    }
  }
  // (position, segment) of every token, in order.
  std::vector<std::pair<int64_t, int64_t>> tokens(
      static_cast<size_t>(positions.batch * total));
  const auto gathered = GatherNumbers(group, numbers);
  for (size_t r = 0; r < gathered.size(); ++r) {
    const int64_t* at = gathered[r].data();
    for (int64_t b = 0; b < positions.batch; ++b) {
      for (const Piece& piece : pieces[r]) {
        const Chunk& t = piece.tokens;
        for (int64_t i = 0; i < t.count; ++i, at += 2) {
          const int64_t token = t.first + i * t.stride;
          if (token >= total) continue;
          tokens[static_cast<size_t>(b * total + token)] = {at[0], at[1]};
        }
      }
    }
  }
  for (int64_t b = 0; b < positions.batch; ++b) {
    std::map<int64_t, int64_t> last;
    for (int64_t i = 0; i < lengths[static_cast<size_t>(b)]; ++i) {
      const auto [position, segment] =
          tokens[static_cast<size_t>(b * total + i)];
      const auto [at, first] = last.try_emplace(segment, position);
      if (!first && position <= at->second) return false;
      at->second = position;
    }
  }
  return true;
}

// Queries end where the keys of their sequence end.
std::vector<int64_t> FirstQueries(const Call& call) {
  std::vector<int64_t> first;
  for (int64_t length : call.key_lengths) {
    first.push_back(std::max<int64_t>(length - call.q_total, 0));
  }
  if (first.empty()) {
    first.push_back(std::max<int64_t>(call.k_total - call.q_total, 0));
  }
  if (std::ranges::count(first, first[0]) == std::ssize(first)) first.resize(1);
  return first;
}

// The shape of the whole call: that of a call with the two extreme tokens of
// each sequence alone.
Shape WholeShape(const Sizes& local, const AttentionOptions& given,
                 const std::vector<Range>& q, const std::vector<Range>& k) {
  std::vector<int64_t> q_positions, k_positions, key_lengths;
  const auto add = [](const Range& range, std::vector<int64_t>& positions) {
    positions.push_back(range.Empty() ? 0 : range.lo);
    positions.push_back(range.Empty() ? 0 : range.hi);
  };
  for (size_t b = 0; b < q.size(); ++b) {
    add(q[b], q_positions);
    add(k[b], k_positions);
    key_lengths.push_back(k[b].Empty() ? 0 : 2);
  }
  const bool queries = std::ranges::any_of(q, std::not_fn(&Range::Empty));
  if (!queries) q_positions.clear();
  const AttentionOptions options{.causal = given.causal,
                                 .scale = given.scale,
                                 .window = given.window,
                                 .q_positions = q_positions,
                                 .k_positions = k_positions,
                                 .key_lengths = key_lengths};
  // Tensors of those tokens; nobody reads them.
  static constexpr float kNothing = 0.0F;
  const auto tensor = [&](int64_t heads, int64_t length, int64_t dim) {
    return Tensor::Borrow(DType::kF32, {local.batch, heads, length, dim},
                          {0, 0, 0, 0}, &kNothing);
  };
  Shape shape =
      CallShape(tensor(local.q_heads, queries ? 2 : 0, local.head_dim),
                tensor(local.kv_heads, 2, local.head_dim),
                tensor(local.kv_heads, 2, local.value_dim), options);
  shape.rising = true;  // two tokens do not tell
  return shape;
}

// How far each block goes: to the last rank that needs it.
std::vector<int> Hops(const Call& call, int ranks) {
  std::vector<int> hops;
  for (int owner = 0; owner < ranks; ++owner) {
    int hop = ranks - 1;
    while (hop > 0 && !call.Needs((owner + hop) % ranks, owner)) --hop;
    hops.push_back(hop);
  }
  return hops;
}

// Runs f; the message of the Error that it throws, else "".
template <typename F>
std::string ErrorOf(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

int64_t CountBefore(const Chunk& tokens, int64_t length) {
  if (length <= tokens.first) return 0;
  const int64_t before =
      (length - tokens.first + tokens.stride - 1) / tokens.stride;
  return std::min(before, tokens.count);
}

std::vector<int64_t> TokenIds::Of(const Piece& piece) const {
  std::vector<int64_t> ids;
  const int64_t step = PerSequence() ? length : 0;
  for (int64_t b = 0; b < (PerSequence() ? batch : 1); ++b) {
    const auto first = values.begin() + b * step + piece.begin;
    ids.insert(ids.end(), first, first + piece.tokens.count);
  }
  return ids;
}

Range Call::Offsets() const {
  Range offsets{.lo = BucketMap::kLowest, .hi = BucketMap::kHighest};
  if (window) {
    offsets = {.lo = std::max(offsets.lo, -window->right),
               .hi = std::min(offsets.hi, window->left)};
  }
  if (causal) offsets.lo = std::max<int64_t>(offsets.lo, 0);
  return offsets;
}

bool Call::Sees(const Piece& q, const Piece& k) const {
  if (q.positions.Empty() || k.positions.Empty()) return false;
  if (segmented && !q.segments.Meets(k.segments)) return false;
  const Range offsets{.lo = q.positions.lo - k.positions.hi,
                      .hi = q.positions.hi - k.positions.lo};
  return offsets.Meets(Offsets());
}

bool Call::Needs(int rank, int owner) const {
  for (const Piece& q : queries[static_cast<size_t>(rank)]) {
    for (const Piece& k : keys[static_cast<size_t>(owner)]) {
      if (Sees(q, k)) return true;
    }
  }
  return false;
}

Call Meet(const Group& group, const Tensor& q, const Tensor& k, const Tensor& v,
          const Encoding& encoding, const Options& options,
          const std::string& problem) {
  const AttentionOptions& o = options.attention;
  Call call{
      .causal = o.causal, .window = o.window, .key_lengths = o.key_lengths};
  std::string error = ErrorOf([&] { call.sizes = CheckLocal(q, k, v, o); });
  if (error.empty()) error = problem;
  const Sizes& s = call.sizes;
  const std::vector<Field> agreed =
      Agree(group, error, Fields(q, k, v, s, encoding, options));
  const auto given = [&](size_t n) {
    return !agreed[n].value.empty() && agreed[n].value != "none";
  };
  const auto per_sequence = [&](size_t n) {
    return agreed[n].value == "one a sequence";
  };
  call.q_positions_given = given(kQPositions);
  call.k_positions_given = given(kKPositions);
  call.k_positions_per_sequence = per_sequence(kKPositions);
  call.segmented = given(kQSegments) && given(kKSegments);
  call.k_segments_per_sequence = per_sequence(kKSegments);

  std::vector<int64_t> q_counts;
  for (const auto& counts :
       GatherNumbers(group, std::vector<int64_t>{s.q_len, s.k_len})) {
    q_counts.push_back(counts[0]);
    call.key_counts.push_back(counts[1]);
  }
  call.q_total = Total(q_counts);
  call.k_total = Total(call.key_counts);
  for (int64_t n : o.key_lengths) {
    if (n < 0 || n > call.k_total) {
      throw Error(fmt::format("a key length must lie in [0, {}], got {}",
                              call.k_total, n));
    }
  }
  call.queries = Pieces("queries", q_counts, call.q_total, options.sharding);
  call.keys = Pieces("keys", call.key_counts, call.k_total, options.sharding);

  const auto me = static_cast<size_t>(group.rank());
  const auto ids = [&](std::span<const int64_t> values, int64_t length) {
    return TokenIds{.values = values, .length = length, .batch = s.batch};
  };
  call.q_first = FirstQueries(call);
  constexpr int64_t kFirstKey[] = {0};
  const Extremes q_extremes = FindExtremes(
      call.queries[me], ids(o.q_positions, s.q_len), call.q_first, {});
  const Extremes k_extremes = FindExtremes(
      call.keys[me], ids(o.k_positions, s.k_len), kFirstKey, o.key_lengths);
  const std::vector<Range> q_ranges =
      ShareRanges(group, call.queries, q_extremes, ids(o.q_segments, s.q_len));
  const std::vector<Range> k_ranges =
      ShareRanges(group, call.keys, k_extremes, ids(o.k_segments, s.k_len));
  call.shape = WholeShape(s, o, q_ranges, k_ranges);
  if (o.causal && call.shape.MaxPosition() >= kPackedFrom) {
    const auto batch = static_cast<size_t>(s.batch);
    const std::vector<int64_t> queries(batch, call.q_total);
    std::vector<int64_t> keys(batch, call.k_total);
    std::ranges::copy(o.key_lengths, keys.begin());
    call.shape.rising = (!call.q_positions_given ||
                         Rise(group, call.queries, ids(o.q_positions, s.q_len),
                              ids(o.q_segments, s.q_len), queries)) &&
                        (!call.k_positions_given ||
                         Rise(group, call.keys, ids(o.k_positions, s.k_len),
                              ids(o.k_segments, s.k_len), keys));
  }
  call.hops = Hops(call, group.size());

  const std::string refused = ErrorOf([&] {
    call.terms = encoding.Lower(call.shape).terms;
    Validate(call.terms, call.shape);
  });
  Agree(group, refused,
        {{"encoding, with the same settings",
          fmt::format("terms {:016x}", TermsId(call.terms))}});
  return call;
}

}  // namespace locus::ring
