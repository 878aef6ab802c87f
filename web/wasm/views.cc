#include "web/wasm/views.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "cli/answers/figure_rotation.h"
#include "locus/error.h"
#include "locus/reference.h"

namespace locus::web {
namespace {

// Tokens of an example as queries and keys of one head.
class Tokens {
 public:
  Tokens(const Subject& subject, int64_t head, int64_t first, int64_t last)
      : encoding_(subject.encoding),
        config_(subject.chosen.config),
        head_(head) {
    if (head < 0 || head >= config_.heads) {
      throw Error("head must lie in 0 .. " + std::to_string(config_.heads - 1) +
                  ", got " + std::to_string(head));
    }
    Shape shape = cli::ShapeOf(config_);
    shape.min_q_pos = shape.min_k_pos = first;
    shape.max_q_pos = shape.max_k_pos = last;
    shape.min_offset = first - last;
    shape.max_offset = last - first;
    terms_ = encoding_->Lower(shape).terms;
    Validate(terms_, shape);
    width_ = config_.head_dim;
    if (!terms_.input_add) return;
    // The rows are as wide as the model: one head of that width.
    added_ = true;
    width_ = terms_.input_add->table.size(1);
    terms_ = Terms();
    terms_.scale.scale = 1.0 / std::sqrt(static_cast<double>(width_));
    head_ = 0;
  }

  int64_t width() const { return width_; }

  // Rows [batch, positions, width] with the input's encoding added.
  Tensor Placed(const std::vector<double>& rows,
                const std::vector<int64_t>& positions) const {
    const auto n = static_cast<int64_t>(positions.size());
    const auto batch = static_cast<int64_t>(rows.size()) / (n * width_);
    Tensor out = Tensor::Zeros(DType::kF64, {batch, 1, n, width_});
    std::copy(rows.begin(), rows.end(), out.MutableData<double>());
    if (!added_) return out;
    const std::vector<double> added = encoding_->Embed(positions).ToVector();
    double* values = out.MutableData<double>();
    for (size_t i = 0; i < rows.size(); ++i)
      values[i] += added[i % added.size()];
    return out;
  }

  // Logits [queries, keys] of the head, of each batch entry.
  std::vector<Tensor> Logits(const Tensor& q, const Tensor& k,
                             const std::vector<int64_t>& q_pos,
                             const std::vector<int64_t>& k_pos,
                             bool causal) const {
    AttentionOptions call;
    call.q_positions = q_pos;
    call.k_positions = k_pos;
    call.causal = causal;
    // All heads share the keys.
    const reference::Scorer scorer(OfEveryHead(q), k, terms_, call);
    std::vector<Tensor> logits;
    for (int64_t b = 0; b < q.size(0); ++b) {
      logits.push_back(scorer.Of(b, head_));
    }
    return logits;
  }

 private:
  // The same rows for each head: terms by head count heads.
  Tensor OfEveryHead(const Tensor& x) const {
    const int64_t heads = added_ ? 1 : config_.heads;
    return Tensor::Borrow(DType::kF64, {x.size(0), heads, x.size(2), width_},
                          {x.size(2) * width_, 0, width_, 1}, x.Data<double>(),
                          std::make_shared<Tensor>(x));
  }

  std::shared_ptr<const Encoding> encoding_;
  ExampleConfig config_;
  Terms terms_ = {};
  int64_t width_ = 0;
  int64_t head_ = 0;
  bool added_ = false;
};

std::vector<double> Normals(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  ExampleConfig row;
  row.head_dim = count;
  return cli::RandomRows(engine, row, /*length=*/1, /*heads=*/1).ToVector();
}

void Append(std::vector<double>& rows, const std::vector<double>& row,
            size_t times) {
  for (size_t n = 0; n < times; ++n) {
    rows.insert(rows.end(), row.begin(), row.end());
  }
}

std::vector<double> RowsOf(const ScoreRequest& request, uint64_t seed,
                           int64_t width) {
  const auto count = static_cast<size_t>(request.count);
  if (request.content == Content::kNone) {
    return std::vector<double>(count * static_cast<size_t>(width));
  }
  std::vector<double> rows;
  if (request.content == Content::kMatching) {
    Append(rows, Normals(width, seed), count);
    return rows;
  }
  for (size_t n = 0; n < count; ++n) {
    const auto word = request.words.empty()
                          ? static_cast<uint64_t>(n)
                          : static_cast<uint64_t>(request.words[n]);
    Append(rows, Normals(width, seed * 1000003 + word), 1);
  }
  return rows;
}

std::vector<int64_t> From(int64_t first, int64_t count) {
  std::vector<int64_t> positions;
  for (int64_t n = 0; n < count; ++n) positions.push_back(first + n);
  return positions;
}

std::vector<double> Softmax(std::vector<double> row) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0.0;
  for (double& x : row) sum += x = std::exp(x - most);
  for (double& x : row) x /= sum;
  return row;
}

}  // namespace

Json Show(const Subject& subject) {
  const ExampleConfig& config = subject.chosen.config;
  const Encoding& encoding = *subject.encoding;
  const Terms terms = encoding.Lower(cli::ShapeOf(config)).terms;
  Validate(terms, cli::ShapeOf(config));
  const std::string_view trained = subject.trained ? "trained parameters" : "";
  return cli::ShowJson(
      subject.chosen, terms,
      cli::MakeFigure(*subject.chosen.info, encoding, config, trained));
}

Json Check(const Subject& subject) {
  const ExampleConfig& config = subject.chosen.config;
  CheckOptions options = {.heads = config.heads,
                          .head_dim = config.head_dim,
                          .length = config.length,
                          .seed = config.seed};
  // Rows that were trained for the input are as wide as the model.
  const auto& input =
      subject.encoding->Lower(cli::ShapeOf(config)).terms.input_add;
  if (input && subject.trained) options.head_dim = input->table.size(1);
  return cli::CheckJson(config, locus::Check(*subject.encoding, options));
}

Json Scores(const Subject& subject, const ScoreRequest& request) {
  // As many as a picture can show; the matrix grows with their square.
  constexpr int64_t kMost = 512;
  if (request.count < 1 || request.count > kMost) {
    throw Error("a picture of scores shows 1 to 512 tokens, got " +
                std::to_string(request.count));
  }
  if (!request.words.empty() &&
      static_cast<int64_t>(request.words.size()) != request.count) {
    throw Error("there must be a word for each token");
  }
  const Tokens tokens(subject, request.head, request.first,
                      request.first + request.count - 1);
  const std::vector<int64_t> at = From(request.first, request.count);
  const Tensor x = tokens.Placed(
      RowsOf(request, subject.chosen.config.seed, tokens.width()), at);
  const std::vector<double> s =
      tokens.Logits(x, x, at, at, request.causal)[0].ToVector();
  Json logits = Json::array(), weights = Json::array();
  for (int64_t i = 0; i < request.count; ++i) {
    const auto first = s.begin() + i * request.count;
    const std::vector<double> row(first, first + request.count);
    logits.push_back(row);
    weights.push_back(Softmax(row));
  }
  return {{"first", request.first},
          {"logits", std::move(logits)},
          {"weights", std::move(weights)}};
}

Json ByDistance(const Subject& subject, int64_t head, Content content) {
  // Few contents and offsets: the picture follows a slider.
  constexpr uint64_t kContents = 12;
  constexpr int64_t kMostOffsets = 128;
  const int64_t length = subject.chosen.config.length;
  const Tokens tokens(subject, head, 0, length - 1);
  const int64_t step = (length + kMostOffsets - 1) / kMostOffsets;
  std::vector<std::vector<double>> by_offset(
      static_cast<size_t>((length + step - 1) / step));
  for (const int64_t at : {length - 1, length / 2}) {
    const std::vector<int64_t> q_pos = {at};
    std::vector<int64_t> keys;
    for (int64_t key = at; key >= 0; key -= step) keys.push_back(key);
    std::vector<double> q, k;  // [content, 1 or keys, width]
    for (uint64_t n = 0; n < kContents; ++n) {
      std::vector<double> query(static_cast<size_t>(tokens.width()));
      std::vector<double> key = query;
      if (content != Content::kNone) {
        key = query =
            Normals(tokens.width(), subject.chosen.config.seed + 17 * n);
      }
      if (content == Content::kRandom) {
        key = Normals(tokens.width(), subject.chosen.config.seed + 17 * n + 1);
      }
      Append(q, query, 1);
      Append(k, key, keys.size());
    }
    for (const Tensor& logits :
         tokens.Logits(tokens.Placed(q, q_pos), tokens.Placed(k, keys), q_pos,
                       keys, /*causal=*/false)) {
      const std::vector<double> s = logits.ToVector();
      for (size_t o = 0; o < s.size(); ++o) by_offset[o].push_back(s[o]);
    }
  }
  std::vector<double> x, mean, low, high;
  for (size_t o = 0; o < by_offset.size(); ++o) {
    std::vector<double>& scores = by_offset[o];
    std::sort(scores.begin(), scores.end());
    double sum = 0.0;
    for (double s : scores) sum += s;
    x.push_back(static_cast<double>(step) * static_cast<double>(o));
    mean.push_back(sum / static_cast<double>(scores.size()));
    low.push_back(scores.front());
    high.push_back(scores.back());
  }
  return {{"x", x}, {"mean", mean}, {"low", low}, {"high", high}};
}

Json Pairs(const Subject& subject, const std::vector<int64_t>& positions) {
  const Terms terms =
      subject.encoding->Lower(cli::ShapeOf(subject.chosen.config)).terms;
  if (!terms.rotate || terms.rotate->Mixed() || terms.rotate->heads > 1) {
    return nullptr;
  }
  const Rotation& r = *terms.rotate;
  Json pairs = Json::array();
  for (int64_t p = 0; p < r.NumPairs(); ++p) {
    const double theta = r.theta[static_cast<size_t>(p)];
    pairs.push_back(
        {{"first", r.FirstOfPair(p)},
         {"second", r.SecondOfPair(p)},
         {"theta", theta},
         {"wavelength", cli::NumberJson(2.0 * std::numbers::pi / theta)}});
  }
  Json at = Json::array();
  for (const int64_t position : positions) {
    std::vector<double> cos(static_cast<size_t>(r.NumPairs())), sin = cos;
    r.CosSin(position, cos.data(), sin.data());
    at.push_back({{"position", position}, {"cos", cos}, {"sin", sin}});
  }
  return {
      {"layout", r.layout == PairLayout::kHalves ? "halves" : "interleaved"},
      {"gain", r.gain},
      {"pairs", std::move(pairs)},
      {"at", std::move(at)}};
}

namespace {

// Powers of two from 2^8 up to 2^24, where float32 stops counting by ones.
Json AngleErrors(const Rotation& exact) {
  Rotation rounded = exact;
  rounded.angles = AngleMode::kFloat32;
  const auto pairs = static_cast<size_t>(exact.NumPairs());
  std::vector<double> positions, errors;
  for (int power = 8; power <= 24; ++power) {
    // The worst of a few positions near it: at a power of two itself every
    // product is exact.
    double worst = 0.0;
    for (const int64_t back : {1, 7, 51}) {
      const int64_t at = (int64_t{1} << power) - back;
      std::vector<double> c(pairs), s(pairs), c32(pairs), s32(pairs);
      exact.CosSin(at, c.data(), s.data());
      rounded.CosSin(at, c32.data(), s32.data());
      for (size_t p = 0; p < pairs; ++p) {
        worst =
            std::max({worst, std::abs(c[p] - c32[p]), std::abs(s[p] - s32[p])});
      }
    }
    positions.push_back(std::ldexp(1.0, power));
    errors.push_back(worst);
  }
  return {{"positions", positions}, {"error", errors}};
}

// A query on a key of the same content, by offset, with pairs taken rightly and
// as the other layout takes them.
Json OtherLayout(const Rotation& right, int64_t head_dim) {
  constexpr int64_t kReach = 128;
  Rotation wrong = right;
  wrong.layout = right.layout == PairLayout::kHalves ? PairLayout::kInterleaved
                                                     : PairLayout::kHalves;
  const std::vector<double> q = Normals(head_dim, 1);
  const std::vector<double> k = Normals(head_dim, 2);
  const auto logits = [&](const Rotation& rotation) {
    std::vector<double> out;
    for (int64_t o = 0; o <= kReach; ++o) {
      std::vector<double> rq = q, rk = k;
      reference::RotateRow(rotation, kReach, rq.data());
      reference::RotateRow(rotation, kReach - o, rk.data());
      double dot = 0.0;
      for (size_t d = 0; d < rq.size(); ++d) dot += rq[d] * rk[d];
      out.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
    }
    return out;
  };
  const std::vector<double> good = logits(right), bad = logits(wrong);
  std::vector<double> offsets;
  double difference = 0.0, size = 0.0;
  for (size_t o = 0; o < good.size(); ++o) {
    offsets.push_back(static_cast<double>(o));
    difference += (good[o] - bad[o]) * (good[o] - bad[o]);
    size += good[o] * good[o];
  }
  return {{"offsets", offsets},
          {"right", good},
          {"wrong", bad},
          {"change", std::sqrt(difference / size)}};
}

}  // namespace

Json RotationFacts(const models::LayerPosition& position) {
  if (!position.rotary) return nullptr;
  const models::RotaryFacts& facts = *position.rotary;
  Rotation rotation;
  rotation.layout = facts.layout;
  rotation.rotary_dim = facts.rotary_dim;
  rotation.first_channel = facts.first_channel;
  rotation.theta = facts.theta;
  rotation.gain = facts.gain;
  // Frequencies by several axes have no one position to be wrong at.
  if (rotation.Mixed()) return nullptr;
  std::vector<double> wavelengths;
  for (double theta : rotation.theta) {
    wavelengths.push_back(2.0 * std::numbers::pi / theta);
  }
  return {{"wavelengths", wavelengths},
          {"angles", AngleErrors(rotation)},
          {"layout", OtherLayout(rotation, position.head_dim)}};
}

}  // namespace locus::web
