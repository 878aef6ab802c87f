// Random calls: any subset of the terms, any options.
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
  kRotateValues = 128,
  kAllTerms = 255,
};

// The range of positions unless a test says otherwise.
inline constexpr int64_t kReach = 40;

struct CallConfig {
  int64_t batch = 2, heads = 4, kv_heads = 2, q_len = 5, k_len = 5;
  int64_t head_dim = 6, value_dim = 3;
  // Positions are in [first_position, first_position + reach).
  int64_t first_position = 0, reach = kReach;
  unsigned terms = kAllTerms;
  int bias_kind = 0;  // 0 table, 1 ramp, 2 profile
  uint64_t seed = 1;
};

// Gives a rotation frequencies for `heads` heads; the first keeps its own.
inline void SetHeads(Rotation& r, int64_t heads) {
  const auto first = r.ThetaOf(0);
  const std::vector<double> one(first.begin(), first.end());
  r.theta.clear();
  for (int64_t h = 0; h < heads; ++h) {
    for (double w : one) r.theta.push_back(w / (1.0 + 0.4 * double(h)));
  }
  r.heads = heads;
}

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
      call.q_pos.push_back(c_.first_position + Draw(0, c_.reach - 1));
    }
    for (int64_t n = 0; n < c_.batch * c_.k_len; ++n) {
      call.k_pos.push_back(c_.first_position + Draw(0, c_.reach - 1));
    }
    call.terms = MakeTerms();
    return call;
  }

  // Turns each option on or off at random; hence some rows are fully masked.
  void AddOptions(Call& call) {
    call.options.causal = Flip();
    if (Flip()) {
      call.options.window =
          Window{.left = Draw(0, c_.reach), .right = Draw(0, c_.reach)};
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
    if (Flip()) {
      call.terms.scale.rows =
          Tensor::From({1, c_.reach}, Numbers(c_.reach, -0.5, 1.5));
      call.terms.scale.first_position = c_.first_position;
    }
  }

  // Adds random operands: `which` has a bit for each.
  void AddOperands(Call& call, unsigned which) {
    AttentionOptions& o = call.options;
    const auto has = [which](unsigned bit) { return (which >> bit & 1) != 0; };
    const auto batch = [&] { return Flip() ? c_.batch : 1; };
    if (has(0)) o.sinks = Random({c_.heads});
    if (has(1)) o.key_bias = Random({batch(), Heads(), c_.k_len});
    if (has(2)) {
      o.pair_bias =
          Random({batch(), Heads(), Draw(0, 3) == 0 ? 1 : c_.q_len, c_.k_len});
    }
    if (has(3)) {
      o.mask.shape = {batch(), Heads(), Draw(0, 3) == 0 ? 1 : c_.q_len,
                      c_.k_len};
      int64_t step = 1;
      for (size_t axis = 4; axis-- > 0; step *= o.mask.shape[axis]) {
        o.mask.strides[axis] = step;
      }
      const int64_t odds = Draw(1, 5);
      for (int64_t n = 0; n < step; ++n) {
        call.pairs.push_back(Draw(0, odds) > 0 ? uint8_t{2} : uint8_t{0});
      }
      if (call.pairs.empty()) o.mask = {};
    }
    if (has(4)) {
      for (int64_t b = 0; b < c_.batch; ++b) {
        call.prefix.push_back(Draw(0, c_.k_len));
      }
    }
    if (has(5)) o.chunk = Draw(1, c_.reach);
    if (has(6)) {
      o.dropout = {.rate = 0.1 * static_cast<double>(Draw(1, 9)),
                   .seed = engine_(),
                   .first_query = Draw(0, 100),
                   .first_key = Draw(0, 100),
                   .query_stride = Draw(1, 7),
                   .key_stride = Draw(1, 7)};
    }
    if (has(7) && call.terms.q_table) {
      const int64_t width = Draw(1, 9);
      o.table_queries = Random({c_.batch, c_.heads, c_.q_len, width});
      Tensor& rows = call.terms.q_table->rows;
      rows = Random({rows.size(0), rows.size(1), width});
    }
    if (has(8)) {
      call.terms.scale.rows = Random({Heads(), c_.reach});
      call.terms.scale.first_position = c_.first_position;
    }
    o.return_weights = has(9);
  }
  static constexpr unsigned kOperands = 10;

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
    const BucketMap map = Flip()
                              ? BucketMap::Clip(-3, 5)
                              : BucketMap::Identity(1 - c_.reach, c_.reach - 1);
    return {.rows = Random({Heads(), map.count, dim}), .buckets = map};
  }

  // A rotation of rows of `dim` channels; sometimes with frequencies per key
  // head.
  Rotation MakeRotation(int64_t dim) {
    Rotation r = MakeSharedRotation(dim);
    if (Draw(0, 2) == 0) SetHeads(r, c_.kv_heads);
    return r;
  }

  // By the position, or by rows and columns of a grid, with one axis per pair
  // or both; some tokens may not rotate.
  Rotation MakeSharedRotation(int64_t dim) {
    Rotation r;
    r.layout = Flip() ? PairLayout::kInterleaved : PairLayout::kHalves;
    r.rotary_dim = dim < 2 ? 0 : 2 * Draw(1, dim / 2);
    r.first_channel = Draw(0, dim - r.rotary_dim);
    r.theta = Numbers(r.rotary_dim / 2, 0.01, 1.0);
    if (c_.first_position < 0) return r;
    if (Draw(0, 2) == 0) r.origin = c_.first_position + Draw(0, c_.reach);
    const int64_t kind = Draw(0, 2);
    if (kind == 0) return r;
    r.axes = {{.divisor = 5, .modulus = 0, .offset = 0.5},
              {.divisor = 1, .modulus = 5, .offset = -2.0}};
    if (kind == 1) {
      for (int64_t p = 0; p < r.NumPairs(); ++p) {
        r.axis.push_back(static_cast<int32_t>(Draw(0, 1)));
      }
    } else {
      r.theta = Numbers(r.rotary_dim, 0.01, 1.0);
    }
    return r;
  }

  // A rotation of scores, with features that a rotation of values does not
  // have.
  Rotation MakeScoreRotation() {
    Rotation r = MakeRotation(c_.head_dim);
    r.gain = 1.0 + 0.1 * static_cast<double>(Draw(0, 3));
    if (Flip()) r.log_decay = Numbers(r.rotary_dim / 2, -0.02, 0.0);
    r.trains = Flip();
    return r;
  }

  Bias MakeBias() {
    if (c_.bias_kind == 1) {
      return BiasRamp{Numbers(c_.heads, 0.0, 0.2), Numbers(c_.heads, 0.0, 0.2)};
    }
    if (c_.bias_kind == 2) {
      const int64_t heads = Heads();
      return BiasProfile{.distance = Numbers(c_.reach, 0.0, 1.0),
                         .row_gain = Numbers(c_.reach, 0.5, 1.5),
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
      t.input_add = InputAdd{.table = Random({c_.reach, c_.head_dim}),
                             .first_position = first};
    }
    if (Has(kRotate)) t.rotate = MakeScoreRotation();
    if (Has(kExtraDot)) {
      t.extra_dot = ExtraDot{.q_rows = Random({Heads(), c_.reach, 2}),
                             .k_rows = Random({Heads(), c_.reach, 2}),
                             .first_position = first};
    }
    if (Has(kQTable)) t.q_table = MakeTable(c_.head_dim);
    if (Has(kKTable)) t.k_table = MakeTable(c_.head_dim);
    if (Has(kBias)) t.bias = MakeBias();
    if (Has(kVTable)) t.v_table = MakeTable(c_.value_dim);
    if (Has(kRotateValues)) {
      t.rotate_values = ValueRotation{.rotation = MakeRotation(c_.value_dim),
                                      .relative = Flip()};
    }
    return t;
  }

  CallConfig c_;
  std::mt19937_64 engine_;
};

}  // namespace locus::testing

#endif  // LOCUS_TESTS_REFERENCE_RANDOM_CALL_H_
