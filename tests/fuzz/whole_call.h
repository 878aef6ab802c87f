// Random calls: any terms, options, positions, shapes, types and strides.
#ifndef LOCUS_TESTS_FUZZ_WHOLE_CALL_H_
#define LOCUS_TESTS_FUZZ_WHOLE_CALL_H_

#include <cmath>
#include <limits>
#include <string>

#include "fuzz/random.h"
#include "fuzz/strided.h"
#include "reference/naive.h"

namespace locus::testing {

class WholeCall {
 public:
  explicit WholeCall(Random& random) : random_(random) {
    DrawSizes();
    DrawPositions();
    DrawOptions();
    DrawInputs();
    call_.terms = DrawTerms();
    if (random_.OneIn(2)) DrawOperands();
  }

  const Call& call() const { return call_; }
  Call& call() { return call_; }
  DType dtype() const { return call_.q.dtype(); }

  // "b2 h4/2 q17 k40 d8/8 bf16 rotate bias", for the report of a failure.
  std::string Describe() const {
    std::string text =
        "batch " + std::to_string(batch_) + ", heads " +
        std::to_string(heads_) + "/" + std::to_string(kv_heads_) +
        ", queries " + std::to_string(q_len_) + ", keys " +
        std::to_string(k_len_) + ", dims " + std::to_string(head_dim_) + "/" +
        std::to_string(value_dim_) + ", " +
        std::string(DTypeName(call_.q.dtype())) + ", positions " +
        std::to_string(first_) + " .. " + std::to_string(first_ + reach_ - 1);
    const AttentionOptions& o = call_.options;
    if (call_.q_pos.empty()) text += ", q counted";
    if (call_.k_pos.empty()) text += ", k counted";
    if (o.causal) text += ", causal";
    if (o.window) {
      text += ", window " + std::to_string(o.window->left) + " " +
              std::to_string(o.window->right);
    }
    if (o.softcap) text += ", softcap " + std::to_string(*o.softcap);
    if (!call_.key_lengths.empty()) text += ", key lengths";
    if (!call_.q_seg.empty()) text += ", segments";
    if (!call_.prefix.empty()) text += ", prefix";
    if (!call_.pairs.empty()) text += ", mask";
    if (o.chunk) text += ", chunk " + std::to_string(*o.chunk);
    if (o.dropout.rate > 0.0) text += ", dropout";
    if (o.return_weights) text += ", weights";
    for (const auto& [name, tensor] :
         {std::pair{", sinks ", &o.sinks},
          {", key_bias ", &o.key_bias},
          {", pair_bias ", &o.pair_bias},
          {", table_queries ", &o.table_queries}}) {
      if (tensor->defined()) text += name + tensor->Describe();
    }
    return text + "\n" + locus::Describe(call_.terms);
  }

 private:
  int64_t Length() {
    return random_.OneIn(2) ? random_.Draw(0, 20)
                            : random_.Pick<int64_t>({1, 16, 17, 31, 64, 81, 96,
                                                     97, 130, 256, 257, 300});
  }

  void DrawSizes() {
    batch_ = random_.OneIn(30) ? 0 : random_.Draw(1, 3);
    kv_heads_ = random_.Draw(1, 3);
    heads_ = kv_heads_ * random_.Pick<int64_t>({1, 1, 2, 3, 4});
    head_dim_ = random_.OneIn(2) ? random_.Draw(1, 20)
                                 : random_.Pick<int64_t>({16, 32, 64, 72, 128});
    value_dim_ = random_.OneIn(2) ? head_dim_ : random_.Draw(1, 70);
    q_len_ = Length();
    k_len_ = random_.OneIn(3) ? q_len_ : Length();
    if (random_.OneIn(5)) q_len_ = 1;
    // The reference takes some 10 ns per product: at most a tenth of a second.
    const auto work = [&] {
      return batch_ * heads_ * q_len_ * k_len_ * (head_dim_ + value_dim_);
    };
    while (work() > 4000000) {
      if (batch_ > 1) {
        batch_ = 1;
      } else if (heads_ > kv_heads_ * 2) {
        heads_ = kv_heads_;
      } else if (q_len_ > 40) {
        q_len_ /= 2;
      } else {
        k_len_ /= 2;
      }
    }
  }

  std::vector<int64_t> Tokens(int64_t length) {
    // Default positions start at 0, so they are used only then.
    const int64_t kind = random_.Draw(0, 4);
    if (kind == 0 && first_ == 0) return {};
    std::vector<int64_t> positions;
    if (kind <= 2) {  // consecutive
      const int64_t start = first_ + random_.Draw(0, reach_ - length);
      for (int64_t i = 0; i < length; ++i) positions.push_back(start + i);
      return positions;
    }
    const int64_t count = kind == 3 || batch_ == 0 ? length : batch_ * length;
    for (int64_t n = 0; n < count; ++n) {
      positions.push_back(first_ + random_.Draw(0, reach_ - 1));
    }
    return positions;
  }

  void DrawPositions() {
    const int64_t longest = std::max<int64_t>({q_len_, k_len_, 1});
    reach_ = longest + random_.Draw(0, 2) * random_.Draw(0, longest + 5);
    first_ =
        random_.OneIn(2)
            ? 0
            : random_.Pick<int64_t>({0, 1, -5, -1000, 1000000, int64_t{1} << 40,
                                     -(int64_t{1} << 40), int64_t{1} << 60});
    if (q_len_ == 0 && k_len_ == 0) first_ = 0;  // where there is nothing
    call_.q_pos = Tokens(q_len_);
    call_.k_pos = Tokens(k_len_);
    // By default, queries end where the keys end.
    if (call_.q_pos.empty() && q_len_ > 0 && first_ != 0) {
      call_.q_pos.assign(static_cast<size_t>(q_len_), first_);
    }
  }

  std::vector<int64_t> Segments(int64_t length, int64_t most, bool shared) {
    std::vector<int64_t> segments;
    int64_t at = 0;
    const bool sorted = random_.OneIn(2);
    for (int64_t n = 0; n < (shared ? 1 : batch_) * length; ++n) {
      at = sorted ? std::min(most, at + (random_.OneIn(7) ? 1 : 0))
                  : random_.Draw(0, most);
      segments.push_back(at - 1);
    }
    return segments;
  }

  void DrawOptions() {
    AttentionOptions& o = call_.options;
    o.causal = random_.OneIn(2);
    if (random_.OneIn(3)) {
      constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
      o.window =
          Window{.left = random_.OneIn(8) ? kMost : random_.Draw(0, reach_),
                 .right = random_.OneIn(8) ? kMost : random_.Draw(0, reach_)};
    }
    if (random_.OneIn(3)) o.softcap = std::exp(random_.Real(-1.0, 5.0));
    if (random_.OneIn(3)) {
      for (int64_t b = 0; b < batch_; ++b) {
        call_.key_lengths.push_back(random_.Draw(0, k_len_));
      }
    }
    if (random_.OneIn(4) && batch_ > 0 && q_len_ > 0 && k_len_ > 0) {
      const int64_t most = random_.Draw(0, 3);
      call_.q_seg = Segments(q_len_, most, random_.OneIn(2));
      call_.k_seg = Segments(k_len_, most, random_.OneIn(2));
    }
    o.threads = static_cast<int>(random_.Draw(0, 3));
    o.return_lse = true;
  }

  Tensor Input(int64_t heads, int64_t length, int64_t dim, DType dtype,
               bool keys) {
    Tensor values = RandomTensor({batch_, heads, length, dim}, random_.Seed());
    // Keys past the end do not exist, so they must not be read.
    if (keys && !call_.key_lengths.empty() && random_.OneIn(2)) {
      auto* x = values.MutableData<double>();
      for (int64_t row = 0; row < batch_ * heads * length; ++row) {
        const auto b = static_cast<size_t>(row / (heads * length));
        if (row % length < call_.key_lengths[b]) continue;
        std::fill_n(x + row * dim, dim,
                    std::numeric_limits<double>::quiet_NaN());
      }
    }
    return Strided(values.To(dtype), random_);
  }

  void DrawInputs() {
    const DType dtype = random_.Pick(
        {DType::kF32, DType::kF32, DType::kF32, DType::kBF16, DType::kF16});
    call_.q = Input(heads_, q_len_, head_dim_, dtype, /*keys=*/false);
    call_.k = Input(kv_heads_, k_len_, head_dim_, dtype, /*keys=*/true);
    call_.v = Input(kv_heads_, k_len_, value_dim_, dtype, /*keys=*/true);
  }

  // ------------------------------------------------------------------- terms

  int64_t Heads() { return random_.OneIn(2) ? heads_ : 1; }

  Tensor Table(std::vector<int64_t> shape) {
    const DType dtype = random_.Pick(
        {DType::kF64, DType::kF64, DType::kF32, DType::kBF16, DType::kF16});
    return RandomTensor(std::move(shape), random_.Seed()).To(dtype);
  }

  // `by_pair`: maps that look at more than the offset, too.
  BucketMap Buckets(bool by_pair) {
    const int64_t kind = random_.Draw(0, by_pair ? 7 : 5);
    const int64_t most = random_.Draw(1, 40);
    BucketMap map;
    switch (kind) {
      case 0:
        map = BucketMap::Constant();
        break;
      case 1:
        map = BucketMap::Identity(1 - reach_, reach_ - 1);
        break;
      case 2:
        map = BucketMap::Clip(-random_.Draw(0, most), random_.Draw(0, most));
        break;
      case 3:
        map = BucketMap::T5(2 * random_.Draw(2, 16), random_.Draw(40, 200),
                            random_.OneIn(2));
        break;
      case 4:
        map = BucketMap::Deberta(random_.Draw(2, 40), random_.Draw(64, 300));
        break;
      case 5:
        map = BucketMap::Deberta(0, random_.Draw(1, 100));
        break;
      default: {
        const int64_t width = random_.Draw(1, 20);
        map = BucketMap::Window2D((reach_ + width - 1) / width, width);
        map.grid->origin = first_;
      }
    }
    if (by_pair && random_.OneIn(4)) {
      map = map.WithSpecial(first_ + random_.Draw(0, reach_ - 1),
                            random_.OneIn(2));
    }
    return map;
  }

  BucketTable DrawTable(int64_t dim) {
    const BucketMap map = Buckets(random_.OneIn(6));
    return {.rows = Table({Heads(), map.count, dim}), .buckets = map};
  }

  // Of rows of `dim` channels, without what acts on scores alone.
  Rotation DrawRotation(int64_t dim) {
    Rotation r;
    r.layout =
        random_.OneIn(2) ? PairLayout::kInterleaved : PairLayout::kHalves;
    r.rotary_dim =
        random_.OneIn(2) ? dim / 2 * 2 : 2 * random_.Draw(0, dim / 2);
    r.first_channel = random_.Draw(0, dim - r.rotary_dim);
    const int64_t axes =
        first_ >= 0 && random_.OneIn(4) ? random_.Draw(1, 3) : 0;
    for (int64_t a = 0; a < axes; ++a) {
      r.axes.push_back(
          {.divisor = random_.Draw(1, 9),
           .modulus = random_.OneIn(2) ? 0 : random_.Draw(1, 9),
           .offset = random_.OneIn(2) ? 0.0 : random_.Real(-9, 9)});
    }
    const bool mixed = axes > 0 && random_.OneIn(2);
    r.theta = random_.Reals(r.NumPairs() * (mixed ? axes : 1),
                            random_.OneIn(9) ? -3.0 : 0.0, 1.0);
    for (int64_t p = 0; axes > 0 && !mixed && p < r.NumPairs(); ++p) {
      r.axis.push_back(static_cast<int32_t>(random_.Draw(0, axes - 1)));
    }
    if (random_.OneIn(5)) {
      const std::vector<double> one = r.theta;
      r.heads = kv_heads_;
      r.theta.clear();
      for (int64_t h = 0; h < r.heads; ++h) {
        const double by = random_.Real(-1.0, 1.0);
        for (double w : one) r.theta.push_back(by * w);
      }
    }
    if (random_.OneIn(6)) r.origin = first_ + random_.Draw(0, reach_);
    // Angles are rounded to float64: beyond some millions the error becomes
    // visible, and depends on the order of the products.
    constexpr double kLargestAngle = 1e6;
    const double far = std::abs(static_cast<double>(first_));
    for (double& theta : r.theta) {
      theta *= std::min(1.0, kLargestAngle / std::max(far, 1.0));
    }
    if (random_.OneIn(6)) r.angles = AngleMode::kFloat32;
    return r;
  }

  Rotation DrawScoreRotation() {
    Rotation r = DrawRotation(head_dim_);
    if (random_.OneIn(3)) r.gain = random_.Real(0.5, 1.5);
    if (random_.OneIn(6)) {
      r.log_decay =
          random_.Reals(r.NumPairs(), -4.0 / static_cast<double>(reach_), 0.0);
    }
    r.trains = random_.OneIn(3);
    return r;
  }

  // Some values become minus infinity, as in tables that hide offsets.
  Tensor WithInfinities(const Tensor& values) {
    std::vector<double> numbers = values.ToVector();
    for (double& x : numbers) {
      if (random_.OneIn(4)) x = -std::numeric_limits<double>::infinity();
    }
    return Tensor::From(values.shape(), std::move(numbers)).To(values.dtype());
  }

  Bias DrawBias() {
    const int64_t kind = random_.Draw(0, 3);
    if (kind == 0) {
      return BiasRamp{random_.Reals(heads_, -0.1, 0.5),
                      random_.Reals(heads_, -0.1, 0.5)};
    }
    if (kind == 1) {
      const int64_t heads = Heads(), knots = random_.Draw(0, 5);
      std::vector<double> at = random_.Reals(knots, 0.0, 2.0);
      std::ranges::sort(at);
      return BiasProfile{
          .distance = random_.Reals(reach_, 0.0, 2.0),
          .row_gain = random_.Reals(reach_, 0.5, 1.5),
          .first_position = first_,
          .knots = at,
          .base = RandomTensor({heads, knots + 1}, random_.Seed()),
          .slope = RandomTensor({heads, knots + 1}, random_.Seed())};
    }
    const BucketMap map = Buckets(/*by_pair=*/true);
    Tensor values = Table({Heads(), map.count});
    if (random_.OneIn(8)) values = WithInfinities(values);
    return BiasTable{values, map};
  }

  Terms DrawTerms() {
    Terms t;
    t.scale.scale = random_.OneIn(9) ? random_.Real(-1.0, 1.0)
                                     : 1.0 / std::sqrt(double(head_dim_));
    if (random_.OneIn(6)) {
      t.scale.rows = RandomTensor({Heads(), reach_}, random_.Seed());
      t.scale.first_position = first_;
    }
    // Mostly a few terms; sometimes all.
    const int64_t rare = random_.OneIn(4) ? 1 : 4;
    if (random_.OneIn(2)) t.rotate = DrawScoreRotation();
    if (random_.OneIn(rare + 1)) {
      const int64_t extra = random_.Draw(1, 9);
      t.extra_dot = ExtraDot{.q_rows = Table({Heads(), reach_, extra}),
                             .k_rows = Table({Heads(), reach_, extra}),
                             .first_position = first_};
    }
    if (random_.OneIn(rare + 1)) t.q_table = DrawTable(head_dim_);
    if (random_.OneIn(rare + 1)) t.k_table = DrawTable(head_dim_);
    if (random_.OneIn(2)) t.bias = DrawBias();
    if (random_.OneIn(rare + 1)) t.v_table = DrawTable(value_dim_);
    if (random_.OneIn(rare + 1)) {
      t.rotate_values = ValueRotation{.rotation = DrawRotation(value_dim_),
                                      .relative = random_.OneIn(2)};
    }
    return t;
  }

  // [B or 1, H or 1, ...], with some axes broadcast, and any strides.
  Tensor Operand(std::vector<int64_t> shape) {
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      if (random_.OneIn(3)) shape[axis] = 1;
    }
    Tensor t = Table(std::move(shape));
    return t.rank() == 4 ? Strided(t, random_) : t;
  }

  void DrawMask() {
    PairMask& mask = call_.options.mask;
    mask.shape = {random_.OneIn(2) ? batch_ : 1, Heads(),
                  random_.OneIn(4) ? 1 : q_len_, k_len_};
    int64_t step = random_.OneIn(4) ? 2 : 1;
    for (size_t axis = 4; axis-- > 0; step *= mask.shape[axis]) {
      mask.strides[axis] = step;
    }
    // Hides few or many pairs, or whole ranges.
    const int64_t odds = random_.Draw(2, 9), stretch = random_.Draw(1, 80);
    bool seen = true;
    for (int64_t n = 0; n < step; ++n) {
      if (n % stretch == 0) seen = !random_.OneIn(odds);
      call_.pairs.push_back(seen ? uint8_t{255} : uint8_t{0});
    }
    if (call_.pairs.empty()) mask = {};
  }

  void DrawOperands() {
    AttentionOptions& o = call_.options;
    if (random_.OneIn(3)) o.sinks = Table({heads_});
    if (random_.OneIn(3)) o.key_bias = Operand({batch_, heads_, k_len_});
    if (random_.OneIn(3)) {
      o.pair_bias = Operand({batch_, heads_, q_len_, k_len_});
    }
    if (random_.OneIn(3)) DrawMask();
    if (random_.OneIn(4)) {
      for (int64_t b = 0; b < batch_; ++b) {
        call_.prefix.push_back(random_.Draw(0, k_len_));
      }
    }
    if (random_.OneIn(5)) o.chunk = random_.Draw(1, reach_);
    if (random_.OneIn(4)) {
      o.dropout = {.rate = random_.Real(0.0, 0.9), .seed = random_.Seed()};
    }
    if (call_.terms.q_table && random_.OneIn(2)) {
      const int64_t width = random_.Draw(1, 40);
      o.table_queries =
          Strided(Table({batch_, heads_, q_len_, width}), random_);
      Tensor& rows = call_.terms.q_table->rows;
      rows = Table({rows.size(0), rows.size(1), width});
    }
    o.return_weights = random_.OneIn(4);
  }

  Random& random_;
  Call call_;
  int64_t batch_ = 0, heads_ = 0, kv_heads_ = 0, q_len_ = 0, k_len_ = 0;
  int64_t head_dim_ = 0, value_dim_ = 0;
  int64_t first_ = 0, reach_ = 1;  // positions are in [first, first + reach)
};

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FUZZ_WHOLE_CALL_H_
