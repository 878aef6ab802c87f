// Random calls: any subset of the seven terms, any options.
#ifndef LOCUS_TESTS_REFERENCE_RANDOM_CALL_H_
#define LOCUS_TESTS_REFERENCE_RANDOM_CALL_H_

#include "reference/naive.h"

namespace locus::testing {

// Bits of a subset of the terms.
enum TermBit : unsigned {
  kInputAdd = 1,
  kRotate = 2,
  kExtraDot = 4,
  kQTable = 8,
  kKTable = 16,
  kBias = 32,
  kVTable = 64,
  kAllTerms = 127,
};

struct CallConfig {
  int64_t batch = 2, heads = 4, kv_heads = 2, q_len = 5, k_len = 5;
  int64_t head_dim = 6, value_dim = 3;
  int64_t first_position = 0;
  unsigned terms = kAllTerms;
  int bias_kind = 0;  // 0 table, 1 ramp, 2 profile
  uint64_t seed = 1;
};

// Positions lie in [first_position, first_position + kReach).
inline constexpr int64_t kReach = 40;

class CallMaker {
 public:
  explicit CallMaker(const CallConfig& config)
      : c_(config), engine_(config.seed) {}

  Call Make() {
    Call call;
    call.q = Random({c_.batch, c_.heads, c_.q_len, c_.head_dim});
    call.k = Random({c_.batch, c_.kv_heads, c_.k_len, c_.head_dim});
    call.v = Random({c_.batch, c_.kv_heads, c_.k_len, c_.value_dim});
    for (int64_t n = 0; n < c_.batch * c_.q_len; ++n) {
      call.q_pos.push_back(c_.first_position + Draw(0, kReach - 1));
    }
    for (int64_t n = 0; n < c_.batch * c_.k_len; ++n) {
      call.k_pos.push_back(c_.first_position + Draw(0, kReach - 1));
    }
    call.terms = MakeTerms();
    return call;
  }

  // Each option on or off at random, and hence some rows fully masked.
  void AddOptions(Call& call) {
    call.options.causal = Flip();
    if (Flip()) {
      call.options.window =
          Window{.left = Draw(0, kReach), .right = Draw(0, kReach)};
    }
    if (Flip()) call.options.softcap = 1.0 + 0.1 * double(Draw(0, 50));
    if (Flip()) {
      for (int64_t b = 0; b < c_.batch; ++b) {
        call.key_lengths.push_back(Draw(0, c_.k_len));
      }
    }
    if (Flip()) {
      for (size_t n = 0; n < call.q_pos.size(); ++n) {
        call.q_seg.push_back(Draw(0, 1));
      }
      for (size_t n = 0; n < call.k_pos.size(); ++n) {
        call.k_seg.push_back(Draw(0, 1));
      }
    }
    // The temperature is for positions from -shift on.
    if (Flip()) {
      call.terms.scale.beta = 0.3;
      call.terms.scale.shift = 1 - c_.first_position;
      call.terms.scale.span = 7;
    }
  }

  int64_t Draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(engine_);
  }
  bool Flip() { return Draw(0, 1) != 0; }

 private:
  Tensor Random(std::vector<int64_t> shape) {
    return RandomTensor(std::move(shape), engine_());
  }
  int64_t Heads() { return Flip() ? c_.heads : 1; }
  bool Has(TermBit bit) const { return (c_.terms & bit) != 0; }

  std::vector<double> Numbers(int64_t count, double lo, double hi) {
    std::vector<double> out;
    std::uniform_real_distribution<double> uniform(lo, hi);
    for (int64_t n = 0; n < count; ++n) out.push_back(uniform(engine_));
    return out;
  }

  BucketTable MakeTable(int64_t dim) {
    const BucketMap map = Flip() ? BucketMap::Clip(-3, 5)
                                 : BucketMap::Identity(1 - kReach, kReach - 1);
    return {.rows = Random({Heads(), map.count, dim}), .buckets = map};
  }

  Rotation MakeRotation() {
    Rotation r;
    r.layout = Flip() ? PairLayout::kInterleaved : PairLayout::kHalves;
    r.rotary_dim = 2 * Draw(1, c_.head_dim / 2);
    r.first_channel = Draw(0, c_.head_dim - r.rotary_dim);
    r.theta = Numbers(r.rotary_dim / 2, 0.01, 1.0);
    r.gain = 1.0 + 0.1 * static_cast<double>(Draw(0, 3));
    if (Flip()) r.log_decay = Numbers(r.rotary_dim / 2, -0.02, 0.0);
    if (c_.first_position >= 0 && Flip()) {
      r.axes = {{.divisor = 5, .modulus = 0}, {.divisor = 1, .modulus = 5}};
      for (int64_t p = 0; p < r.NumPairs(); ++p) {
        r.axis.push_back(static_cast<int32_t>(Draw(0, 1)));
      }
    }
    return r;
  }

  Bias MakeBias() {
    if (c_.bias_kind == 1) {
      return BiasRamp{Numbers(c_.heads, 0.0, 0.2), Numbers(c_.heads, 0.0, 0.2)};
    }
    if (c_.bias_kind == 2) {
      const int64_t heads = Heads();
      return BiasProfile{.distance = Numbers(kReach, 0.0, 1.0),
                         .row_gain = Numbers(kReach, 0.5, 1.5),
                         .first_position = c_.first_position,
                         .knots = {0.3, 0.6},
                         .base = Random({heads, 3}),
                         .slope = Random({heads, 3})};
    }
    const BucketMap map = BucketMap::T5(8, 20, /*bidirectional=*/true);
    return BiasTable{Random({Heads(), map.count}), map};
  }

  Terms MakeTerms() {
    Terms t;
    t.scale.scale = 0.1 * static_cast<double>(Draw(1, 8));
    const int64_t first = c_.first_position;
    if (Has(kInputAdd)) {
      t.input_add = InputAdd{.table = Random({kReach, c_.head_dim}),
                             .first_position = first};
    }
    if (Has(kRotate)) t.rotate = MakeRotation();
    if (Has(kExtraDot)) {
      t.extra_dot = ExtraDot{.q_rows = Random({Heads(), kReach, 2}),
                             .k_rows = Random({Heads(), kReach, 2}),
                             .first_position = first};
    }
    if (Has(kQTable)) t.q_table = MakeTable(c_.head_dim);
    if (Has(kKTable)) t.k_table = MakeTable(c_.head_dim);
    if (Has(kBias)) t.bias = MakeBias();
    if (Has(kVTable)) t.v_table = MakeTable(c_.value_dim);
    return t;
  }

  CallConfig c_;
  std::mt19937_64 engine_;
};

}  // namespace locus::testing

#endif  // LOCUS_TESTS_REFERENCE_RANDOM_CALL_H_
