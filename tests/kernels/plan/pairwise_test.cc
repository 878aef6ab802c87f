// Every feature of a call combined with every other one: a covering array of
// calls, in which each pair of levels of two features occurs, forward with
// every driver and backward, against the float64 reference.
#include <array>
#include <numeric>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

// A feature and its levels; level 0 mostly means "without".
enum Feature : size_t {
  kSize,
  kHeads,
  kDim,
  kType,
  kPositions,
  kCausality,
  kWindow,
  kChunk,
  kPrefix,
  kSegments,
  kLengths,
  kMaskBytes,
  kSoftcap,
  kSinks,
  kKeyBias,
  kPairBias,
  kDropout,
  kWeights,
  kDLse,
  kScaleRows,
  kTableQueries,
  kTermRotate,
  kTermExtraDot,
  kTermQTable,
  kTermKTable,
  kTermBias,
  kTermVTable,
  kTermRotateValues,
  kFeatures,
};

struct Levels {
  const char* name;
  int count;
};

constexpr std::array<Levels, kFeatures> kLevels = {{
    {"size", 3},           // 3 x 45, 37 x 37, 40 x 530 tokens
    {"heads", 3},          // 4 / 4, 4 / 2, 4 / 1
    {"value dim", 2},      // as for keys, different
    {"type", 3},           // f32, bf16, f16
    {"positions", 3},      // consecutive, rising, scattered
    {"causality", 3},      // none, by position, by index
    {"window", 2},         // without, with
    {"chunk", 2},          //
    {"prefix", 2},         //
    {"segments", 2},       //
    {"key lengths", 2},    //
    {"mask", 2},           //
    {"softcap", 2},        //
    {"sinks", 2},          //
    {"key bias", 2},       //
    {"pair bias", 2},      //
    {"dropout", 2},        //
    {"weights", 2},        //
    {"d_lse", 2},          //
    {"scale rows", 2},     //
    {"table queries", 2},  //
    {"rotate", 4},         // none, fixed, trained, trained per key head
    {"extra_dot", 2},      //
    {"q_table", 2},        //
    {"k_table", 2},        //
    {"bias", 4},           // none, table, ramp, profile
    {"v_table", 2},        //
    {"rotate_values", 4},  // none, relative, absolute, relative per key head
}};

// Number of pairs of levels of two features.
constexpr int64_t Pairs() {
  int64_t levels = 0, pairs = 0;
  for (const Levels& feature : kLevels) {
    pairs += levels * feature.count;
    levels += feature.count;
  }
  return pairs;
}

constexpr int kUnset = -1;
using Case = std::array<int, kFeatures>;

// Calls of any kind, or those that the short driver accepts.
enum class Kind : uint8_t { kAny, kShort };

// Whether a case, in which some levels may be unset, is a call of the kind.
bool Exists(Kind kind, const Case& c) {
  if (kind == Kind::kShort) {
    for (Feature none : {kPositions, kSegments, kTermQTable, kTermKTable,
                         kTermVTable, kTableQueries}) {
      if (c[none] > 0) return false;
    }
    if (c[kSize] == 2 || c[kCausality] == 2) return false;
  }
  if (c[kTableQueries] == 1 && c[kTermQTable] == 0) return false;
  // Masks by index with a bias or a table need increasing positions.
  const bool table = c[kTermQTable] == 1 || c[kTermKTable] == 1 ||
                     c[kTermVTable] == 1 || c[kTermBias] > 0 ||
                     c[kTableQueries] == 1;
  return !(table && c[kCausality] == 2 && c[kPositions] == 2);
}

// The pairs of levels that occur in the cases so far.
class Coverage {
 public:
  explicit Coverage(Kind kind) {
    for (size_t f = 0; f < kFeatures; ++f) {
      for (size_t g = f + 1; g < kFeatures; ++g) {
        for (int x = 0; x < kLevels[f].count; ++x) {
          for (int y = 0; y < kLevels[g].count; ++y) {
            if (Exists(kind, Pair(f, x, g, y)))
              missing_.push_back({f, g, x, y});
          }
        }
      }
    }
  }

  static Case Pair(size_t f, int x, size_t g, int y) {
    Case c;
    c.fill(kUnset);
    c[f] = x;
    c[g] = y;
    return c;
  }
  bool complete() const { return missing_.empty(); }
  // A case with only the first missing pair.
  Case First() const {
    const Entry& e = missing_.front();
    return Pair(e.f, e.x, e.g, e.y);
  }
  // Number of missing pairs that a case has.
  int64_t Gain(const Case& c) const {
    return std::ranges::count_if(missing_,
                                 [&](const Entry& e) { return e.In(c); });
  }
  void Add(const Case& c) {
    std::erase_if(missing_, [&](const Entry& e) { return e.In(c); });
  }

 private:
  struct Entry {
    size_t f, g;
    int x, y;
    bool In(const Case& c) const { return c[f] == x && c[g] == y; }
  };
  std::vector<Entry> missing_;
};

// Greedy: each case begins with a missing pair and chooses, feature by feature
// in a random order, the level that covers most; the best of several candidates
// is used.
std::vector<Case> CoveringCases(Kind kind) {
  constexpr int kCandidates = 10;
  std::mt19937_64 engine(1);
  std::vector<Case> cases;
  Coverage coverage(kind);
  while (!coverage.complete()) {
    Case best = {};
    int64_t most = 0;
    for (int n = 0; n < kCandidates; ++n) {
      Case c = coverage.First();
      std::array<size_t, kFeatures> order;
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::shuffle(order, engine);
      for (size_t f : order) {
        if (c[f] != kUnset) continue;
        int64_t highest = -1;
        int level = 0;
        const auto first = static_cast<int>(engine() % 4);
        for (int i = 0; i < kLevels[f].count; ++i) {
          c[f] = (first + i) % kLevels[f].count;
          const int64_t gain = Exists(kind, c) ? coverage.Gain(c) : -1;
          if (gain > highest) {
            highest = gain;
            level = c[f];
          }
        }
        c[f] = level;
      }
      if (const int64_t gain = coverage.Gain(c); gain > most) {
        most = gain;
        best = c;
      }
    }
    coverage.Add(best);
    cases.push_back(best);
  }
  return cases;
}

std::string Describe(const Case& c) {
  std::string text;
  for (size_t f = 0; f < kFeatures; ++f) {
    if (c[f] > 0) {
      text += std::string(kLevels[f].name) + " " + std::to_string(c[f]) + ", ";
    }
  }
  return text;
}

DType TypeOf(const Case& c) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  return kTypes[c[kType]];
}

// The call of a case; what its levels do not determine is random.
class Maker {
 public:
  Maker(const Case& c, uint64_t seed)
      : c_(c), config_(ConfigOf(c, seed)), maker_(config_) {}

  Call Make() {
    Call call = maker_.Make();
    if (auto& rotate = call.terms.rotate) {
      rotate->trains = c_[kTermRotate] >= 2;
      SetHeads(*rotate, c_[kTermRotate] == 3 ? config_.kv_heads : 1);
    }
    if (auto& values = call.terms.rotate_values) {
      values->relative = c_[kTermRotateValues] != 2;
      SetHeads(values->rotation,
               c_[kTermRotateValues] == 3 ? config_.kv_heads : 1);
    }
    unsigned operands = 0;
    constexpr Feature kOperands[] = {
        kSinks, kKeyBias, kPairBias,     kMaskBytes, kPrefix,
        kChunk, kDropout, kTableQueries, kScaleRows, kWeights};
    static_assert(std::size(kOperands) == CallMaker::kOperands);
    for (size_t bit = 0; bit < std::size(kOperands); ++bit) {
      if (c_[kOperands[bit]] == 1) operands |= 1U << bit;
    }
    maker_.AddOperands(call, operands);
    SetPositions(call);
    SetOptions(call);
    AttentionOptions& o = call.options;
    for (Tensor* x : {&call.q, &call.k, &call.v, &o.sinks, &o.key_bias,
                      &o.pair_bias, &o.table_queries}) {
      if (x->defined()) *x = x->To(TypeOf(c_));
    }
    return call;
  }

 private:
  static CallConfig ConfigOf(const Case& c, uint64_t seed) {
    constexpr int64_t kQueries[] = {3, 37, 40}, kKeys[] = {45, 37, 530};
    unsigned terms = 0;
    if (c[kTermRotate] > 0) terms |= kRotate;
    if (c[kTermExtraDot] > 0) terms |= kExtraDot;
    if (c[kTermQTable] > 0) terms |= kQTable;
    if (c[kTermKTable] > 0) terms |= kKTable;
    if (c[kTermBias] > 0) terms |= kBias;
    if (c[kTermVTable] > 0) terms |= kVTable;
    if (c[kTermRotateValues] > 0) terms |= kRotateValues;
    return {.heads = 4,
            .kv_heads = 4 >> c[kHeads],
            .q_len = kQueries[c[kSize]],
            .k_len = kKeys[c[kSize]],
            .head_dim = 16,
            .value_dim = c[kDim] == 0 ? 16 : 10,
            .first_position = seed % 2 == 0 ? 0 : 1000,
            .reach = 600,
            .terms = terms,
            .bias_kind = std::max(c[kTermBias] - 1, 0),
            .seed = seed};
  }

  // Queries end with the keys, or near them.
  void SetPositions(Call& call) {
    const auto set = [this](int64_t length, int64_t last,
                            std::vector<int64_t>& positions) {
      for (int64_t b = 0; b < config_.batch; ++b) {
        const auto begin = positions.begin() + b * length;
        int64_t at = last;
        for (int64_t i = length; i-- > 0;) {
          begin[i] = config_.first_position + at;
          at -= c_[kPositions] == 0 || at <= i ? 1 : maker_.Draw(1, 2);
        }
        if (c_[kPositions] == 2) {
          // With equal ones among them, as in trees of drafts.
          for (int64_t i = 1; i < length; i += 3) begin[i] = begin[i - 1];
          std::shuffle(begin, begin + length, engine_);
        }
      }
    };
    const int64_t last = maker_.Draw(config_.k_len - 1, config_.reach - 2);
    set(config_.k_len, last, call.k_pos);
    set(config_.q_len, last + (c_[kSize] == 0 ? 1 : 0), call.q_pos);
  }

  void SetOptions(Call& call) {
    AttentionOptions& o = call.options;
    o.causal = c_[kCausality] > 0;
    o.by_index = c_[kCausality] == 2;
    if (o.chunk) o.chunk = maker_.Draw(20, 80);
    if (c_[kWindow] == 1) {
      o.window = Window{.left = maker_.Draw(5, 60), .right = maker_.Draw(0, 9)};
    }
    if (c_[kSoftcap] == 1) o.softcap = 2.0;
    if (c_[kLengths] == 1) {
      for (int64_t b = 0; b < config_.batch; ++b) {
        call.key_lengths.push_back(
            maker_.Draw(config_.k_len / 2, config_.k_len));
      }
    }
    if (c_[kSegments] == 1) {
      for (size_t n = 0; n < call.q_pos.size(); ++n) {
        call.q_seg.push_back(maker_.Draw(0, 1));
      }
      for (size_t n = 0; n < call.k_pos.size(); ++n) {
        call.k_seg.push_back(maker_.Draw(0, 1));
      }
    }
  }

  Case c_;
  CallConfig config_;
  CallMaker maker_;
  std::mt19937_64 engine_{config_.seed};
};

// A result is off by half a unit in the last place of its type.
double Rounding(DType type) {
  return type == DType::kF32 ? 0.0 : type == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

void ExpectForward(Kind kind, const Call& call,
                   const reference::Forward& expected) {
  const double tolerance = ForwardTolerance(call);
  std::vector<const char*> drivers = {"tiled", "decode"};
  if (kind == Kind::kShort) {
    EXPECT_EQ(DriverOf(call), "short");
    drivers = {"short"};
  }
  for (const char* driver : drivers) {
    SCOPED_TRACE(driver);
    const AttentionResult actual = RunDriver(driver, call, /*threads=*/2);
    EXPECT_LE(RelativeError(actual.out, expected.out),
              tolerance + Rounding(call.q.dtype()));
    EXPECT_LE(RelativeError(actual.lse, expected.lse), tolerance);
    ASSERT_EQ(actual.weights.defined(), expected.weights.defined());
    if (expected.weights.defined()) {
      EXPECT_LE(RelativeError(actual.weights, expected.weights), tolerance);
    }
  }
}

// The gradients of a call, given the result of Attention.
void ExpectBackward(const Call& call, const Tensor& d_out,
                    const BackwardOptions& backward,
                    const reference::Backward& expected) {
  AttentionOptions options = call.Options();
  options.return_lse = true;
  const AttentionResult forward =
      Attention(call.q, call.k, call.v, call.terms, options);
  const AttentionGrads actual = AttentionBackward(
      d_out, call.q, call.k, call.v, forward, call.terms, options, backward);
  std::vector<Param> a = Members(actual.terms), b = Members(expected.terms);
  for (Param& x : Members(actual.operands)) a.push_back(std::move(x));
  for (Param& x : Members(expected.operands)) b.push_back(std::move(x));
  a.insert(a.end(), {{"q", actual.d_q}, {"k", actual.d_k}, {"v", actual.d_v}});
  b.insert(b.end(),
           {{"q", expected.d_q}, {"k", expected.d_k}, {"v", expected.d_v}});
  ASSERT_EQ(a.size(), b.size());
  const double rounding = 4.0 * Rounding(call.q.dtype());
  for (size_t n = 0; n < a.size(); ++n) {
    ASSERT_EQ(a[n].name, b[n].name);
    // Sums by distance mostly cancel: see ExpectBackwardEqualsReference.
    double tolerance =
        (a[n].name == "slopes" ? 4.0 : 1.0) * GradTolerance(call);
    // do.o of a query uses the rounded output, and gradients shared by many
    // queries accumulate their errors.
    const bool tensor = n + 3 >= a.size();
    tolerance += rounding * (tensor ? 1.0 : std::sqrt(call.q.size(2)));
    // Dropout scales weights by up to 1 / (1 - rate), and their errors too.
    tolerance /= 1.0 - options.dropout.rate;
    EXPECT_LE(RelativeError(a[n].value, b[n].value), tolerance) << a[n].name;
  }
}

// Checks the cases themselves: each pair of levels that can occur does.
TEST(PairwiseTest, EveryPairOccurs) {
  for (Kind kind : {Kind::kAny, Kind::kShort}) {
    const std::vector<Case> cases = CoveringCases(kind);
    for (const Case& c : cases) EXPECT_TRUE(Exists(kind, c));
    int64_t occurring = 0;
    for (size_t f = 0; f < kFeatures; ++f) {
      for (size_t g = f + 1; g < kFeatures; ++g) {
        for (int x = 0; x < kLevels[f].count; ++x) {
          for (int y = 0; y < kLevels[g].count; ++y) {
            const bool occurs = std::ranges::any_of(
                cases, [&](const Case& c) { return c[f] == x && c[g] == y; });
            occurring += occurs ? 1 : 0;
            EXPECT_EQ(occurs, Exists(kind, Coverage::Pair(f, x, g, y)))
                << kLevels[f].name << " " << x << ", " << kLevels[g].name << " "
                << y;
          }
        }
      }
    }
    // Only table queries without a query table are impossible.
    if (kind == Kind::kAny) {
      EXPECT_EQ(occurring, Pairs() - 1);
    }
    EXPECT_LE(cases.size(), 30U);
  }
}

void ExpectCasesEqualReference(Kind kind) {
  uint64_t seed = 0;
  for (const Case& c : CoveringCases(kind)) {
    SCOPED_TRACE(Describe(c));
    const Call call = Maker(c, ++seed).Make();
    AttentionOptions options = call.Options();
    options.return_lse = true;
    const Tensor d_out =
        RandomTensor({2, 4, call.q.size(2), call.v.size(3)}, seed)
            .To(TypeOf(c));
    const BackwardOptions backward{
        .d_lse = c[kDLse] == 1 ? RandomTensor({2, 4, call.q.size(2)}, seed + 50)
                               : Tensor(),
        .pair_bias = options.pair_bias.defined()};
    const reference::Forward forward =
        reference::Attention(call.q, call.k, call.v, call.terms, options);
    const reference::Backward grads = reference::AttentionBackward(
        d_out, call.q, call.k, call.v, call.terms, options, backward);
    OnEveryTarget([&] {
      ExpectForward(kind, call, forward);
      ExpectBackward(call, d_out, backward, grads);
    });
  }
}

TEST(PairwiseTest, EveryPairEqualsReference) {
  ExpectCasesEqualReference(Kind::kAny);
}

TEST(PairwiseTest, EveryPairInShortCallsEqualsReference) {
  ExpectCasesEqualReference(Kind::kShort);
}

}  // namespace
}  // namespace locus::testing
