#include "ring/agreement/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "locus/error.h"
#include "locus/rotary.h"
#include "ring/agreement/agree.h"
#include "ring/agreement/extreme_call.h"
#include "ring/agreement/pieces.h"
#include "ring/agreement/terms_id.h"

namespace locus::ring {
namespace {

// ----------------------------------------------------------- values to agree
// on

// How token ids are given: "" for a rank without tokens, which does not know.
constexpr std::string_view kPerSequence = "one per sequence";
std::string Form(std::span<const int64_t> ids, int64_t length) {
  if (length == 0) return "";
  if (ids.empty()) return "none";
  return static_cast<int64_t>(ids.size()) == length ? "one for all sequences"
                                                    : std::string(kPerSequence);
}

// How an operand of some tokens is given: some of its sizes; "" as above. Its
// rank may be invalid.
std::string Form(const Tensor& operand, int64_t length,
                 std::initializer_list<int> axes) {
  if (!operand.defined()) return length == 0 ? "" : "none";
  std::vector<int64_t> sizes;
  for (int axis : axes) {
    if (axis < operand.rank()) sizes.push_back(operand.size(axis));
  }
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

std::string Presence(bool given, int64_t length) {
  if (length == 0) return "";
  return given ? "one" : "none";
}

std::string Numbers(std::span<const int64_t> values) {
  if (values.empty()) return "none";
  return fmt::format("{}", fmt::join(values, " "));
}

std::string Describe(const Dropout& d) {
  if (d.rate == 0.0) return "none";
  return fmt::format("{} by seed {}, queries from {} by {}, keys from {} by {}",
                     d.rate, d.seed, d.first_query, d.query_stride, d.first_key,
                     d.key_stride);
}

// The indices of the fields that ExchangeMetadata reads back.
enum : size_t { kQPositions, kKPositions, kQSegments, kKSegments };

std::vector<Field> Fields(const Call& call, const RankInputs& inputs) {
  const AttentionOptions& o = inputs.options.attention;
  const Shape& s = call.shape;
  const auto number = [](auto value) { return fmt::format("{}", value); };
  const auto type = [](const Tensor& x) { return DTypeName(x.dtype()); };
  return {
      {"form of q_positions", Form(o.q_positions, call.q_len)},
      {"form of k_positions", Form(o.k_positions, call.k_len)},
      {"form of q_segments", Form(o.q_segments, call.q_len)},
      {"form of k_segments", Form(o.k_segments, call.k_len)},
      {"batch", number(call.batch)},
      {"query heads", number(s.q_heads)},
      {"key heads", number(s.kv_heads)},
      {"head dim", number(s.head_dim)},
      {"value dim", number(call.ValueDim())},
      {"element type",
       fmt::format("{} {} {}", type(inputs.q), type(inputs.k), type(inputs.v))},
      {"causal", o.causal ? "yes" : "no"},
      {"scale", o.scale ? number(*o.scale) : "the encoding's own"},
      {"window", o.window ? fmt::format("{} back, {} ahead", o.window->left,
                                        o.window->right)
                          : "none"},
      {"chunk", o.chunk ? number(*o.chunk) : "none"},
      {"softcap", o.softcap ? number(*o.softcap) : "none"},
      {"key lengths", Numbers(o.key_lengths)},
      {"prefix lengths", Numbers(o.prefix_lengths)},
      {"mask", Presence(o.mask.defined(), call.q_len)},
      {"pair_bias", Presence(o.pair_bias.defined(), call.q_len)},
      {"key_bias, batch and heads", Form(o.key_bias, call.k_len, {0, 1})},
      {"table_queries, width", Form(o.table_queries, call.q_len, {3})},
      {"sinks",
       o.sinks.defined()
           ? fmt::format("numbers {:016x}",
                         ParamsId({{.name = "sinks", .value = o.sinks}}))
           : "none"},
      {"dropout", Describe(o.dropout)},
      {"sharding", std::string(ShardingName(inputs.options.sharding))},
      {"encoding", std::string(inputs.encoding.Name())},
      {"parameters of the encoding",
       fmt::format("numbers {:016x}", ParamsId(inputs.encoding.Params()))},
  };
}

// ---------------------------------------------------------------- local checks

void CheckCount(const char* what, std::span<const int64_t> lengths,
                int64_t batch) {
  if (lengths.empty() || std::ssize(lengths) == batch) return;
  throw Error(fmt::format("{} must have {} entries, got {}", what, batch,
                          lengths.size()));
}

// Makes every check that involves no other rank, and sets this rank's sizes.
void CheckLocal(const RankInputs& inputs, Call& call) {
  const Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  AttentionOptions o = inputs.options.attention;
  // These refer to the tokens of all ranks.
  o.key_lengths = o.prefix_lengths = {};
  o.mask = {};
  o.pair_bias = {};
  call.shape = CallShape(q, k, v, o);  // checks that the rest is consistent
  call.batch = q.size(0);
  call.q_len = q.size(2);
  call.k_len = k.size(2);
  if (o.by_index) {
    throw Error("masks of a ring go by position, not by_index");
  }
  if (q.dtype() == DType::kF64 || q.dtype() == DType::kI8 ||
      q.dtype() != k.dtype() || q.dtype() != v.dtype()) {
    throw Error(fmt::format(
        "q, k and v must be all f32, all bf16 or all f16, got {}, {} and {}",
        q.Describe(), k.Describe(), v.Describe()));
  }
  CheckCount("key_lengths", call.key_lengths, call.batch);
  CheckCount("prefix_lengths", call.prefix_lengths, call.batch);
}

// Checks rows of this rank's queries over the keys of all ranks.
void CheckPairs(const char* what, std::span<const int64_t> shape,
                const Call& call) {
  const int64_t want[] = {call.batch, call.shape.q_heads, call.q_len,
                          call.k_total};
  bool fits = shape.size() == 4;
  for (size_t axis = 0; fits && axis < 4; ++axis) {
    fits = shape[axis] == want[axis] || (axis < 3 && shape[axis] == 1);
  }
  if (fits) return;
  throw Error(fmt::format(
      "{} must be [{}], this rank's queries over all keys, or 1 in the place "
      "of all but the last, got [{}]",
      what, fmt::join(want, ", "), fmt::join(shape, ", ")));
}

// Checks lengths; fails alike on every rank, since lengths and total are equal.
void CheckLengths(const char* what, std::span<const int64_t> lengths,
                  int64_t total) {
  for (int64_t n : lengths) {
    if (n >= 0 && n <= total) continue;
    throw Error(fmt::format("{} must lie in [0, {}], got {}", what, total, n));
  }
}

// -------------------------------------------------------------------- exchange

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

// How far each block travels: to the last rank that needs it.
std::vector<int> Hops(const Call& call, int ranks) {
  std::vector<int> hops;
  for (int owner = 0; owner < ranks; ++owner) {
    int hop = ranks - 1;
    while (hop > 0 && !call.Needs((owner + hop) % ranks, owner)) --hop;
    hops.push_back(hop);
  }
  return hops;
}

// Runs f; returns the message of the Error that it throws, else "".
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

Call ExchangeMetadata(const Group& group, const RankInputs& inputs) {
  const AttentionOptions& o = inputs.options.attention;
  Call call{.causal = o.causal,
            .window = o.window,
            .chunk = o.chunk,
            .key_lengths = o.key_lengths,
            .prefix_lengths = o.prefix_lengths};
  std::string error = ErrorOf([&] { CheckLocal(inputs, call); });
  if (error.empty()) error = inputs.problem;
  const std::vector<Field> agreed = Agree(group, error, Fields(call, inputs));
  const auto given = [&](size_t n) {
    return !agreed[n].value.empty() && agreed[n].value != "none";
  };
  const auto per_sequence = [&](size_t n) {
    return agreed[n].value == kPerSequence;
  };
  call.q_positions_given = given(kQPositions);
  call.k_positions_given = given(kKPositions);
  call.k_positions_per_sequence = per_sequence(kKPositions);
  call.segmented = given(kQSegments) && given(kKSegments);
  call.k_segments_per_sequence = per_sequence(kKSegments);

  // Ranks without tokens may omit operands: the others know their sizes.
  std::vector<int64_t> mine = {call.q_len, call.k_len, 0, 0, 0};
  if (o.key_bias.defined()) {
    mine[2] = o.key_bias.size(0);
    mine[3] = o.key_bias.size(1);
  }
  if (o.table_queries.defined()) mine[4] = o.table_queries.size(3);
  std::vector<int64_t> q_counts;
  for (const auto& theirs : GatherNumbers(group, mine)) {
    q_counts.push_back(theirs[0]);
    call.key_counts.push_back(theirs[1]);
    call.key_bias.batch = std::max(call.key_bias.batch, theirs[2]);
    call.key_bias.heads = std::max(call.key_bias.heads, theirs[3]);
    call.table_dim = std::max(call.table_dim, theirs[4]);
  }
  call.q_total = Total(q_counts);
  call.k_total = Total(call.key_counts);
  CheckLengths("a key length", o.key_lengths, call.k_total);
  CheckLengths("a prefix length", o.prefix_lengths, call.k_total);
  const Sharding sharding = inputs.options.sharding;
  call.queries = MakePieces("queries", q_counts, sharding);
  call.keys = MakePieces("keys", call.key_counts, sharding);

  const auto me = static_cast<size_t>(group.rank());
  const auto ids = [&](std::span<const int64_t> values, int64_t length) {
    return TokenIds{.values = values, .length = length, .batch = call.batch};
  };
  const TokenIds q_positions = ids(o.q_positions, call.q_len),
                 k_positions = ids(o.k_positions, call.k_len),
                 q_segments = ids(o.q_segments, call.q_len),
                 k_segments = ids(o.k_segments, call.k_len);
  call.q_first = FirstQueries(call);
  constexpr int64_t kFirstKey[] = {0};
  const Extremes q_extremes =
      FindExtremes(call.queries[me], q_positions, call.q_first, {});
  const Extremes k_extremes =
      FindExtremes(call.keys[me], k_positions, kFirstKey, o.key_lengths);
  const std::vector<Range> q_ranges =
      ShareRanges(group, call.queries, q_extremes, q_segments);
  const std::vector<Range> k_ranges =
      ShareRanges(group, call.keys, k_extremes, k_segments);
  const ExtremeCall extreme(call, o, q_ranges, k_ranges);
  call.shape = extreme.ShapeOfWhole();
  const bool packed = call.shape.MaxPosition() >= kPackedFrom;
  if (o.causal && packed) {
    const auto batch = static_cast<size_t>(call.batch);
    const std::vector<int64_t> queries(batch, call.q_total);
    std::vector<int64_t> keys(batch, call.k_total);
    std::ranges::copy(o.key_lengths, keys.begin());
    call.shape.rising =
        (!call.q_positions_given ||
         Rise(group, call.queries, q_positions, q_segments, queries)) &&
        (!call.k_positions_given ||
         Rise(group, call.keys, k_positions, k_segments, keys));
  }
  call.hops = Hops(call, group.size());

  const std::string refused = ErrorOf([&] {
    if (o.mask.defined()) CheckPairs("the mask", o.mask.shape, call);
    if (o.pair_bias.defined()) {
      CheckPairs("pair_bias", o.pair_bias.shape(), call);
    }
    call.terms = inputs.encoding.Lower(call.shape).terms;
    Validate(call.terms, call.shape);
    if (!packed) extreme.CheckDriver(call.terms, inputs.pass);
  });
  Agree(group, refused,
        {{"encoding, with the same settings",
          fmt::format("terms {:016x}", TermsId(call.terms))}});
  return call;
}

}  // namespace locus::ring
