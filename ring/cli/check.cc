// locus ring check: compares the ring with a single process on the same
// numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ring/agreement/agree.h"
#include "ring/blocks/views.h"
#include "ring/cli/case.h"
#include "ring/cli/operands.h"
#include "ring/cli/session.h"

namespace locus::ring {
namespace {

constexpr double kEps = 0x1p-23;  // float32

// Engine and ring are each within 4 eps sqrt(D + 12) of exact arithmetic
// (docs/numerics.md), and half a unit in the last place of a narrow type: they
// differ by at most twice that.
double ForwardTolerance(const Case& c) {
  const double half_ulp = c.dtype == DType::kBF16  ? 0x1p-8
                          : c.dtype == DType::kF16 ? 0x1p-11
                                                   : 0.0;
  return 2.0 *
         (4.0 * kEps * std::sqrt(static_cast<double>(c.dim) + 12.0) + half_ulp);
}

// Gradients are sums of such numbers over the length.
double GradTolerance(const Case& c) {
  return 4.0 * ForwardTolerance(c) * std::sqrt(static_cast<double>(c.length));
}

// Largest |a - b| over max(1, largest |b|). NaN counts as infinite.
double Difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToVector(), y = b.ToVector();
  double scale = 1.0, worst = 0.0;
  for (double value : y) scale = std::max(scale, std::abs(value));
  for (size_t n = 0; n < x.size(); ++n) {
    const double difference = std::abs(x[n] - y[n]);
    if (!(difference <= worst)) {
      worst = std::isnan(difference) ? INFINITY : difference;
    }
  }
  return worst / scale;
}

// One comparison; errors are the largest over all ranks.
struct Row {
  std::string encoding = {};
  Sharding sharding = Sharding::kContiguous;
  bool causal = false;
  std::vector<std::pair<std::string, double>> errors = {};
  double worst = 0.0;  // error over tolerance, the largest

  bool Passed() const { return worst <= 1.0; }
  void Add(const std::string& name, double error, double tolerance) {
    errors.emplace_back(name, error);
    worst = std::max(worst, error / tolerance);
  }
};

// Combines the rows of every rank into the worst of each number.
void Join(const Group& group, Row& row) {
  std::string text(sizeof(double) * (row.errors.size() + 1), '\0');
  std::vector<double> mine = {row.worst};
  for (const auto& [name, error] : row.errors) mine.push_back(error);
  std::memcpy(text.data(), mine.data(), text.size());
  for (const std::string& other : group.Gather(text)) {
    std::vector<double> theirs(mine.size());
    std::memcpy(theirs.data(), other.data(), other.size());
    row.worst = std::max(row.worst, theirs[0]);
    for (size_t n = 0; n < row.errors.size(); ++n) {
      row.errors[n].second = std::max(row.errors[n].second, theirs[n + 1]);
    }
  }
}

// The same call in one process.
struct Whole {
  AttentionResult forward = {};
  EncodingGrads grads = {};

  Whole(const Case& c, const Encoding& encoding, bool with_operands) {
    const std::vector<Chunk> all = {{.first = 0, .count = c.length}};
    const Inputs x(c, all);
    AttentionOptions options = c.Options();
    std::optional<CaseOperands> operands;
    if (with_operands) operands.emplace(c, all).AddTo(options);
    forward = locus::Attention(x.q, x.k, x.v, encoding, options);
    grads = locus::AttentionBackward(Numbers(c, Kind::kDOut, c.heads, all), x.q,
                                     x.k, x.v, forward, encoding, options,
                                     {.pair_bias = with_operands});
  }
};

// The tokens of `chunks` of x [B, H, L].
Tensor TakeNumbers(const Tensor& x, const std::vector<Chunk>& chunks) {
  return TakeShard(
      Tensor::Borrow(x.dtype(), {x.size(0), x.size(1), x.size(2), 1}, {},
                     x.Raw()),
      chunks);
}

Row Compare(const Group& group, const Case& c, const Encoding& encoding,
            std::string_view name, Sharding sharding, const Whole& whole) {
  const std::vector<Chunk> chunks =
      Shard(sharding, c.length, group.rank(), group.size());
  const Inputs x(c, chunks);
  Options options{.attention = c.Options(),
                  .sharding = sharding,
                  .deadline_seconds = c.deadline_seconds};
  const OperandGrads& expected = whole.grads.operands;
  const bool with_operands = expected.sinks.defined();
  std::optional<CaseOperands> operands;
  if (with_operands) operands.emplace(c, chunks).AddTo(options.attention);
  const AttentionResult forward =
      Attention(group.comm(), x.q, x.k, x.v, encoding, options);
  const EncodingGrads grads = AttentionBackward(
      group.comm(), Numbers(c, Kind::kDOut, c.heads, chunks), x.q, x.k, x.v,
      forward, encoding, options, {.pair_bias = with_operands});
  Row row{
      .encoding = std::string(name), .sharding = sharding, .causal = c.causal};
  const auto add = [&](const char* what, const Tensor& mine,
                       const Tensor& theirs, double tolerance) {
    row.Add(what, Difference(mine, TakeShard(theirs, chunks)), tolerance);
  };
  const double tolerance = GradTolerance(c);
  add("out", forward.out, whole.forward.out, ForwardTolerance(c));
  add("d_q", grads.d_q, whole.grads.d_q, tolerance);
  add("d_k", grads.d_k, whole.grads.d_k, tolerance);
  add("d_v", grads.d_v, whole.grads.d_v, tolerance);
  if (with_operands) {
    const OperandGrads& mine = grads.operands;
    row.Add("d_sinks", Difference(mine.sinks, expected.sinks), tolerance);
    row.Add("d_key_bias",
            Difference(mine.key_bias, TakeNumbers(expected.key_bias, chunks)),
            tolerance);
    add("d_pair_bias", mine.pair_bias, expected.pair_bias, tolerance);
  }
  for (size_t n = 0; n < grads.params.size(); ++n) {
    row.Add("d_" + grads.params[n].name,
            Difference(grads.params[n].value, whole.grads.params[n].value),
            tolerance);
  }
  Join(group, row);
  return row;
}

// Some of this rank's queries over all keys, generated and used range by range.
AttentionResult Sampled(const Case& c, const Encoding& encoding,
                        const std::vector<Chunk>& queries) {
  constexpr int64_t kStretch = 4096;
  const Tensor q = Numbers(c, Kind::kQ, c.heads, queries);
  std::vector<int64_t> q_positions;
  for (const Chunk& chunk : queries) q_positions.push_back(chunk.first);
  AttentionResult result;
  for (int64_t first = 0; first < c.length; first += kStretch) {
    const std::vector<Chunk> keys = {
        {.first = first, .count = std::min(kStretch, c.length - first)}};
    std::vector<int64_t> k_positions;
    for (int64_t j = 0; j < keys[0].count; ++j) {
      k_positions.push_back(first + j);
    }
    AttentionOptions options = c.Options();
    options.q_positions = q_positions;
    options.k_positions = k_positions;
    const AttentionResult part = locus::Attention(
        q, Numbers(c, Kind::kK, c.kv_heads, keys),
        Numbers(c, Kind::kV, c.kv_heads, keys), encoding, options);
    result = result.out.defined() ? Merge(result, part) : part;
  }
  return result;
}

Row CompareSample(const Group& group, const Case& c, const Encoding& encoding,
                  std::string_view name, Sharding sharding, int64_t count) {
  const std::vector<Chunk> chunks =
      Shard(sharding, c.length, group.rank(), group.size());
  // Tokens of each chunk at even steps: their places on the rank and in the
  // sequence.
  std::vector<Chunk> rows, tokens;
  int64_t begin = 0;
  for (const Chunk& chunk : chunks) {
    const int64_t step = std::max<int64_t>(chunk.count / count, 1);
    for (int64_t i = 0; i < chunk.count; i += step) {
      rows.push_back({.first = begin + i, .count = 1});
      tokens.push_back({.first = chunk.first + i * chunk.stride, .count = 1});
    }
    begin += chunk.count;
  }
  Row row{
      .encoding = std::string(name), .sharding = sharding, .causal = c.causal};
  Tensor out;
  {
    const Inputs x(c, chunks);
    out = TakeShard(Attention(group.comm(), x.q, x.k, x.v, encoding,
                              {.attention = c.Options(),
                               .sharding = sharding,
                               .deadline_seconds = c.deadline_seconds})
                        .out,
                    rows);
  }
  row.Add("out", Difference(out, Sampled(c, encoding, tokens).out),
          ForwardTolerance(c));
  Join(group, row);
  return row;
}

cli::Json ToJson(const Row& row) {
  cli::Json json = {{"encoding", row.encoding},
                    {"sharding", ShardingName(row.sharding)},
                    {"causal", row.causal},
                    {"passed", row.Passed()},
                    {"error_over_tolerance", cli::NumberJson(row.worst)}};
  for (const auto& [name, error] : row.errors) {
    json["errors"][name] = cli::NumberJson(error);
  }
  return json;
}

// One line per encoding, and one per failed comparison.
std::string Table(const std::vector<Row>& rows) {
  std::string text = fmt::format("{:<18}{:>12}{:>22}\n", "encoding",
                                 "comparisons", "largest / tolerance");
  for (size_t n = 0; n < rows.size();) {
    const std::string& name = rows[n].encoding;
    double worst = 0.0;
    size_t end = n;
    std::string failed;
    for (; end < rows.size() && rows[end].encoding == name; ++end) {
      worst = std::max(worst, rows[end].worst);
      if (rows[end].Passed()) continue;
      failed +=
          fmt::format("  not equal: {}{}, {:.3g} of the tolerance\n",
                      ShardingName(rows[end].sharding),
                      rows[end].causal ? ", causal" : "", rows[end].worst);
    }
    text +=
        fmt::format("{:<18}{:>12}{:>22.3f}\n{}", name, end - n, worst, failed);
    n = end;
  }
  return text;
}

}  // namespace

int Check(const CheckArgs& args) {
  Case c(args.common);
  const int64_t sample =
      args.sample.empty()
          ? 0
          : cli::ReadNumber("--sample", args.sample, 1, int64_t{1} << 20);
  if (sample > 0 && args.operands) {
    throw Error(
        "--operands does not go with --sample: a bias per pair holds the whole "
        "sequence");
  }
  std::vector<std::string> names = args.encodings;
  if (names.empty()) {
    for (const EncodingInfo& info : Encodings()) names.emplace_back(info.name);
  }
  std::vector<Sharding> shardings;
  for (const std::string& name : args.shardings) {
    shardings.push_back(FindSharding(name));
  }
  if (shardings.empty()) {
    shardings = {Sharding::kContiguous, Sharding::kZigzag,
                 Sharding::kRoundRobin};
  }
  const Group group(MPI_COMM_WORLD, c.deadline_seconds);
  std::vector<Row> rows;
  for (const std::string& given : names) {
    const std::string name(FindEncoding(given).name);
    const auto encoding = c.Example(name);
    for (bool causal : {false, true}) {
      c.causal = causal;
      std::optional<Whole> whole;
      if (sample == 0) whole.emplace(c, *encoding, args.operands);
      for (Sharding sharding : shardings) {
        rows.push_back(
            whole ? Compare(group, c, *encoding, name, sharding, *whole)
                  : CompareSample(group, c, *encoding, name, sharding, sample));
      }
    }
  }
  const bool passed = std::ranges::all_of(rows, &Row::Passed);
  OnFirstRank(group, [&] {
    cli::Json json = {
        {"ranks", group.size()},
        {"case", c.ToJson()},
        {"tolerance",
         {{"forward", ForwardTolerance(c)}, {"gradients", GradTolerance(c)}}},
        {"passed", passed}};
    for (const Row& row : rows) json["rows"].push_back(ToJson(row));
    if (!args.common.save.empty()) cli::SaveJson(json, args.common.save);
    cli::Emit(args.common.json
                  ? cli::JsonText(json)
                  : fmt::format("{}{} ranks give {} one process gives\n",
                                Table(rows), group.size(),
                                passed ? "what" : "other than what"));
  });
  return passed ? cli::kFine : cli::kAnswerIsNo;
}

}  // namespace locus::ring
